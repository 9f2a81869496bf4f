//! What the environment says.

use std::env;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The relay's settings.
pub struct Settings {
    /// `DATABASE_URL`
    pub database: String,
    /// `OUTBOX`, with its schema.
    pub outbox: String,
    /// `WEBHOOK_URL`
    pub url: String,
    /// `WEBHOOK_SECRET`, as Standard Webhooks writes it: `whsec_` and base64.
    pub secret: Vec<u8>,
    /// `RELAY_NAME`: who claims, for people who look at the table.
    pub name: String,
    /// `CHANNEL`: the outbox's notify_channel, if it has one.
    pub channel: Option<String>,
    /// `BATCH`: messages of a claim.
    pub batch: i32,
    /// `LEASE_SECONDS`: longer than a delivery takes.
    pub lease: f64,
    /// `POLL_SECONDS`: how often to look without being told.
    pub poll: Duration,
    /// `STOP_AT`: for tests. At this point the relay says so and stands still, to be killed there.
    stop_at: Option<String>,
}

impl Settings {
    /// Reads them; the error names the one that is wrong.
    pub fn read() -> Result<Settings, String> {
        let required = |name: &str| env::var(name).map_err(|_| format!("{name} is not set"));
        let number = |name: &str, usual: f64| match env::var(name) {
            Err(_) => Ok(usual),
            Ok(text) => {
                text.parse().ok().filter(|n| *n > 0.0).ok_or(format!("{name} is not a number above zero"))
            }
        };
        let secret = required("WEBHOOK_SECRET")?;
        Ok(Settings {
            database: required("DATABASE_URL")?,
            outbox: required("OUTBOX")?,
            url: required("WEBHOOK_URL")?,
            secret: STANDARD
                .decode(secret.trim_start_matches("whsec_"))
                .map_err(|_| "WEBHOOK_SECRET is not whsec_ and base64".to_owned())?,
            name: env::var("RELAY_NAME").unwrap_or_else(|_| format!("relay {}", std::process::id())),
            channel: env::var("CHANNEL").ok(),
            batch: number("BATCH", 10.0)? as i32,
            lease: number("LEASE_SECONDS", 30.0)?,
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
