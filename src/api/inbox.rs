//! idem_inbox_accept, idem_inbox_accept_many

use std::borrow::Cow;

use idem_rules::action::Time;
use idem_rules::error::{Code, Error, Result};
use idem_rules::identity::{check_tenant, check_text};
use idem_rules::inbox::{Accepted, seen_before};
use pgrx::pg_sys::Datum;

use super::bind::refuse_foreign;
use super::fingerprint::digest;
use super::hold::{holding, refuse_when_off};
use crate::server::{self, Call, Jsonb, Rows, Value};
use crate::session::{self, Message};
use crate::store::inbox::{Inbox, Name};

/// `idem_inbox_accept(consumer, message_id, payload, tenant)`
pub fn idem_inbox_accept(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_inbox_accept()");
    let (consumer, tenant) = whose(call)?;
    let message_id = call.required_text(1)?;
    check_id(call.name(1), &message_id)?;
    let name = Name { message_id: call.stored(1).ok_or_else(|| call.null(1))?, consumer, tenant };
    let (accepted, at) = accept(call, &Inbox::open(call)?, name, call.jsonb(2))?;
    // Rolled back to a savepoint, the acceptance is gone and this is not: then the message is new again, and whatever is
    // reserved in the meantime was led to by it all the same.
    if accepted == Accepted::New {
        let consumer = call.required_text(0)?.into_owned();
        session::accepted(Message { message_id: message_id.into_owned(), consumer });
    }
    call.row([Value::Text(Cow::Borrowed(accepted.word())), Value::Time(at)])
}

/// `idem_inbox_accept_many(consumer, message_ids, payloads, tenant)`
pub fn idem_inbox_accept_many(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_inbox_accept_many()");
    let (consumer, tenant) = whose(call)?;
    call.stored(1).ok_or_else(|| call.null(1))?;
    let ids =
        call.texts(1)?.into_iter().map(|id| id.ok_or_else(|| call.null(1))).collect::<Result<Vec<_>>>()?;
    ids.iter().try_for_each(|id| check_id(call.name(1), id))?;
    let payloads = match call.stored(2) {
        None => vec![None; ids.len()],
        Some(_) => call.jsonbs(2)?,
    };
    if payloads.len() != ids.len() {
        let message = format!("{} payloads for {} message_ids", payloads.len(), ids.len());
        return Err(
            Error::new(Code::InvalidParameter, message).hint("Pass one for each, NULL where there is none.")
        );
    }
    let mut rows = Rows::begin(call)?;
    let inbox = Inbox::open(call)?;
    // In one order for everybody, so that two batches cannot wait for each other.
    let mut order: Vec<usize> = (0..ids.len()).collect();
    order.sort_by(|a, b| ids[*a].cmp(&ids[*b]).then(a.cmp(b)));
    let mut answers = vec![None; ids.len()];
    for n in order {
        let name = Name { message_id: server::text_datum(&ids[n]), consumer, tenant };
        answers[n] = Some(accept(call, &inbox, name, payloads[n])?);
    }
    for (id, (accepted, at)) in ids.iter().zip(answers.into_iter().flatten()) {
        rows.add([
            Value::Text(Cow::Borrowed(id)),
            Value::Text(Cow::Borrowed(accepted.word())),
            Value::Time(at),
        ])?;
    }
    Ok(rows.end())
}

/// The consumer and the tenant, checked, as stored.
fn whose(call: &Call) -> Result<(Datum, Datum)> {
    refuse_when_off()?;
    check_id(call.name(0), &call.required_text(0)?)?;
    check_tenant(call.text(3)?.as_deref())?;
    refuse_foreign(call, call.raw(3))?;
    let stored = |n| call.stored(n).ok_or_else(|| call.null(n));
    Ok((stored(0)?, stored(3)?))
}

fn check_id(name: &str, value: &str) -> Result<()> {
    match check_text(name, Some(value))? {
        Some("") => Err(Error::new(Code::InvalidParameter, format!("{name} must not be empty"))
            .hint("Pass the name that is the same at every delivery.")),
        _ => Ok(()),
    }
}

fn accept(call: &Call, inbox: &Inbox, name: Name, payload: Option<Jsonb>) -> Result<(Accepted, Time)> {
    let payload = payload.map(digest).transpose()?;
    let payload = payload.as_ref().map(<[u8; 32]>::as_slice);
    let now = server::clock();
    // What was accepted is answered; what is new would be handled now. The error takes its row back.
    let hold = holding(call, call.raw(3), b"")?;
    Ok(match (inbox.remember(name, now, payload)?, hold) {
        (None, Some(hold)) => return Err(hold.refusal()),
        (None, None) => (Accepted::New, now),
        (Some(seen), _) => (seen_before(seen.payload.as_deref(), payload), seen.first_seen_at),
    })
}
