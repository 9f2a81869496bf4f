//! Delivery by HTTP, signed as Standard Webhooks says (https://www.standardwebhooks.com).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use serde_json::Value;
use sha2::Sha256;
use uuid::Uuid;

use crate::message::Message;
use crate::sink::Delivery;

/// A receiver.
pub struct Webhook {
    client: reqwest::Client,
    url: String,
    secret: Vec<u8>,
}

impl Webhook {
    /// `time` is what a delivery may take.
    pub fn new(url: String, secret: Vec<u8>, time: Duration) -> Webhook {
        let client = reqwest::Client::builder()
            .timeout(time)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .expect("nothing is set that could not be");
        Webhook { client, url, secret }
    }

    /// Sends a message. Its id is the same at every delivery, the time is this one's.
    pub async fn deliver(&self, message: &Message) -> Delivery {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut request = self
            .client
            .post(&self.url)
            .header("content-type", "application/json")
            .header("webhook-id", message.id.to_string())
            .header("webhook-timestamp", now.to_string())
            .header("webhook-signature", self.sign(message.id, now, &message.body))
            .body(message.body.clone());
        for (name, value) in message.headers() {
            request = request.header(name, value);
        }
        match request.send().await {
            Err(error) if error.is_connect() || error.is_builder() => {
                Delivery::NotSent("no connection".to_owned())
            }
            Err(_) => Delivery::Unknown("no answer".to_owned()),
            Ok(answer) => {
                let status = answer.status();
                let retry_after =
                    answer.headers().get("retry-after").and_then(|after| after.to_str().ok()?.parse().ok());
                match status.as_u16() {
                    200..=299 => {
                        let text = answer.text().await.unwrap_or_default();
                        let document = serde_json::from_str(&text).unwrap_or(Value::Null);
                        Delivery::Done(serde_json::json!({"status": status.as_u16(), "body": document}))
                    }
                    // These say that it was not taken. A time-out or a conflict with itself does not.
                    400..=499 if !matches!(status.as_u16(), 408 | 409 | 425) => {
                        Delivery::Refused { why: format!("status {status}"), retry_after }
                    }
                    _ => Delivery::Unknown(format!("status {status}")),
                }
            }
        }
    }

    fn sign(&self, id: Uuid, now: u64, body: &str) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.secret).expect("a key of any length will do");
        mac.update(format!("{id}.{now}.{body}").as_bytes());
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}
