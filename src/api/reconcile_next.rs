//! idem_reconcile_next

use std::borrow::Cow;
use std::collections::HashMap;

use idem_rules::error::Result;
use idem_rules::expiry::Queue;
use idem_rules::transition::Event;
use pgrx::pg_sys::Datum;

use super::key_for_provider;
use super::pull::{Granted, Pull};
use crate::server::{self, Call, Rows, Value};
use crate::store::{history, policy};

/// `idem_reconcile_next(max, lease_seconds, action_type, tenant, worker)`
pub fn idem_reconcile_next(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_reconcile_next()");
    let pull = Pull::read(call)?;
    let mut granted = Vec::new();
    pull.open.each_due_by_visit(Queue::Reconciliation, server::clock(), |place| {
        if !pull.wants(&place) {
            return Ok(true);
        }
        if let Some(entry) = pull.entry(&place)? {
            granted.extend(pull.take(entry, Event::Reconcile)?);
        }
        Ok(!pull.is_full(&granted))
    })?;
    shown(call, &granted)
}

fn shown(call: &Call, granted: &[Granted]) -> Result<Datum> {
    let mut rows = Rows::begin(call)?;
    let mut hints = HashMap::new();
    let datum = |datum: Option<Datum>| Value::or_null(datum, Value::Datum);
    for Granted { entry, action, attempt_id, .. } in granted {
        let action_type = entry.action_type()?;
        if !hints.contains_key(&action_type) {
            hints.insert(action_type.clone(), policy::lookup_hint(call, &action_type)?);
        }
        let hint = hints.get(&action_type).and_then(Option::as_deref);
        rows.add([
            Value::Uuid(entry.action_id),
            Value::Uuid(*attempt_id),
            Value::Big(action.fence),
            Value::or_null(action.reconcile_lease_expires_at, Value::Time),
            datum(entry.tenant()),
            datum(entry.key()),
            datum(entry.action_type_datum()),
            datum(entry.actor()),
            datum(entry.target()),
            Value::Bytes(&action.fingerprint),
            Value::Int(action.attempt),
            Value::Uuid(key_for_provider(call, entry.action_id, action)?),
            datum(entry.external_request_id()),
            datum(entry.reason()),
            Value::or_null(history::findings(call, entry.action_id)?, Value::Json),
            Value::Int(action.probes),
            Value::or_null(action.deadline_at, Value::Time),
            Value::or_null(hint, |hint| Value::Text(Cow::Borrowed(hint))),
        ])?;
    }
    Ok(rows.end())
}
