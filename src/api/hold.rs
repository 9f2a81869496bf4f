//! idem_hold, idem_unhold, and what a hold says to a new effect

use std::borrow::Cow;
use std::rc::Rc;

use idem_rules::error::{Code, Error, Result};
use idem_rules::hold::{Hold, Scope, switched_off};
use idem_rules::identity::{check_action_type, check_tenant, check_text};
use pgrx::pg_sys::Datum;

use super::bind::{refuse_bound, refuse_foreign};
use crate::server::{self, Call, Value};
use crate::settings::{self, Mode};
use crate::store::hold;

/// What keeps an action of `tenant` and `action_type` from starting; texts in the database's encoding.
pub(super) fn holding(call: &Call, tenant: &[u8], action_type: &[u8]) -> Result<Option<Rc<Hold>>> {
    match settings::mode() {
        Mode::On => hold::covering(call, tenant, action_type),
        Mode::ReplayOnly => Ok(Some(Rc::new(Hold::Mode("replay_only")))),
        Mode::Off => Ok(Some(Rc::new(Hold::Mode("off")))),
    }
}

/// The rules' refusal of a held action, with who holds it.
pub(super) fn explained(error: Error, hold: Option<&Hold>) -> Error {
    match hold {
        Some(hold) if error.code == Code::Held => hold.refusal(),
        _ => error,
    }
}

/// Refuses a question that would be answered from the ledger, or would start something. Errors: ID008.
pub(super) fn refuse_when_off() -> Result<()> {
    if settings::mode() == Mode::Off { Err(switched_off()) } else { Ok(()) }
}

/// Refuses what begins something that no tenant or type is known of, unless the mode is on. Errors: ID008.
pub(super) fn refuse_unless_on() -> Result<()> {
    refuse_when_off()?;
    match settings::mode() {
        Mode::On => Ok(()),
        _ => Err(Hold::Mode("replay_only").refusal()),
    }
}

/// The two parameters that name a hold, checked.
fn named(call: &Call) -> Result<(Scope, Datum)> {
    let scope = Scope::from_word(&call.required_text(0)?)?;
    let value = call.required_text(1)?;
    match scope {
        Scope::Tenant => {
            check_tenant(Some(&value))?;
            refuse_foreign(call, call.raw(1))?;
        }
        Scope::ActionType => {
            check_action_type(Some(&value))?;
            refuse_bound(call)?;
        }
    }
    call.stored(1).map(|value| (scope, value)).ok_or_else(|| call.null(1))
}

fn changed(call: &Call, held: bool, note: Option<Datum>, word: &'static str) -> Result<Datum> {
    let (scope, value) = named(call)?;
    let written = hold::change(call, scope, value, held, note)?;
    // It takes permission away, or says who gave it back: no crash may forget it.
    server::force_sync_commit();
    let word = if written { word } else { "not_held" };
    Ok(call.value(Value::Text(Cow::Borrowed(word))))
}

/// `idem_hold(scope, value, note)`
pub fn idem_hold(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_hold()");
    check_text(call.name(2), Some(&call.required_text(2)?))?;
    changed(call, true, call.stored(2), "held")
}

/// `idem_unhold(scope, value)`
pub fn idem_unhold(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_unhold()");
    changed(call, false, None, "unheld")
}
