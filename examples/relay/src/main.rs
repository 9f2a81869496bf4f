//! A reference relay: takes messages out of a pg_idem outbox and delivers them to a webhook (Standard Webhooks).
//!
//! Run as many as you like. Each waits for NOTIFY where the outbox has a channel, and looks every few seconds in any
//! case. SIGTERM and SIGINT let it finish the message in hand. One that dies leaves its messages to the others, which
//! deliver them again under the same `webhook-id` once the lease is over: receivers use `idem_inbox_accept`.

mod settings;
mod webhook;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, watch};
use tokio_postgres::{AsyncMessage, Client, Error, NoTls, Row};
use uuid::Uuid;

use settings::Settings;
use webhook::{Delivery, Webhook};

/// The body is made by the database, so that it is the same, byte for byte, at every delivery.
const CLAIM: &str = "SELECT id, claim_id, attempt_id, action_id, provider_key, headers, \
    jsonb_build_object('type', type, 'timestamp', created_at, 'data', payload)::text AS body \
    FROM idem_outbox_claim($1, $2, $3, $4)";

/// A message in this relay's hands.
struct Message {
    id: Uuid,
    claim_id: Uuid,
    /// The action it carries, and the attempt that this relay was granted.
    attempt: Option<(Uuid, Uuid)>,
    provider_key: Option<Uuid>,
    headers: Option<serde_json::Value>,
    body: String,
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

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let settings = match Settings::read() {
        Ok(settings) => settings,
        Err(problem) => {
            eprintln!("relay: {problem}");
            std::process::exit(2);
        }
    };
    let webhook = Webhook::new(&settings);
    let (stop, mut stopping) = watch::channel(false);
    tokio::spawn(async move {
        let mut terminate = signal(SignalKind::terminate()).expect("signals can be handled");
        tokio::select! { _ = terminate.recv() => {}, _ = tokio::signal::ctrl_c() => {} }
        let _ = stop.send(true);
    });
    while !*stopping.borrow() {
        if let Err(error) = serve(&settings, &webhook, &mut stopping).await {
            eprintln!("relay: {error}; connecting again");
            tokio::select! { _ = tokio::time::sleep(Duration::from_secs(1)) => {}, _ = stopping.changed() => {} }
        }
    }
}

/// Relays over one connection until it breaks or the relay has to stop.
async fn serve(
    settings: &Settings,
    webhook: &Webhook,
    stopping: &mut watch::Receiver<bool>,
) -> Result<(), Error> {
    let (client, mut connection) = tokio_postgres::connect(&settings.database, NoTls).await?;
    let news = Arc::new(Notify::new());
    let told = Arc::clone(&news);
    tokio::spawn(async move {
        while let Some(message) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
            match message {
                Ok(AsyncMessage::Notification(_)) => told.notify_one(),
                Ok(_) => {}
                Err(_) => break,
            }
        }
        // Whoever waits finds out at his next statement that the connection is gone.
        told.notify_one();
    });
    if let Some(channel) = &settings.channel {
        client.batch_execute(&format!("LISTEN \"{}\"", channel.replace('"', "\"\""))).await?;
    }
    loop {
        let arguments: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
            [&settings.outbox, &settings.batch, &settings.lease, &settings.name];
        let began = Instant::now();
        let claimed: Vec<Message> =
            client.query(CLAIM, &arguments).await?.iter().map(Message::from).collect();
        let mut renewed = began;
        for message in &claimed {
            // Messages that are not begun come back to the others when the lease is over.
            if *stopping.borrow() {
                return Ok(());
            }
            if renewed.elapsed().as_secs_f64() > settings.lease / 3.0 {
                renewed = Instant::now();
                let renew = "SELECT idem_outbox_renew($1, $2, $3)";
                client.query_one(renew, &[&settings.outbox, &message.claim_id, &settings.lease]).await?;
            }
            relay(settings, webhook, &client, message).await?;
        }
        if claimed.is_empty() {
            tokio::select! {
                _ = news.notified() => {}
                _ = tokio::time::sleep(settings.poll) => {}
                _ = stopping.changed() => {}
            }
        }
        if *stopping.borrow() {
            return Ok(());
        }
    }
}

/// Delivers one message and reports what came of it.
async fn relay(
    settings: &Settings,
    webhook: &Webhook,
    client: &Client,
    message: &Message,
) -> Result<(), Error> {
    let mut provider_key = message.provider_key;
    if let (Some((action_id, attempt_id)), None) = (message.attempt, provider_key) {
        // The type marks its dispatch: this is the last gate, and the only place the key comes from.
        match client.query_one("SELECT idem_dispatch($1, $2)", &[&action_id, &attempt_id]).await {
            Ok(row) => provider_key = row.get(0),
            Err(error) if error.as_db_error().is_some() => {
                return nack(settings, client, message, "the dispatch was refused", Some("not_sent"), None)
                    .await;
            }
            Err(error) => return Err(error),
        }
    }
    let marked = message.provider_key.is_none();
    match webhook.deliver(message.id, provider_key, message.headers.as_ref(), &message.body).await {
        Delivery::Done(answer) => {
            settings.reach("delivered");
            let response = message.attempt.map(|_| answer);
            let ack = "SELECT idem_outbox_ack($1, $2, $3, $4)";
            let outcome: String = client
                .query_one(ack, &[&settings.outbox, &message.id, &message.claim_id, &response])
                .await?
                .get(0);
            if outcome != "acked" {
                eprintln!("relay: message {}: {outcome}", message.id);
            }
            settings.reach("acked");
            Ok(())
        }
        Delivery::Refused { why, retry_after } => {
            nack(settings, client, message, &why, Some("refused"), retry_after).await
        }
        Delivery::NotSent(why) => {
            // Once the dispatch is marked, "not sent" is no longer believed.
            let proof = (!(marked && message.attempt.is_some())).then_some("not_sent");
            nack(settings, client, message, &why, proof, None).await
        }
        Delivery::Unknown(why) => nack(settings, client, message, &why, None, None).await,
    }
}

async fn nack(
    settings: &Settings,
    client: &Client,
    message: &Message,
    why: &str,
    proof: Option<&str>,
    delay: Option<f64>,
) -> Result<(), Error> {
    let nack = "SELECT idem_outbox_nack($1, $2, $3, $4, $5, $6)";
    let row = client
        .query_one(nack, &[&settings.outbox, &message.id, &message.claim_id, &why, &proof, &delay])
        .await?;
    eprintln!("relay: message {}: {why}: {}", message.id, row.get::<_, String>(0));
    Ok(())
}
