//! Delivery by HTTP, signed as Standard Webhooks says (https://www.standardwebhooks.com).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use serde_json::Value;
use sha2::Sha256;
use uuid::Uuid;

use crate::settings::Settings;

/// What came of a delivery.
pub enum Delivery {
    /// The receiver has it; its answer, as a document.
    Done(Value),
    /// The receiver said no, so it has done nothing.
    Refused {
        /// The status.
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
pub struct Webhook {
    client: reqwest::Client,
    url: String,
    secret: Vec<u8>,
}

impl Webhook {
    /// The receiver that the settings name. A delivery gets a third of the lease.
    pub fn new(settings: &Settings) -> Webhook {
        let client = reqwest::Client::builder()
            .timeout(Duration::from_secs_f64(settings.lease / 3.0))
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .expect("the client has no certificates to read");
        Webhook { client, url: settings.url.clone(), secret: settings.secret.clone() }
    }

    /// Sends a message. `id` is the same at every delivery, the time is this one's.
    pub async fn deliver(
        &self,
        id: Uuid,
        provider_key: Option<Uuid>,
        headers: Option<&Value>,
        body: &str,
    ) -> Delivery {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut request = self
            .client
            .post(&self.url)
            .header("content-type", "application/json")
            .header("webhook-id", id.to_string())
            .header("webhook-timestamp", now.to_string())
            .header("webhook-signature", self.sign(id, now, body))
            .body(body.to_owned());
        let header = |name: &str| headers.and_then(|headers| headers.get(name)).and_then(Value::as_str);
        // The provider's key where the message carries an action: the one name under which a repeat is recognised.
        if let Some(key) =
            provider_key.map(|key| key.to_string()).or(header("idempotency-key").map(str::to_owned))
        {
            request = request.header("idempotency-key", key);
        }
        for name in ["traceparent", "tracestate"] {
            if let Some(value) = header(name) {
                request = request.header(name, value);
            }
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
