//! What relays call about messages that they have claimed: idem_outbox_ack, _ack_many, _nack, _renew, _redrive

use std::borrow::Cow;
use std::cell::Cell;

use idem_rules::action::{Action, Span, State, Time};
use idem_rules::error::{Code, Error, Result};
use idem_rules::outbox::{self as rules, ClaimId, Failed, Standing};
use idem_rules::transition::{Answer, Commit, Event, Fail, Proof, Step};
use pgrx::pg_sys::Datum;
use uuid::Uuid;

use super::attempt::{Brought, move_action, no_check, response, same_transaction, stored_text};
use crate::server::query;
use crate::server::user_table::Privilege;
use crate::server::{self, Call, Rows, Value};
use crate::session;
use crate::store::bound;
use crate::store::history::{self, Report};
use crate::store::ledger::{Entry, Ledger, Outcome};
use crate::store::lineage;
use crate::store::outbox::{Found, Outbox};

/// Characters of an error that are kept.
const ERROR_KEPT: usize = 1000;

/// Why a message is dead that says it carries an action, and does not.
pub(super) const NOT_ITS_ACTION: &str = "the ledger does not say that this message carries the action";

/// Whether the ledger says that `message` carries the action in this outbox. The message's own word is not enough:
/// whoever may write into an outbox could name any action, or copy another one's message, and end an attempt of
/// somebody else's.
pub(super) fn is_carrier(call: &Call, outbox: &Outbox, message: &Found, entry: &Entry) -> Result<bool> {
    let action = &entry.action;
    Ok((action.flags.carried || action.state.is_terminal())
        && lineage::is_carrier(call, entry.action_id, message.id(), outbox.table)?)
}

/// Whether a message is for a relay that is bound to tenants: it names no action, or one of theirs. Where nothing is on
/// record nobody knows.
pub(super) fn is_own(call: &Call, ledger: &Ledger, action_id: Option<Uuid>) -> Result<bool> {
    let Some(action_id) = action_id else { return Ok(true) };
    match ledger.find(action_id)? {
        Some(entry) => bound::sees(call, Some(entry.raw_tenant())),
        None => bound::sees(call, None),
    }
}

/// `idem_outbox_ack(outbox, id, claim_id, response, resource_id, external_request_id)`
pub fn idem_outbox_ack(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_outbox_ack()");
    let (id, claim_id) = (call.required_uuid(1)?, call.required_uuid(2)?);
    let (kept, too_large) = response(call, 3);
    stored_text(call, 4)?;
    let external_request_id = stored_text(call, 5)?;
    let resource_id = call.text(4)?;
    let outcome =
        Outcome { response: kept, response_too_large: too_large, external_request_id, ..Outcome::default() };
    let report =
        Report { resource_id: call.stored(4), external_request_id, response: kept, ..Report::default() };
    let brings = [3, 4, 5].iter().any(|n| call.stored(*n).is_some());
    let outbox = Outbox::open(call, Privilege::Manage)?;
    let done = query::as_owner(outbox.table, || {
        if !brings && !outbox.finish_plain(&[id], claim_id, server::clock()).is_empty() {
            return Ok("acked");
        }
        let Some(message) = outbox.find(&[id]).pop() else { return Ok("missing") };
        if brings && message.carries().is_none() {
            return Err(Error::new(
                Code::InvalidParameter,
                "the message carries no action that could keep a response",
            )
            .hint("Leave response, resource_id and external_request_id out."));
        }
        let brought = Brought { outcome, report, ..Brought::default() };
        acknowledge(call, &outbox, &message, claim_id, resource_id.as_deref(), brought)
    })?;
    Ok(call.value(Value::Text(Cow::Borrowed(done))))
}

/// `idem_outbox_ack_many(outbox, claim_id, ids)`
pub fn idem_outbox_ack_many(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_outbox_ack_many()");
    let (claim_id, ids) = (call.required_uuid(1)?, call.required_uuids(2)?);
    let outbox = Outbox::open(call, Privilege::Manage)?;
    let mut rows = Rows::begin(call)?;
    query::as_owner(outbox.table, || {
        let done = outbox.finish_plain(&ids, claim_id, server::clock());
        if done.len() == ids.len() {
            return ids.iter().try_for_each(|id| rows.add(outcome(*id, "acked")));
        }
        let rest: Vec<Uuid> = ids.iter().copied().filter(|id| !done.contains(id)).collect();
        let mut outcomes: Vec<(Uuid, &str)> = done.iter().map(|id| (*id, "acked")).collect();
        for message in outbox.find(&rest) {
            let acked = acknowledge(call, &outbox, &message, claim_id, None, Brought::default());
            // Refused by the rules before anything was stored: that is this message's outcome, not the batch's.
            let word = match acked {
                Err(error) if error.code == Code::LostAttempt => "lost",
                Err(error) if matches!(error.code, Code::IllegalMove | Code::NoSuchAction) => "refused",
                other => other?,
            };
            outcomes.push((message.id(), word));
        }
        answer_each(&mut rows, &ids, &outcomes)
    })?;
    Ok(rows.end())
}

fn outcome<'a>(id: Uuid, word: &'static str) -> [Value<'a>; 2] {
    [Value::Uuid(id), Value::Text(Cow::Borrowed(word))]
}

/// One row for each id, in the order in which they were given.
fn answer_each(rows: &mut Rows, ids: &[Uuid], outcomes: &[(Uuid, &'static str)]) -> Result<()> {
    ids.iter().try_for_each(|id| {
        let found = outcomes.iter().find(|(found, _)| found == id);
        rows.add(outcome(*id, found.map_or("missing", |(_, word)| word)))
    })
}

/// Finishes one locked message, and commits the action it carries.
fn acknowledge(
    call: &Call,
    outbox: &Outbox,
    message: &Found,
    claim_id: Uuid,
    resource_id: Option<&str>,
    brought: Brought,
) -> Result<&'static str> {
    match rules::standing(&message.message, message.claim_id(), claim_id) {
        Standing::Lost => return Ok("lost"),
        Standing::Repeated => return Ok("already_acked"),
        Standing::Current => {}
    }
    let mut word = "acked";
    if let Some(action_id) = message.carries() {
        let attempt_id = attempt_of(call, outbox, message, action_id)?;
        let event = |caller| Event::Commit(Commit { caller, resource_id, record_when_lost: true });
        let (step, _) = move_action(call, (action_id, Some(attempt_id)), event, same_transaction, brought)?;
        match step.answer {
            Answer::Superseded => {
                // Kept as evidence. What becomes of the message follows from what becomes of the action.
                if !message.message.dead {
                    let now = server::clock();
                    outbox.rest(message, rules::look_again(None, message.created_at(), now));
                }
                return Ok("superseded");
            }
            Answer::Discrepancy => word = "discrepancy",
            _ => session::ended(action_id),
        }
    }
    outbox.finish(message, server::clock());
    Ok(word)
}

/// The token of the attempt that the message's last claim was granted. It is not in the owner's table.
///
/// Errors: ID002, also for a message that does not carry the action.
fn attempt_of(call: &Call, outbox: &Outbox, message: &Found, action_id: Uuid) -> Result<Uuid> {
    let lost = || {
        Error::new(Code::LostAttempt, "the claim's attempt is not known any more")
            .hint("Hand over what the provider said with idem_add_evidence.")
    };
    let fence = message.fence().ok_or_else(lost)?;
    let entry = Ledger::open(call)?.find(action_id)?;
    if let Some(entry) = &entry
        && !is_carrier(call, outbox, message, entry)?
    {
        return Err(Error::new(Code::LostAttempt, NOT_ITS_ACTION).hint(
            "Messages get their action from idem_outbox_put: do not write carries or action_id yourself.",
        ));
    }
    let current = entry.filter(|entry| entry.action.fence == fence).and_then(|entry| entry.action.attempt_id);
    match current {
        Some(attempt_id) => Ok(attempt_id),
        None => history::attempt_with_fence(call, action_id, fence)?.ok_or_else(lost),
    }
}

/// `idem_outbox_nack(outbox, id, claim_id, error, proof, delay_seconds)`
pub fn idem_outbox_nack(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_outbox_nack()");
    let (id, claim_id) = (call.required_uuid(1)?, call.required_uuid(2)?);
    let error = call.text(3)?.map(|error| {
        let kept: String = error.chars().take(ERROR_KEPT).collect();
        server::text_datum(&kept)
    });
    let proof = call.text(4)?.map(|word| Proof::from_word(&word)).transpose()?;
    let delay = call.seconds(5)?;
    let outbox = Outbox::open(call, Privilege::Manage)?;
    let done = query::as_owner(outbox.table, || {
        let Some(message) = outbox.find(&[id]).pop() else { return Ok("missing") };
        match rules::standing(&message.message, message.claim_id(), claim_id) {
            Standing::Lost => return Ok("lost"),
            Standing::Repeated => return Ok("already_acked"),
            Standing::Current => {}
        }
        let before = &message.message;
        // Given back before, by this relay or because another came by: the answer stays what it was.
        let given_back = match before.dead {
            true => Some("dead"),
            false if before.lease_expires_at.is_none() => Some("retry"),
            false => None,
        };
        let random = server::random_fraction();
        let action = match (message.carries(), given_back) {
            (None, Some(word)) => return Ok(word),
            (None, None) => None,
            // What is said of the action counts all the same.
            (Some(action_id), _) => {
                let failed = attempt_of(call, &outbox, &message, action_id).and_then(|attempt_id| {
                    fail_action(call, (action_id, attempt_id), error, proof, delay, random)
                });
                match (failed, given_back) {
                    (Ok(_), Some("dead")) => return Ok("dead"),
                    (Ok((step, action)), Some(word))
                        if step.next.is_none() && !action.state.is_terminal() =>
                    {
                        return Ok(if action.state == State::Unknown { "waiting" } else { word });
                    }
                    (Ok((_, action)), _) => Some(action),
                    (Err(error), Some(word)) if proof.is_none() && is_over(&error) => return Ok(word),
                    (Err(error), _) => return Err(error),
                }
            }
        };
        let now = server::clock();
        let failed = rules::fail(&message.message, outbox.options.max_attempts, delay, random, now);
        let state = action.as_ref().map(|action| action.state);
        Ok(match (failed, state) {
            (Failed::Dead, _) | (_, Some(State::Failed | State::Rejected | State::Expired)) => {
                outbox.bury(&message, now, error);
                "dead"
            }
            (Failed::Retry(_), Some(State::Unknown)) => {
                outbox.fail(&message, rules::look_again(None, message.created_at(), now), error);
                "waiting"
            }
            (Failed::Retry(at), _) => {
                let due = action.and_then(|action| action.due_at);
                outbox.fail(&message, due.map_or(at, |due| due.max(at)), error);
                "retry"
            }
        })
    })?;
    Ok(call.value(Value::Text(Cow::Borrowed(done))))
}

/// True where the rules say that an attempt cannot move its action any more.
fn is_over(error: &Error) -> bool {
    matches!(error.code, Code::LostAttempt | Code::IllegalMove)
}

/// What a failed delivery means for the action: with a proof it had no effect, without one nobody knows.
fn fail_action(
    call: &Call,
    (action_id, attempt_id): (Uuid, Uuid),
    error: Option<Datum>,
    proof: Option<Proof>,
    retry_after: Option<Span>,
    random: f64,
) -> Result<(Step, Action)> {
    let outcome = Outcome { reason: error, ..Outcome::default() };
    let report = Report { note: error, ..Report::default() };
    let event = |caller| match proof {
        None => Event::MarkUnknown(caller),
        // Whether there is another try is for the message to say, and for the action's own count of attempts.
        Some(proof) => {
            Event::Fail(Fail { caller, proof, retryable: true, retry_after, new_provider_key: false, random })
        }
    };
    let brought = Brought { outcome, report, ..Brought::default() };
    let moved = move_action(call, (action_id, Some(attempt_id)), event, no_check, brought)?;
    session::ended(action_id);
    Ok(moved)
}

/// `idem_outbox_renew(outbox, claim_id, lease_seconds)`
pub fn idem_outbox_renew(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_outbox_renew()");
    let claim_id = call.required_uuid(1)?;
    let lease = rules::check_lease(call.seconds(2)?.ok_or_else(|| call.null(2))?)?;
    let outbox = Outbox::open(call, Privilege::Manage)?;
    let renewed = query::as_owner(outbox.table, || {
        let mut renewed = 0;
        for message in outbox.claimed(claim_id, ClaimId(claim_id).places()) {
            let until = match message.carries() {
                None => Some(server::clock().saturating_add(lease)),
                Some(action_id) => renew_action(call, &outbox, &message, action_id, lease)?,
            };
            if let Some(until) = until {
                outbox.renew(&message, until);
                renewed += 1;
            }
        }
        Ok(renewed)
    })?;
    Ok(call.value(Value::Int(renewed)))
}

/// Renews the lease of the attempt behind a message; `None` when the claim has lost it.
fn renew_action(
    call: &Call,
    outbox: &Outbox,
    message: &Found,
    action_id: Uuid,
    lease: Span,
) -> Result<Option<Time>> {
    let longest = Cell::new(lease);
    let renewed = attempt_of(call, outbox, message, action_id).and_then(|attempt_id| {
        move_action(
            call,
            (action_id, Some(attempt_id)),
            |caller| Event::Renew(caller, Some(lease.min(longest.get()))),
            |_, policy| {
                longest.set(policy.max_lease);
                Ok(())
            },
            Brought::default(),
        )
    });
    match renewed {
        Ok((Step { answer: Answer::Lease(until), .. }, _)) => Ok(Some(until)),
        Ok(_) => Ok(None),
        // One action that cannot be renewed must not let the claim's other messages lapse.
        Err(error) if is_over(&error) || matches!(error.code, Code::TooLate | Code::NoSuchAction) => Ok(None),
        Err(error) => Err(error),
    }
}

/// `idem_outbox_redrive(outbox, ids, skip)`
pub fn idem_outbox_redrive(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_outbox_redrive()");
    let ids = call.required_uuids(1)?;
    let skip = call.bool(2).unwrap_or(false);
    let outbox = Outbox::open(call, Privilege::Manage)?;
    let mut rows = Rows::begin(call)?;
    query::as_owner(outbox.table, || {
        let mut outcomes = Vec::new();
        let ledger = Ledger::open(call)?;
        for message in outbox.find(&ids) {
            // Another tenant's looks like none.
            if !is_own(call, &ledger, message.action_id())? {
                continue;
            }
            let word = match (message.message.dead && !message.message.delivered, skip) {
                (false, _) => "not_dead",
                (true, true) => {
                    if let Some(action_id) = message.carries()
                        && let Some(entry) = ledger.find(action_id)?
                        && is_carrier(call, &outbox, &message, &entry)?
                    {
                        let gone = (action_id, None);
                        move_action(call, gone, |_| Event::LetGo, no_check, Brought::default())?;
                    }
                    outbox.remove(&message);
                    "skipped"
                }
                (true, false) => {
                    outbox.redrive(&message, server::clock());
                    "redriven"
                }
            };
            outcomes.push((message.id(), word));
        }
        answer_each(&mut rows, &ids, &outcomes)
    })?;
    Ok(rows.end())
}
