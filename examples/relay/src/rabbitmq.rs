//! Delivery to an exchange of RabbitMQ.

use std::time::Duration;

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, ExchangeKind};
use tokio::time::timeout;

use crate::in_full;
use crate::message::Message;
use crate::sink::Delivery;

const PERSISTENT: u8 = 2;

/// An exchange and the routing key for it.
pub struct RabbitMq {
    url: String,
    exchange: String,
    routing_key: String,
    time: Duration,
    /// The connection ends when it is dropped.
    channel: Option<(Connection, Channel)>,
}

impl RabbitMq {
    /// Not connected yet. `time` is what a delivery may take.
    pub fn new(url: String, exchange: String, routing_key: String, time: Duration) -> RabbitMq {
        RabbitMq { url, exchange, routing_key, time, channel: None }
    }

    /// Is connected afterwards, with a channel that is open and confirms, and an exchange that is there.
    pub async fn connect(&mut self) -> Result<(), String> {
        if self.channel.as_ref().is_none_or(|(_, channel)| !channel.status().connected()) {
            let opened = open(&self.url, &self.exchange).await;
            self.channel = Some(opened.map_err(|error| format!("RabbitMQ: {}", in_full(&error)))?);
        }
        Ok(())
    }

    /// Publishes a message under its id and waits for the broker's confirm.
    pub async fn deliver(&self, message: &Message) -> Delivery {
        let Some((_, channel)) = self.channel.as_ref().filter(|(_, channel)| channel.status().connected())
        else {
            return Delivery::NotSent("no connection".to_owned());
        };
        let mut headers = FieldTable::default();
        for (name, value) in message.headers() {
            headers.insert(name.into(), AMQPValue::LongString(value.into()));
        }
        let properties = BasicProperties::default()
            .with_message_id(message.id.to_string().into())
            .with_delivery_mode(PERSISTENT)
            .with_content_type("application/json".into())
            .with_headers(headers);
        let publish = async {
            // Mandatory: what no queue takes comes back instead of being dropped.
            let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
            let (exchange, key) = (self.exchange.as_str().into(), self.routing_key.as_str().into());
            channel.basic_publish(exchange, key, options, message.body.as_bytes(), properties).await?.await
        };
        match timeout(self.time, publish).await {
            Ok(Ok(Confirmation::Ack(None))) => Delivery::Done(serde_json::json!({
                "exchange": self.exchange, "routing_key": self.routing_key,
            })),
            Ok(Ok(Confirmation::Ack(Some(returned)) | Confirmation::Nack(Some(returned)))) => {
                let why = format!("returned: {} {}", returned.reply_code, returned.reply_text);
                Delivery::Refused { why, retry_after: None }
            }
            // Of several queues, the others may have taken it.
            Ok(Ok(Confirmation::Nack(None) | Confirmation::NotRequested)) => {
                Delivery::Unknown("not confirmed".to_owned())
            }
            // An error of the broker's ends the channel and does not say which of its messages it is about.
            Ok(Err(error)) => Delivery::Unknown(in_full(&error)),
            Err(_) => Delivery::Unknown("no confirm in time".to_owned()),
        }
    }
}

async fn open(url: &str, exchange: &str) -> lapin::Result<(Connection, Channel)> {
    let named = ConnectionProperties::default().with_connection_name("pg_idem relay".into());
    let connection = Connection::connect(url, named).await?;
    let channel = connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    // The one without a name is always there, and cannot be asked for.
    if !exchange.is_empty() {
        let look = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
        channel.exchange_declare(exchange.into(), ExchangeKind::Direct, look, FieldTable::default()).await?;
    }
    Ok((connection, channel))
}
