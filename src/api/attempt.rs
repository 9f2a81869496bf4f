//! idem_commit, idem_mark_unknown, idem_fail, idem_renew, idem_release

use std::borrow::Cow;

use idem_rules::action::{Action, State};
use idem_rules::attempt::UNMARKED;
use idem_rules::durable::must_last;
use idem_rules::error::{Code, Error, Result};
use idem_rules::identity::check_text;
use idem_rules::policy::{Effect, Policy};
use idem_rules::transition::{Answer, Caller, Commit, Event, Fail, Proof, Step, no_such_action, transition};
use pgrx::pg_sys::Datum;
use uuid::Uuid;

use super::Judged;
use super::bind::find_own;
use crate::server::{self, Call, Changed, Value};
use crate::session;
use crate::settings::{self, SameTransaction};
use crate::store::apply::{apply, hold};
use crate::store::history::{self, Kind, Report};
use crate::store::ledger::{Entry, Ledger, Outcome};
use crate::store::open::OpenActions;

/// What a call brings to be stored with the step it leads to.
#[derive(Default, Clone, Copy)]
pub(super) struct Brought {
    pub outcome: Outcome,
    pub report: Report,
    /// A person decides: this stands above what was stored before.
    pub by_a_person: bool,
    /// A report that any attempt may make, a former reconciling one too.
    pub by_any_attempt: bool,
}

/// Judges what `event` makes of an existing action, stores it, and returns the step and the action after it.
///
/// `event` gets the caller's standing; `check` can still refuse with the row and its policy in sight.
pub(super) fn move_action<'a>(
    call: &Call,
    (action_id, attempt_id): (Uuid, Option<Uuid>),
    event: impl Fn(Caller) -> Event<'a>,
    check: impl Fn(&Entry, &Policy) -> Result<()>,
    brought: Brought,
) -> Result<(Step, Action)> {
    loop {
        server::serve_interrupts();
        let ledger = Ledger::open(call)?;
        let entry = find_own(call, &ledger, action_id)?.ok_or_else(no_such_action)?;
        let kind = if brought.by_any_attempt { Kind::Any } else { Kind::Effect };
        let caller = standing(call, &entry, attempt_id.unwrap_or_default(), kind)?;
        let judged = Judged::read(call, &entry.action, &entry.action_type()?)?;
        check(&entry, &judged.granted)?;
        let event = event(caller);
        if event.permits() {
            match hold(call, &ledger, &entry)? {
                Changed::Done => {}
                Changed::Gone if server::repeatable_read() => return Err(server::serialization()),
                Changed::Gone => continue,
                Changed::Busy => {
                    ledger.lock(&entry, true);
                    OpenActions::open(call)?.wait(action_id);
                    continue;
                }
            }
        }
        let now = server::clock();
        let step = transition(Some(&entry.action), &event, judged.policies(), now)?;
        let after = step.next.clone().unwrap_or_else(|| entry.action.clone());
        if step.next.is_none() && step.events.is_empty() {
            return Ok((step, after));
        }
        match apply(call, &ledger, &entry, &step, kept(&entry, &step, brought), brought.report, now)? {
            Changed::Done => {
                if must_last(&step, &entry.action, &judged.granted) {
                    server::force_sync_commit();
                }
                return Ok((step, after));
            }
            // Whoever holds the row decides first; the next look sees what became of it.
            Changed::Busy => {
                ledger.lock(&entry, true);
            }
            Changed::Gone if server::repeatable_read() => return Err(server::serialization()),
            Changed::Gone => {}
        }
    }
}

/// What of a call's content becomes the action's own: nothing of a report that does not move it.
fn kept(entry: &Entry, step: &Step, brought: Brought) -> Outcome {
    let reported = matches!(step.answer, Answer::Superseded | Answer::Discrepancy | Answer::Recorded);
    let ended = entry.action.state.is_terminal() && !brought.by_a_person;
    if reported || ended { Outcome::default() } else { brought.outcome }
}

fn standing(call: &Call, entry: &Entry, attempt_id: Uuid, kind: Kind) -> Result<Caller> {
    let action = &entry.action;
    let known = action.attempt_id == Some(attempt_id) || action.reconcile_id == Some(attempt_id);
    let earlier = !known && history::has_attempt(call, entry.action_id, attempt_id, kind)?;
    Ok(Caller { attempt_id, earlier })
}

/// The two ids every ending call starts with.
pub(super) fn ids(call: &Call) -> Result<(Uuid, Option<Uuid>)> {
    Ok((call.required_uuid(0)?, Some(call.required_uuid(1)?)))
}

/// Nothing to check but what the rules do.
pub(super) fn no_check(_: &Entry, _: &Policy) -> Result<()> {
    Ok(())
}

/// Checks a text argument's limits and gives it as it is stored.
pub(super) fn stored_text(call: &Call, n: usize) -> Result<Option<Datum>> {
    check_text(call.name(n), call.text(n)?.as_deref())?;
    Ok(call.stored(n))
}

/// A response argument as far as it is kept, and whether it was left out for its size.
pub(super) fn response(call: &Call, n: usize) -> (Option<Datum>, bool) {
    let response = call.jsonb(n);
    let too_large = response.is_some_and(|response| response.bytes.len() > settings::max_response_size());
    (response.filter(|_| !too_large).map(|response| response.datum), too_large)
}

fn word(call: &Call, word: &'static str) -> Datum {
    call.value(Value::Text(Cow::Borrowed(word)))
}

/// The answer of an ending call in the words users see.
pub(super) fn answered(call: &Call, action_id: Uuid, step: &Step) -> Datum {
    match step.answer {
        // A report ends nothing.
        Answer::Superseded | Answer::Discrepancy | Answer::Recorded => {}
        _ => session::ended(action_id),
    }
    said(call, step)
}

/// The answer in the words users see.
pub(super) fn said(call: &Call, step: &Step) -> Datum {
    word(
        call,
        match step.answer {
            Answer::Committed => "committed",
            Answer::AlreadyCommitted => "already_committed",
            Answer::Superseded => "superseded",
            Answer::Discrepancy => "discrepancy",
            Answer::Recorded => "recorded",
            Answer::Stopped => "stopped",
            Answer::TooLate => "too_late",
            Answer::State(state) => state.word(),
            Answer::Decided(decision, _) => decision.word(),
            Answer::Lease(_) | Answer::Nothing | Answer::Remove => "unchanged",
        },
    )
}

/// `idem_commit(action_id, attempt_id, response, resource_id, external_request_id, on_lost)`
pub fn idem_commit(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_commit()");
    let ids = ids(call)?;
    let (kept, too_large) = response(call, 2);
    let resource_id = call.text(3)?;
    check_text(call.name(3), resource_id.as_deref())?;
    let external_request_id = stored_text(call, 4)?;
    let record_when_lost = match call.text(5)?.as_deref() {
        None | Some("error") => false,
        Some("record") => true,
        Some(_) => {
            return Err(Error::new(Code::InvalidParameter, "on_lost must be error or record")
                .hint("error raises when the action was lost; record keeps the result as evidence."));
        }
    };
    let brought = Brought {
        outcome: Outcome {
            response: kept,
            response_too_large: too_large,
            external_request_id,
            ..Outcome::default()
        },
        report: Report {
            resource_id: call.stored(3),
            external_request_id,
            response: kept,
            ..Report::default()
        },
        ..Brought::default()
    };
    let event =
        |caller| Event::Commit(Commit { caller, resource_id: resource_id.as_deref(), record_when_lost });
    let (step, _) = move_action(call, ids, event, same_transaction, brought)?;
    if step.events.contains(&UNMARKED) {
        server::warn(
            &Error::new(Code::Warning, "the attempt was committed without having marked its dispatch").hint(
                "Call idem_dispatch before the effect: it is the gate that a withdrawal or a hold can close.",
            ),
        );
    }
    Ok(answered(call, ids.0, &step))
}

/// An external effect belongs between two transactions: its reservation must be committed before the call.
pub(super) fn same_transaction(entry: &Entry, policy: &Policy) -> Result<()> {
    let action = &entry.action;
    let here = action.state == State::Started
        && session::was_granted_here(entry.action_id, action.attempt_id, entry.writer());
    if !here || policy.effect != Effect::External {
        return Ok(());
    }
    let refuse = policy.marks_dispatch
        || policy.class.needs_two_transactions()
        || settings::same_transaction() == SameTransaction::Error;
    if !refuse && settings::same_transaction() == SameTransaction::Allow {
        return Ok(());
    }
    let code = if refuse { Code::WrongState } else { Code::Warning };
    let said = Error::new(code, "an external action was committed in the transaction that reserved it")
        .hint("COMMIT before the call, then idem_commit; or register the type with effect => 'local'.");
    if refuse {
        return Err(said);
    }
    server::warn(&said);
    Ok(())
}

/// `idem_mark_unknown(action_id, attempt_id, reason, external_request_id)`
pub fn idem_mark_unknown(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_mark_unknown()");
    let ids = ids(call)?;
    let outcome = Outcome {
        reason: stored_text(call, 2)?,
        external_request_id: stored_text(call, 3)?,
        ..Outcome::default()
    };
    let report = Report {
        note: outcome.reason,
        external_request_id: outcome.external_request_id,
        ..Report::default()
    };
    let (step, _) = move_action(
        call,
        ids,
        Event::MarkUnknown,
        no_check,
        Brought { outcome, report, ..Brought::default() },
    )?;
    Ok(answered(call, ids.0, &step))
}

/// `idem_fail(action_id, attempt_id, proof, error, retryable, retry_after_seconds, new_provider_key)`
pub fn idem_fail(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_fail()");
    let ids = ids(call)?;
    let proof = Proof::from_word(&call.required_text(2)?)?;
    let retryable = call.bool(4).unwrap_or(false);
    let retry_after = call.seconds(5)?;
    let new_provider_key = call.bool(6).unwrap_or(false);
    let random = server::random_fraction();
    let outcome = Outcome { error: call.stored(3), ..Outcome::default() };
    let event =
        |caller| Event::Fail(Fail { caller, proof, retryable, retry_after, new_provider_key, random });
    let (step, _) = move_action(call, ids, event, no_check, Brought { outcome, ..Brought::default() })?;
    Ok(answered(call, ids.0, &step))
}

/// `idem_renew(action_id, attempt_id, lease_seconds)`
pub fn idem_renew(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_renew()");
    let ids = ids(call)?;
    let lease = call.seconds(2)?;
    let (step, _) =
        move_action(call, ids, |caller| Event::Renew(caller, lease), no_check, Brought::default())?;
    match step.answer {
        Answer::Lease(until) => Ok(call.value(Value::Time(until))),
        _ => Err(Error::new(Code::Corrupted, "the rules gave no lease")),
    }
}

/// `idem_release(action_id, attempt_id)`
pub fn idem_release(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_release()");
    let ids = ids(call)?;
    let (step, _) = move_action(call, ids, Event::Release, no_check, Brought::default())?;
    Ok(answered(call, ids.0, &step))
}
