//! A message in this relay's hands.

use serde_json::Value;
use tokio_postgres::Row;
use uuid::Uuid;

/// The body is made by the database, so that it is the same, byte for byte, at every delivery.
pub const CLAIM: &str = "SELECT id, claim_id, attempt_id, action_id, provider_key, headers, \
    jsonb_build_object('type', type, 'timestamp', created_at, 'data', payload)::text AS body \
    FROM idem_outbox_claim($1, $2, $3, $4)";

/// A message as it was claimed.
pub struct Message {
    /// The same at every delivery.
    pub id: Uuid,
    /// What the reports name.
    pub claim_id: Uuid,
    /// The action it carries, and the attempt that this relay was granted.
    pub attempt: Option<(Uuid, Uuid)>,
    /// What a receiver is to know the action by. Where the type marks its dispatch, it comes from there.
    pub provider_key: Option<Uuid>,
    /// What to send.
    pub body: String,
    headers: Option<Value>,
}

impl From<&Row> for Message {
    fn from(row: &Row) -> Message {
        let (action_id, attempt_id): (Option<Uuid>, Option<Uuid>) =
            (row.get("action_id"), row.get("attempt_id"));
        Message {
            id: row.get("id"),
            claim_id: row.get("claim_id"),
            attempt: action_id.zip(attempt_id),
            provider_key: row.get("provider_key"),
            headers: row.get("headers"),
            body: row.get("body"),
        }
    }
}

impl Message {
    /// The headers that go along, whoever receives it.
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        let stored = |name: &str| self.headers.as_ref()?.get(name)?.as_str().map(str::to_owned);
        // The provider's key where the message carries an action: the one name under which a repeat is recognised.
        let key = self.provider_key.map(|key| key.to_string()).or_else(|| stored("idempotency-key"));
        [
            ("idempotency-key", key),
            ("traceparent", stored("traceparent")),
            ("tracestate", stored("tracestate")),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
    }
}
