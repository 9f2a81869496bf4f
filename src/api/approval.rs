//! idem_propose, idem_approve, idem_reject, idem_withdraw, idem_cancel

use idem_rules::action::State;
use idem_rules::error::{Code, Error, Result};
use idem_rules::identity::check_text;
use idem_rules::transition::{Approve, Event, Person};
use pgrx::pg_sys::Datum;

use super::attempt::{Brought, move_action, said, stored_text};
use super::fingerprint::digest_argument;
use super::reserve::{NAMES, propose};
use crate::server::{self, Call};
use crate::store::history::{self, Report};
use crate::store::ledger::Entry;

/// Parameters of idem_propose by place; before the proposer they are those of idem_reserve.
mod at {
    pub const PROPOSER: usize = 6;
    pub const FINGERPRINT: usize = 7;
    pub const TTL: usize = 8;
    pub const WORKFLOW_ID: usize = 9;
    pub const STORE_REQUEST: usize = 13;
}

/// A name given for a person. One of nothing but white space is none.
fn named(call: &Call, n: usize) -> Result<Option<Datum>> {
    let stored = stored_text(call, n)?;
    Ok(stored.filter(|_| call.text(n).is_ok_and(|name| name.is_some_and(|name| !name.trim().is_empty()))))
}

/// `idem_propose(key, request, tenant, action_type, actor, target, proposer, …)`
pub fn idem_propose(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_propose()");
    let proposer = named(call, at::PROPOSER)?;
    let mut arguments: Vec<Option<Datum>> = (0..at::PROPOSER).map(|n| call.stored(n)).collect();
    // What belongs to a grant is left out: attempt_id and lease, then wait, can_reconcile and worker.
    arguments.extend([call.stored(at::FINGERPRINT), None, None, call.stored(at::TTL), None, None, None]);
    arguments.extend((at::WORKFLOW_ID..=at::STORE_REQUEST).map(|n| call.stored(n)));
    propose(&call.with_arguments(&NAMES, &arguments), proposer)
}

/// `idem_approve(action_id, fingerprint, approver, valid_seconds, policy_version, note)`
pub fn idem_approve(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_approve()");
    let action_id = call.required_uuid(0)?;
    let fingerprint = digest_argument(call, 1)?.ok_or_else(|| call.null(1))?;
    let (valid, policy_version) = (call.seconds(3)?, call.int(4));
    let report = Report { name: named(call, 2)?, note: stored_text(call, 5)?, ..Report::default() };
    let name = call.text(2)?.filter(|_| report.name.is_some());
    let (role, session_role) = (call.recorded_as().name(), server::session_user_name());
    // The first proposal of an action stays what it was: nobody else's can come between this look and the row's.
    let proposer = history::proposer(call, action_id)?;
    let event = Event::Approve(Approve {
        fingerprint: &fingerprint,
        policy_version,
        valid,
        proposer: proposer.as_ref().map(|proposer| Person {
            role: &proposer.role,
            session_role: &proposer.session_role,
            name: proposer.name.as_deref(),
        }),
        approver: Person { role: &role, session_role: &session_role, name: name.as_deref() },
    });
    moved(call, event, request_is_there, report)
}

/// Nobody approves what he could not look at.
fn request_is_there(entry: &Entry) -> Result<()> {
    if entry.action.state != State::Proposed || entry.request().is_some() {
        return Ok(());
    }
    Err(Error::new(Code::WrongState, "the action's request is not stored any more")
        .hint("Have it reserved or proposed again: that shows the request in idem_proposals."))
}

/// Makes a move of an approver, or of who asked. No crash may take it back: it can take permission away.
fn moved(call: &Call, event: Event, check: impl Fn(&Entry) -> Result<()>, report: Report) -> Result<Datum> {
    server::refuse_as_somebody_else()?;
    let action_id = call.required_uuid(0)?;
    let brought = Brought { report, ..Brought::default() };
    let ids = (action_id, None);
    let (step, _) = move_action(call, ids, |_| event.clone(), |entry, _| check(entry), brought)?;
    server::force_sync_commit();
    Ok(said(call, &step))
}

/// The report of who says no: `(action_id, approver, note)`.
fn by_approver(call: &Call) -> Result<Report> {
    Ok(Report { name: named(call, 1)?, note: stored_text(call, 2)?, ..Report::default() })
}

/// `idem_reject(action_id, approver, note)`
pub fn idem_reject(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_reject()");
    moved(call, Event::Reject, |_| Ok(()), by_approver(call)?)
}

/// `idem_withdraw(action_id, approver, note)`
pub fn idem_withdraw(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_withdraw()");
    moved(call, Event::Withdraw, |_| Ok(()), by_approver(call)?)
}

/// `idem_cancel(action_id, note)`
pub fn idem_cancel(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_cancel()");
    check_text(call.name(1), call.text(1)?.as_deref())?;
    let report = Report { note: call.stored(1), ..Report::default() };
    moved(call, Event::Cancel, |_| Ok(()), report)
}
