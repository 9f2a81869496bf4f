//! idem_status, idem_status_by_id

use std::borrow::Cow;

use idem_rules::action::State;
use idem_rules::error::Result;
use idem_rules::identity::{action_id, check_key, check_tenant};
use pgrx::pg_sys::Datum;
use uuid::Uuid;

use super::bind::{find_own, refuse_foreign};
use crate::server::{self, Call, Value};
use crate::store::ledger::{Entry, Ledger, misnamed};

/// `idem_status(key, tenant)`
pub fn idem_status(call: &Call) -> Result<Datum> {
    let (key, tenant) = (call.text(0)?, call.text(1)?);
    let id = action_id(check_tenant(tenant.as_deref())?, check_key(key.as_deref())?);
    refuse_foreign(call, call.raw(1))?;
    let entry = Ledger::open(call)?.find(id)?;
    match entry {
        Some(entry) if !entry.is_named(call.raw(1), call.raw(0)) => Err(misnamed(id)),
        entry => shown(call, id, entry),
    }
}

/// `idem_status_by_id(action_id)`
pub fn idem_status_by_id(call: &Call) -> Result<Datum> {
    let id = call.required_uuid(0)?;
    let entry = find_own(call, &Ledger::open(call)?, id)?;
    shown(call, id, entry)
}

/// One row in any case; without an action only its id is set.
fn shown(call: &Call, id: Uuid, entry: Option<Entry>) -> Result<Datum> {
    let now = server::clock();
    let state = entry.as_ref().map(|entry| entry.action.state_at(now));
    let kept = entry.as_ref().filter(|_| state != Some(State::Expired));
    let action = kept.map(|entry| &entry.action);
    let datum = |datum: Option<Datum>| Value::or_null(datum, Value::Datum);
    let time = |time| Value::or_null(time, Value::Time);
    let action_type = entry.as_ref().map(Entry::action_type).transpose()?;
    call.row([
        Value::Uuid(id),
        Value::or_null(state, |state| Value::Text(Cow::Borrowed(state.word()))),
        Value::or_null(action_type, |name| Value::Text(Cow::Owned(name))),
        Value::or_null(entry.as_ref(), |entry| Value::Int(entry.action.attempt)),
        time(action.and_then(|action| match action.state {
            State::Started => action.lease_expires_at,
            State::Unknown => action.reconcile_lease_expires_at,
            _ => None,
        })),
        time(action.and_then(|action| action.due_at)),
        time(action.and_then(|action| action.deadline_at)),
        Value::or_null(action, |action| Value::Bool(action.needs_review(now))),
        Value::or_null(action, |action| Value::Bool(action.flags.discrepancy)),
        datum(kept.filter(|_| state == Some(State::Committed)).and_then(Entry::response)),
        Value::or_null(entry.as_ref().and_then(|entry| entry.response_state(now)), |word| {
            Value::Text(word.into())
        }),
        Value::or_null(action.and_then(|action| action.resource_id.as_deref()), |id| Value::Text(id.into())),
        datum(kept.and_then(Entry::external_request_id)),
        datum(kept.and_then(Entry::error)),
        datum(kept.and_then(Entry::reason)),
        time(entry.as_ref().map(|entry| entry.action.created_at)),
        time(entry.as_ref().and_then(|entry| entry.action.ended_at)),
        time(entry.as_ref().and_then(|entry| entry.action.expires_at)),
    ])
}
