//! idem_due

use std::borrow::Cow;

use idem_rules::error::Result;
use idem_rules::expiry::Queue;
use idem_rules::transition::{Decision, Event};
use pgrx::pg_sys::Datum;

use super::hold::holding;
use super::key_for_provider;
use super::pull::{Granted, Pull};
use crate::server::{self, Call, Rows, Value};
use crate::store::open::Place;
use crate::store::policy;

/// `idem_due(max, lease_seconds, action_type, tenant, worker)`
pub fn idem_due(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_due()");
    let pull = Pull::read(call)?;
    let mut granted = Vec::new();
    // What may be repeated although its outcome is open comes first: somebody began it already.
    for queue in [Queue::Reconciliation, Queue::Execution] {
        if pull.is_full(&granted) {
            break;
        }
        pull.open.each_due(queue, server::clock(), |place| {
            if pull.wants(&place)
                && (queue == Queue::Execution || may_repeat(call, &place)?)
                && holding(call, place.tenant(), place.action_type())?.is_none()
                && let Some(entry) = pull.entry(&place)?
            {
                if entry.request().is_some() {
                    granted.extend(pull.take(entry, Event::Reserve)?);
                } else if queue == Queue::Execution {
                    // Without its request nobody but its client can carry it out: the next call need not look at it.
                    pull.open.leave_to_client(&place);
                }
            }
            Ok(!pull.is_full(&granted))
        })?;
    }
    shown(call, &granted)
}

/// False for a type whose open outcomes are never repeated: its actions need not be looked at one by one.
fn may_repeat(call: &Call, place: &Place) -> Result<bool> {
    let policy = policy::current(call, &place.action_type_name()?)?;
    Ok(policy.class.repeats_freely() || policy.provider_key_window > 0 || policy.marks_dispatch)
}

fn shown(call: &Call, granted: &[Granted]) -> Result<Datum> {
    let mut rows = Rows::begin(call)?;
    let datum = |datum: Option<Datum>| Value::or_null(datum, Value::Datum);
    let word = |word: &'static str| Value::Text(Cow::Borrowed(word));
    for Granted { entry, action, attempt_id, marks_dispatch } in granted {
        let provider = match marks_dispatch {
            true => None,
            false => Some(key_for_provider(call, entry.action_id, action)?),
        };
        rows.add([
            Value::Bool(true),
            word(Decision::Execute.word()),
            Value::Uuid(entry.action_id),
            Value::Uuid(*attempt_id),
            Value::Big(action.fence),
            Value::Int(action.attempt),
            word(action.state.word()),
            Value::or_null(action.lease_expires_at, Value::Time),
            Value::Null,
            Value::Null,
            Value::Null,
            Value::or_null(action.resource_id.as_deref(), |id| Value::Text(Cow::Borrowed(id))),
            datum(entry.external_request_id()),
            datum(entry.error()),
            Value::or_null(provider, Value::Uuid),
            datum(entry.key()),
            datum(entry.tenant()),
            datum(entry.action_type_datum()),
            datum(entry.request()),
        ])?;
    }
    Ok(rows.end())
}
