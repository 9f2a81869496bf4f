//! Delivery to a stream of NATS JetStream.

use std::error::Error;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::{self, Context};
use async_nats::{ConnectOptions, HeaderMap, HeaderValue, ServerAddr};
use tokio::time::timeout;

use crate::in_full;
use crate::message::Message;
use crate::sink::Delivery;

/// A subject that a stream takes.
pub struct Nats {
    servers: Vec<ServerAddr>,
    subject: String,
    time: Duration,
    context: Option<Context>,
}

impl Nats {
    /// Not connected yet. `time` is what a delivery may take.
    pub fn new(servers: Vec<ServerAddr>, subject: String, time: Duration) -> Nats {
        Nats { servers, subject, time, context: None }
    }

    /// Is connected afterwards. The client keeps what it could not send, and sends it when it is connected again: after as
    /// many tries as there are servers it has to forget it, lest a message come long after it was called unknown.
    pub async fn connect(&mut self) -> Result<(), String> {
        if self.context.as_ref().is_some_and(is_up) {
            return Ok(());
        }
        let client = ConnectOptions::new()
            .name("pg_idem relay")
            .connection_timeout(self.time)
            .max_reconnects(self.servers.len())
            .connect(&self.servers[..])
            .await
            .map_err(|error| format!("NATS: {}", in_full(&error)))?;
        let mut context = jetstream::new(client);
        context.set_timeout(self.time);
        self.context = Some(context);
        Ok(())
    }

    /// Publishes a message under its id and waits for the stream's word that it is stored.
    pub async fn deliver(&self, message: &Message) -> Delivery {
        let mut headers = HeaderMap::new();
        // What a stream knows repeats by, for as long as its duplicate_window says.
        headers.insert("Nats-Msg-Id", message.id.to_string());
        headers.insert("content-type", "application/json");
        for (name, value) in message.headers() {
            match value.parse::<HeaderValue>() {
                Ok(value) => headers.insert(name, value),
                Err(_) => return Delivery::NotSent(format!("the header {name} has a line break")),
            }
        }
        let Some(context) = self.context.as_ref().filter(|context| is_up(context)) else {
            return Delivery::NotSent("no connection".to_owned());
        };
        let body = message.body.clone().into();
        let publish =
            async { context.publish_with_headers(self.subject.clone(), headers, body).await?.await };
        match timeout(self.time, publish).await {
            Ok(Ok(stored)) => Delivery::Done(serde_json::json!({
                "stream": stored.stream, "sequence": stored.sequence, "duplicate": stored.duplicate,
            })),
            Ok(Err(error)) => failed(&error),
            Err(_) => Delivery::Unknown("no confirm in time".to_owned()),
        }
    }
}

fn is_up(context: &Context) -> bool {
    context.client().connection_state() == State::Connected
}

/// What an error says: JetStream's own and the lack of a stream are refusals, before anything was stored.
fn failed(error: &PublishError) -> Delivery {
    let refused = |why: String| Delivery::Refused { why, retry_after: None };
    match error.kind() {
        PublishErrorKind::StreamNotFound => refused("no stream takes the subject".to_owned()),
        PublishErrorKind::MaxPayloadExceeded => refused("larger than the server's max_payload".to_owned()),
        PublishErrorKind::TimedOut => Delivery::Unknown("no confirm in time".to_owned()),
        _ => match error.source().and_then(|source| source.downcast_ref::<jetstream::Error>()) {
            Some(refusal) => refused(refusal.to_string()),
            None => Delivery::Unknown("no confirm".to_owned()),
        },
    }
}
