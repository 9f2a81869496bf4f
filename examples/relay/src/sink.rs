//! Where messages go. Each kind of receiver has a file of its own, and all answer in the same words.

use std::time::Duration;

use serde_json::Value;
use tokio::time::timeout;

use crate::message::Message;
use crate::nats::Nats;
use crate::rabbitmq::RabbitMq;
use crate::settings::{Settings, Target};
use crate::webhook::Webhook;

/// How long connecting may take. No message waits for it.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// What came of a delivery.
pub enum Delivery {
    /// The receiver has it; its answer, as a document.
    Done(Value),
    /// The receiver said no, so it has done nothing.
    Refused {
        /// What it said.
        why: String,
        /// When to come again, where it said so.
        retry_after: Option<f64>,
    },
    /// No connection: nothing has left.
    NotSent(String),
    /// It may have been received.
    Unknown(String),
}

/// A receiver.
pub enum Sink {
    /// HTTP
    Webhook(Webhook),
    /// NATS JetStream
    Nats(Nats),
    /// RabbitMQ
    RabbitMq(RabbitMq),
}

impl Sink {
    /// The receiver that the settings name. A delivery gets a third of the lease.
    pub fn new(settings: &Settings) -> Sink {
        let time = settings.lease / 3;
        match settings.target.clone() {
            Target::Webhook { url, secret } => Sink::Webhook(Webhook::new(url, secret, time)),
            Target::Nats { servers, subject } => Sink::Nats(Nats::new(servers, subject, time)),
            Target::RabbitMq { url, exchange, routing_key } => {
                Sink::RabbitMq(RabbitMq::new(url, exchange, routing_key, time))
            }
        }
    }

    /// Connects where there is a connection to keep: before it is up, nothing is claimed, so no attempts are used up.
    pub async fn connect(&mut self) -> Result<(), String> {
        let connected = async {
            match self {
                Sink::Webhook(_) => Ok(()),
                Sink::Nats(nats) => nats.connect().await,
                Sink::RabbitMq(rabbitmq) => rabbitmq.connect().await,
            }
        };
        timeout(CONNECT_TIME, connected).await.unwrap_or_else(|_| Err("no connection in time".to_owned()))
    }

    /// Sends a message and waits for what the receiver says, as long as a delivery may take.
    pub async fn deliver(&self, message: &Message) -> Delivery {
        match self {
            Sink::Webhook(webhook) => webhook.deliver(message).await,
            Sink::Nats(nats) => nats.deliver(message).await,
            Sink::RabbitMq(rabbitmq) => rabbitmq.deliver(message).await,
        }
    }
}
