//! A reference relay: takes messages out of a pg_idem outbox and delivers them to a webhook (Standard Webhooks), to NATS
//! JetStream or to RabbitMQ.
//!
//! Run as many as you like. Each waits for NOTIFY where the outbox has a channel, and looks every few seconds in any
//! case. SIGTERM and SIGINT let it finish what it has claimed. One that dies leaves its messages to the others, which
//! deliver them again under the same id once the lease is over: receivers use `idem_inbox_accept`.

mod database;
mod message;
mod nats;
mod rabbitmq;
mod settings;
mod sink;
mod webhook;

use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_postgres::{Client, Error};

use database::Database;
use message::{CLAIM, Message};
use settings::Settings;
use sink::{Delivery, Sink};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let settings = match Settings::read() {
        Ok(settings) => settings,
        Err(problem) => {
            eprintln!("relay: {problem}");
            std::process::exit(2);
        }
    };
    let database = Database::new(settings.database.clone());
    let mut sink = Sink::new(&settings);
    let (stop, mut stopping) = watch::channel(false);
    tokio::spawn(async move {
        let mut terminate = signal(SignalKind::terminate()).expect("signals can be handled");
        tokio::select! { _ = terminate.recv() => {}, _ = tokio::signal::ctrl_c() => {} }
        let _ = stop.send(true);
    });
    while !*stopping.borrow() {
        if let Err(error) = serve(&settings, &database, &mut sink, &mut stopping).await {
            eprintln!("relay: {}; connecting again", in_full(&error));
            tokio::select! { _ = tokio::time::sleep(Duration::from_secs(1)) => {}, _ = stopping.changed() => {} }
        }
    }
}

/// Relays over one connection until it breaks or the relay has to stop.
async fn serve(
    settings: &Settings,
    database: &Database,
    sink: &mut Sink,
    stopping: &mut watch::Receiver<bool>,
) -> Result<(), Error> {
    let (client, news) = database.connect().await?;
    if let Some(channel) = &settings.channel {
        client.batch_execute(&format!("LISTEN \"{}\"", channel.replace('"', "\"\""))).await?;
    }
    let lease = settings.lease.as_secs_f64();
    loop {
        let connected = tokio::select! { connected = sink.connect() => connected, _ = stopping.changed() => return Ok(()) };
        if let Err(problem) = connected {
            eprintln!("relay: {problem}; connecting again");
            tokio::select! { _ = tokio::time::sleep(settings.poll) => {}, _ = stopping.changed() => return Ok(()) }
            continue;
        }
        let arguments: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
            [&settings.outbox, &settings.batch, &lease, &settings.name];
        let claimed: Vec<Message> =
            client.query(CLAIM, &arguments).await?.iter().map(Message::from).collect();
        let none = claimed.is_empty();
        // All at once, and each has a third of the lease. Of an ordered outbox no two are of one key: the next one is claimed
        // when this one is acknowledged.
        try_join_all(claimed.into_iter().map(async |message| {
            let id = message.id;
            match relay(settings, sink, &client, message).await {
                // The database refused what was said of this message. It comes again; the others go on.
                Err(error) if error.as_db_error().is_some() && !client.is_closed() => {
                    eprintln!("relay: message {id}: {}", in_full(&error));
                    Ok(())
                }
                said => said,
            }
        }))
        .await?;
        if none {
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
async fn relay(settings: &Settings, sink: &Sink, client: &Client, mut message: Message) -> Result<(), Error> {
    let mut marked = false;
    if let (Some((action_id, attempt_id)), None) = (message.attempt, message.provider_key) {
        // The type marks its dispatch: this is the last gate, and the only place the key comes from.
        match client.query_one("SELECT idem_dispatch($1, $2)", &[&action_id, &attempt_id]).await {
            Ok(row) => (message.provider_key, marked) = (row.get(0), true),
            Err(error) if error.as_db_error().is_some() => {
                return nack(settings, client, &message, "the dispatch was refused", Some("not_sent"), None)
                    .await;
            }
            Err(error) => return Err(error),
        }
    }
    match sink.deliver(&message).await {
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
            nack(settings, client, &message, &why, Some("refused"), retry_after).await
        }
        Delivery::NotSent(why) => {
            // Once the dispatch is marked, "not sent" is no longer believed.
            let proof = (!marked).then_some("not_sent");
            nack(settings, client, &message, &why, proof, None).await
        }
        Delivery::Unknown(why) => nack(settings, client, &message, &why, None, None).await,
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

/// An error with its causes, which hold what the server said.
fn in_full(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |said, cause| format!("{said}: {cause}"))
}
