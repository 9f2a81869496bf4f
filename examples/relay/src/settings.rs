//! What the environment says.

use std::env;
use std::time::Duration;

use async_nats::ServerAddr;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio_postgres::Config;

use crate::in_full;

/// Where to deliver to: `SINK` says `webhook`, `nats` or `rabbitmq`.
#[derive(Clone)]
pub enum Target {
    /// HTTP
    Webhook {
        /// `WEBHOOK_URL`
        url: String,
        /// `WEBHOOK_SECRET`, as Standard Webhooks writes it: `whsec_` and base64.
        secret: Vec<u8>,
    },
    /// NATS JetStream
    Nats {
        /// `NATS_URL`: one, or several with commas.
        servers: Vec<ServerAddr>,
        /// `NATS_SUBJECT`
        subject: String,
    },
    /// RabbitMQ
    RabbitMq {
        /// `RABBITMQ_URL`
        url: String,
        /// `RABBITMQ_EXCHANGE`: empty for the one that takes the queue's name as routing key.
        exchange: String,
        /// `RABBITMQ_ROUTING_KEY`
        routing_key: String,
    },
}

/// The relay's settings.
pub struct Settings {
    /// `DATABASE_URL`
    pub database: Config,
    /// `OUTBOX`, with its schema.
    pub outbox: String,
    /// Where to deliver to.
    pub target: Target,
    /// `RELAY_NAME`: who claims, for people who look at the table.
    pub name: String,
    /// `CHANNEL`: the outbox's notify_channel, if it has one.
    pub channel: Option<String>,
    /// `BATCH`: messages of a claim.
    pub batch: i32,
    /// `LEASE_SECONDS`: longer than a delivery takes.
    pub lease: Duration,
    /// `POLL_SECONDS`: how often to look without being told.
    pub poll: Duration,
    /// `STOP_AT`: for tests. At this point the relay says so and stands still, to be killed there.
    stop_at: Option<String>,
}

impl Settings {
    /// Reads them; the error names the one that is wrong.
    pub fn read() -> Result<Settings, String> {
        // The driver's complaint names the option. The text itself may hold a password.
        let database = required("DATABASE_URL")?
            .parse()
            .map_err(|error: tokio_postgres::Error| format!("DATABASE_URL: {}", in_full(&error)))?;
        Ok(Settings {
            database,
            outbox: required("OUTBOX")?,
            target: Target::read()?,
            name: env::var("RELAY_NAME").unwrap_or_else(|_| format!("relay {}", std::process::id())),
            channel: env::var("CHANNEL").ok(),
            batch: number("BATCH", 10.0)? as i32,
            lease: Duration::from_secs_f64(number("LEASE_SECONDS", 30.0)?),
            poll: Duration::from_secs_f64(number("POLL_SECONDS", 2.0)?),
            stop_at: env::var("STOP_AT").ok(),
        })
    }

    /// Stands still at the point where a test wants to kill the relay.
    pub fn reach(&self, point: &str) {
        if self.stop_at.as_deref() == Some(point) {
            println!("{point}");
            loop {
                std::thread::park();
            }
        }
    }
}

impl Target {
    fn read() -> Result<Target, String> {
        match env::var("SINK").as_deref().unwrap_or("webhook") {
            "webhook" => {
                let secret = required("WEBHOOK_SECRET")?;
                let secret = STANDARD
                    .decode(secret.trim_start_matches("whsec_"))
                    .map_err(|_| "WEBHOOK_SECRET is not whsec_ and base64".to_owned())?;
                Ok(Target::Webhook { url: required("WEBHOOK_URL")?, secret })
            }
            "nats" => {
                let servers: Result<Vec<ServerAddr>, _> =
                    required("NATS_URL")?.split(',').map(str::parse).collect();
                let servers =
                    servers.map_err(|_| "NATS_URL is not nats://host:port, or several with commas")?;
                let subject = required("NATS_SUBJECT")?;
                let literal = |word: &str| !word.is_empty() && !word.contains(['*', '>']);
                if subject.contains(char::is_whitespace) || !subject.split('.').all(literal) {
                    return Err("NATS_SUBJECT is not a subject without wildcards".to_owned());
                }
                Ok(Target::Nats { servers, subject })
            }
            "rabbitmq" => {
                let (exchange, routing_key) =
                    (env::var("RABBITMQ_EXCHANGE").unwrap_or_default(), required("RABBITMQ_ROUTING_KEY")?);
                for (name, text) in [("RABBITMQ_EXCHANGE", &exchange), ("RABBITMQ_ROUTING_KEY", &routing_key)]
                {
                    if text.len() > 255 {
                        return Err(format!("{name} is longer than 255 bytes"));
                    }
                }
                Ok(Target::RabbitMq { url: required("RABBITMQ_URL")?, exchange, routing_key })
            }
            other => Err(format!("SINK is {other:?}, not webhook, nats or rabbitmq")),
        }
    }
}

fn required(name: &str) -> Result<String, String> {
    env::var(name).map_err(|_| format!("{name} is not set"))
}

fn number(name: &str, usual: f64) -> Result<f64, String> {
    match env::var(name) {
        Err(_) => Ok(usual),
        Ok(text) => {
            text.parse().ok().filter(|n| *n > 0.0).ok_or(format!("{name} is not a number above zero"))
        }
    }
}
