//! idem_compensate

use idem_rules::action::State;
use idem_rules::compensation::{check, is_live, is_open, refuse_replaced};
use idem_rules::error::{Code, Error, Result};
use idem_rules::identity::{action_id, check_key, check_tenant};
use idem_rules::transition::no_such_action;
use pgrx::pg_sys::Datum;
use uuid::Uuid;

use super::bind::find_own;
use super::reserve;
use crate::server::{self, Call, Changed, text_datum};
use crate::store::compensation::{self, Link};
use crate::store::count;
use crate::store::history::{self, Report};
use crate::store::ledger::{Entry, Ledger};
use crate::store::policy;

/// Parameters by place; those from `ACTOR` on are idem_reserve's, in its order.
mod at {
    pub const PARENT: usize = 0;
    pub const KEY: usize = 1;
    pub const REQUEST: usize = 2;
    pub const ACTION_TYPE: usize = 3;
    pub const TENANT: usize = 4;
    pub const ACTOR: usize = 5;
    pub const LAST: usize = 18;
}

/// `idem_compensate(parent, key, request, action_type, …)`
pub fn idem_compensate(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_compensate()");
    let parent_id = call.required_uuid(at::PARENT)?;
    let key = call.text(at::KEY)?;
    let key = check_key(key.as_deref())?;
    let ledger = Ledger::open(call)?;
    loop {
        server::serve_interrupts();
        let parent = find_own(call, &ledger, parent_id)?.ok_or_else(no_such_action)?;
        let tenant = parent.tenant_name()?;
        if call.text(at::TENANT)?.is_some_and(|given| given != tenant) {
            return Err(Error::new(
                Code::InvalidParameter,
                "tenant is not the one of the action to compensate",
            )
            .hint("Leave it out: a compensation belongs to its parent's tenant."));
        }
        let child_id = action_id(check_tenant(Some(&tenant))?, key);
        if child_id == parent_id {
            return Err(Error::new(Code::InvalidParameter, "an action cannot compensate itself")
                .hint("Give the compensation a key of its own."));
        }
        match compensation::of(call, child_id)? {
            Some(link) if link.parent_id != parent_id => {
                return Err(Error::new(
                    Code::InvalidParameter,
                    "the key is that of another action's compensation",
                )
                .hint("Give each compensation a key of its own, made from its parent's."));
            }
            Some(_) => {
                carry_on(&ledger, &parent, child_id)?;
                return reserve_child(call, &parent);
            }
            None => {}
        }
        // Nobody decides on the parent, or compensates it as well, until this transaction ends.
        match ledger.lock(&parent, true) {
            Changed::Done => {}
            _ if server::repeatable_read() => return Err(server::serialization()),
            _ => continue,
        }
        if ledger.find(child_id)?.is_some() {
            return Err(Error::new(
                Code::InvalidParameter,
                "the key is that of an action that compensates nothing",
            )
            .hint("Give the compensation a key of its own."));
        }
        if begin(call, &ledger, &parent, child_id)? {
            let reserved = reserve_child(call, &parent)?;
            // Another transaction may have been reserving the key for something else: no tie to that.
            let child = ledger.find(child_id)?;
            if !child.is_some_and(|child| server::is_current_transaction(child.writer())) {
                return Err(server::serialization());
            }
            return Ok(reserved);
        }
    }
}

/// Refuses to carry on a compensation whose parent turned out not to have happened.
fn carry_on(ledger: &Ledger, parent: &Entry, child_id: Uuid) -> Result<()> {
    let open = ledger.find(child_id)?.is_some_and(|child| !child.action.state.is_terminal());
    match open && parent.action.state != State::Committed {
        true => check(&parent.action, false, false, server::clock()),
        false => Ok(()),
    }
}

/// Ties a new compensation to its parent, whose row is held. False when the key is just being taken elsewhere.
fn begin(call: &Call, ledger: &Ledger, parent: &Entry, child_id: Uuid) -> Result<bool> {
    let parent_id = parent.action_id;
    let before = compensation::live(call, parent_id)?;
    let mut stands = false;
    if let Some(link) = &before {
        // One that is not there any more may have happened.
        stands = true;
        if let Some(child) = ledger.find(link.action_id)? {
            // Nobody gives it another chance meanwhile.
            match ledger.lock(&child, true) {
                Changed::Done => stands = is_live(child.action.state),
                _ if server::repeatable_read() => return Err(server::serialization()),
                _ => return Ok(false),
            }
        }
    }
    let now = server::clock();
    check(&parent.action, compensation::of(call, parent_id)?.is_some(), stands, now)?;
    if !compensation::tie(call, child_id, parent_id, before, now)? {
        return Ok(false);
    }
    let note = Some(text_datum(&child_id.to_string()));
    let report = Report { note, ..Report::default() };
    history::add_events(call, parent_id, parent.action.attempt, &["compensation"], report, now)?;
    count::add(call, "compensations.created", 1)?;
    Ok(true)
}

/// Does what idem_reserve does, for the tenant of the parent and, unless another is given, its type's compensation.
fn reserve_child(call: &Call, parent: &Entry) -> Result<Datum> {
    let action_type = match call.stored(at::ACTION_TYPE) {
        Some(given) => given,
        None => policy::compensation_type(call, &parent.action_type()?)?.ok_or_else(|| {
            Error::new(Code::InvalidParameter, "the action's type names no compensation_type").hint(
                "Pass action_type, or name one with idem_register_action_type(…, compensation_type => …).",
            )
        })?,
    };
    let mut arguments =
        vec![call.stored(at::KEY), call.stored(at::REQUEST), parent.tenant(), Some(action_type)];
    arguments.extend((at::ACTOR..=at::LAST).map(|n| call.stored(n)));
    reserve::idem_reserve(&call.with_arguments(&reserve::NAMES, &arguments))
}

/// Refuses to say that `parent` did not happen while a compensation of it can still be carried out. Holds the parent
/// from then on, so that none begins meanwhile.
pub(super) fn refuse_under_compensation(call: &Call, parent: &Entry) -> Result<()> {
    let ledger = Ledger::open(call)?;
    // One that has changed is looked at again before anything is stored.
    if ledger.lock(parent, true) != Changed::Done {
        return Ok(());
    }
    let Some(link) = compensation::live(call, parent.action_id)? else { return Ok(()) };
    match ledger.find_now(link.action_id)? {
        Some(child) if is_open(child.action.state) => {
            Err(Error::new(Code::IllegalMove, "a compensation of the action is under way")
                .detail(format!(
                    "The compensation is {}, action_id {}.",
                    child.action.state.word(),
                    link.action_id
                ))
                .hint("Cancel the compensation first with idem_cancel, or wait for its outcome."))
        }
        _ => Ok(()),
    }
}

/// Refuses another chance for a compensation that has been replaced. Holds it from then on, so that none takes its place
/// meanwhile.
pub(super) fn refuse_second(call: &Call, entry: &Entry) -> Result<()> {
    // One that has changed is looked at again before anything is stored.
    if Ledger::open(call)?.lock(entry, true) != Changed::Done {
        return Ok(());
    }
    match compensation::of(call, entry.action_id)? {
        Some(Link { is_live: false, .. }) => Err(refuse_replaced()),
        _ => Ok(()),
    }
}
