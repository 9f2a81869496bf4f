//! How an attempt ends: commit, mark_unknown, fail, renew, release; and its last gate, dispatch.

use crate::action::{Action, Flags, Span, State, Time};
use crate::approval::{Approval, approval, never_again};
use crate::error::{Code, Error, Result};
use crate::expiry::end;
use crate::lease::{ended, is_dispatched, may_repeat, reconciler_ended, to_unknown, window_end};
use crate::policy::Policies;
use crate::reconcile::evidence_kept;
use crate::reserve::held;
use crate::transition::{Answer, Caller, Commit, Fail, Proof, Standing, Step};

/// The history's word for a commit by an attempt that should have marked its dispatch and did not.
pub const UNMARKED: &str = "unmarked";

/// The effect happened.
pub(crate) fn commit(action: &Action, commit: &Commit, policies: Policies, now: Time) -> Result<Step> {
    let standing = commit.caller.standing(action);
    let known = matches!(standing, Standing::Current | Standing::Earlier);
    // What an attempt of before a restore says is evidence: what came after it was forgotten.
    let counts = standing == Standing::Current || (known && !action.flags.restored);
    let nobody_took_over = match action.state {
        State::Started => standing == Standing::Current,
        State::Unknown => counts && !action.reconciler_alive(now),
        _ => false,
    };
    if nobody_took_over {
        let unmarked = standing == Standing::Current
            && policies.granted.marks_dispatch
            && action.dispatched_at.is_none();
        let step = committed(action, commit, policies, now);
        return Ok(if unmarked { step.event(UNMARKED) } else { step });
    }
    if known && action.state == State::Committed {
        if differs(action.resource_id.as_deref(), commit.resource_id) {
            let next = Action { flags: Flags { discrepancy: true, ..action.flags }, ..action.clone() };
            return Ok(Step::to(next, Answer::Discrepancy).event("discrepancy"));
        }
        if standing == Standing::Current {
            return Ok(Step::unchanged(Answer::AlreadyCommitted));
        }
    }
    if commit.record_when_lost && standing != Standing::Stranger && action.state != State::Expired {
        return Ok(evidence_kept(action, true, commit.resource_id, Answer::Superseded));
    }
    // A living reconciler has taken over: the attempt is no longer the current one.
    let standing = if action.reconciler_alive(now) && known { Standing::Earlier } else { standing };
    Err(refused(action, standing, "committed"))
}

fn committed(action: &Action, commit: &Commit, policies: Policies, now: Time) -> Step {
    let first_try = action.state == State::Started && action.attempt == 1;
    let mut next = end(action, State::Committed, policies.granted, now);
    next.attempt_id = Some(commit.caller.attempt_id);
    next.resource_id = commit.resource_id.map(str::to_owned).or(next.resource_id);
    let step = Step::to(next, Answer::Committed);
    match action.state {
        _ if first_try => step,
        State::Started => step.ended(ended(action, "committed")).event("committed"),
        _ => step.ended(reconciler_ended(action, "superseded")).event("committed_late"),
    }
}

/// True when both are known and not the same.
pub(crate) fn differs(stored: Option<&str>, reported: Option<&str>) -> bool {
    matches!((stored, reported), (Some(stored), Some(reported)) if stored != reported)
}

/// The mark of an attempt that says "unknown": where one is asked for, saying that it may have happened is as good as
/// the mark that it was sent. Elsewhere only idem_dispatch makes one.
fn said_to_be_sent(action: &Action, policies: Policies, now: Time) -> Option<Time> {
    action.dispatched_at.or(policies.granted.marks_dispatch.then_some(now))
}

/// The caller cannot tell whether the effect happened.
pub(crate) fn mark_unknown(action: &Action, caller: Caller, policies: Policies, now: Time) -> Result<Step> {
    let standing = caller.standing(action);
    match (action.state, standing) {
        (State::Started, Standing::Current) => {
            let marked = Action { dispatched_at: said_to_be_sent(action, policies, now), ..action.clone() };
            let mut next = to_unknown(&marked, now, policies);
            next.flags.said_unknown = true;
            Ok(Step::to(next, Answer::State(State::Unknown)).ended(ended(action, "unknown")).event("unknown"))
        }
        // Its lease ran out before it could say so. That it may have been sent counts all the same, and what was
        // looked for until now was looked for too early.
        (State::Unknown, Standing::Current) if !action.flags.said_unknown && !action.flags.own_closed => {
            let flags =
                Flags { open_dispatched: true, ever_dispatched: true, said_unknown: true, ..action.flags };
            let next = Action {
                dispatched_at: said_to_be_sent(action, policies, now),
                settle_from: action.settle_from.max(Some(now)),
                probes: 0,
                probed_at: None,
                flags,
                ..action.clone()
            };
            Ok(Step::to(next, Answer::State(State::Unknown)).event("unknown"))
        }
        (State::Unknown, Standing::Current) => Ok(Step::unchanged(Answer::State(State::Unknown))),
        _ => Err(refused(action, standing, "marked unknown")),
    }
}

/// The effect definitely did not happen.
pub(crate) fn fail(action: &Action, fail: &Fail, policies: Policies, now: Time) -> Result<Step> {
    let standing = fail.caller.standing(action);
    if standing != Standing::Current {
        return Err(refused(action, standing, "failed"));
    }
    match action.state {
        State::Started => {}
        State::Unknown if action.reconcile_id.is_some() => {
            return Err(refused(action, Standing::Earlier, "failed"));
        }
        State::Unknown if action.flags.own_closed => {
            return Ok(Step::unchanged(Answer::State(State::Unknown)));
        }
        State::Unknown => {}
        State::Retryable | State::Failed | State::Rejected => {
            return Ok(Step::unchanged(Answer::State(action.state)));
        }
        _ => return Err(refused(action, standing, "failed")),
    }
    let granted = policies.granted;
    if fail.proof == Proof::NotSent && action.dispatched_at.is_some() {
        return Err(Error::new(
            Code::TooLate,
            "the attempt has marked its dispatch and cannot claim not_sent",
        )
        .hint("Use proof => 'refused' when the provider said no, idem_mark_unknown otherwise."));
    }
    // What is disproved here is this attempt's own effect, so it no longer counts as dispatched; that a
    // provider was asked at all stays on record.
    let sent = fail.proof == Proof::Refused && is_dispatched(action, granted);
    let flags = Flags { ever_dispatched: action.flags.ever_dispatched || sent, ..action.flags };
    let wait = fail.retry_after.unwrap_or_else(|| granted.backoff(action.counted_attempts(), fail.random));
    if action.flags.open_before || action.flags.positive_evidence {
        let mut step = still_unknown(&Action { flags, ..action.clone() }, action, policies, now);
        // Whoever repeats it waits as after any failure; whoever looks it up need not.
        let repeats =
            |next: &Action| may_repeat(next, granted.lease, policies, now) && !next.flags.positive_evidence;
        step.next = step.next.map(|next| match repeats(&next) {
            true => Action { due_at: Some(now.saturating_add(wait)), ..next },
            false => next,
        });
        return Ok(step);
    }
    let mut settled = Action { flags: closed(flags), ..action.clone() };
    if fail.new_provider_key {
        settled.generation = settled.generation.saturating_add(1);
        settled.generation_granted_at = None;
    }
    let attempts_left = action.counted_attempts() < granted.max_attempts;
    if !fail.retryable || !attempts_left || action.flags.withdrawn {
        let state =
            if fail.retryable && action.flags.withdrawn { never_again(&settled) } else { State::Failed };
        let next = end(&settled, state, granted, now);
        return Ok(Step::to(next, Answer::State(state)).ended(ended(action, "failed")).event(state.word()));
    }
    let next = to_retryable(&settled, now.saturating_add(wait));
    let step = Step::to(next, Answer::State(State::Retryable));
    Ok(step.ended(ended(action, "retryable")).event("retryable"))
}

/// The flags once no outcome is open any more.
pub(crate) fn closed(flags: Flags) -> Flags {
    Flags { open_before: false, own_closed: false, open_dispatched: false, restored: false, ..flags }
}

/// The action with another attempt allowed from `due_at`.
pub(crate) fn to_retryable(action: &Action, due_at: Time) -> Action {
    Action {
        state: State::Retryable,
        due_at: Some(due_at),
        lease_expires_at: None,
        deadline_at: None,
        settle_from: None,
        dispatched_at: None,
        probes: 0,
        probe_tries: 0,
        probed_at: None,
        reconcile_lease_expires_at: None,
        ..action.clone()
    }
}

/// Sticky: an earlier outcome is open, so this attempt's definite failure says nothing about the action.
fn still_unknown(next: &Action, before: &Action, policies: Policies, now: Time) -> Step {
    let mut unknown = match before.state {
        State::Started => to_unknown(next, now, policies),
        _ => next.clone(),
    };
    // The failed attempt's own dispatch is disproved; the earlier ones' stand as they stood at its grant.
    unknown.flags.open_dispatched = before.flags.open_dispatched;
    unknown.flags.own_closed = true;
    Step::to(unknown, Answer::State(State::Unknown)).ended(ended(before, "failed")).event("unknown")
}

/// The moment that no renewal passes; `None` where only the type's `max_lease` counts.
fn last_moment(action: &Action, policies: Policies) -> Option<Time> {
    // An attempt that runs only because the provider still knows the key must end while it does.
    if action.flags.open_before && action.flags.open_dispatched {
        // No window any more (the type was changed) means no more time than the lease it has.
        return window_end(action, policies).or(action.lease_expires_at);
    }
    // Who has to mark his dispatch can do so once, whoever else holds the token.
    if policies.granted.marks_dispatch {
        return None;
    }
    // While its lease lay inside the window, the attempt may have been resumed, which leaves no trace: there may be
    // two who send, so none of them may send when the provider has forgotten the key.
    window_end(action, Policies::same(policies.granted)).filter(|end| action.lease_expires_at <= Some(*end))
}

/// The attempt needs more time.
pub(crate) fn renew(
    action: &Action,
    caller: Caller,
    lease: Option<Span>,
    policies: Policies,
    now: Time,
) -> Result<Step> {
    let standing = caller.standing(action);
    let granted = policies.granted;
    let lease = granted.lease_for(lease)?;
    let mut until = now.saturating_add(lease);
    match (action.state, standing) {
        (State::Started, Standing::Current) => {
            if !granted.class.repeats_freely() {
                until = until.min(last_moment(action, policies).unwrap_or(until));
            }
            let until = action.lease_expires_at.map_or(until, |present| present.max(until));
            if until <= now {
                return Err(Error::new(
                    Code::TooLate,
                    "the provider no longer has to know the key: no more time for this attempt",
                )
                .hint("Do not send. Say idem_mark_unknown if it may have been sent."));
            }
            let next = Action { lease_expires_at: Some(until), ..action.clone() };
            Ok(Step::to(next, Answer::Lease(until)))
        }
        (State::Unknown, Standing::Reconciler) if action.reconcile_lease_expires_at.is_some() => {
            let until = action.reconcile_lease_expires_at.map_or(until, |present| present.max(until));
            let next = Action { reconcile_lease_expires_at: Some(until), ..action.clone() };
            Ok(Step::to(next, Answer::Lease(until)))
        }
        _ => Err(refused(action, standing, "renewed")),
    }
}

/// The attempt gives up before the effect.
pub(crate) fn release(action: &Action, caller: Caller, policies: Policies, now: Time) -> Result<Step> {
    let standing = caller.standing(action);
    match (action.state, standing) {
        (State::Started, Standing::Current) => {}
        (State::Retryable | State::Rejected, Standing::Current) => {
            return Ok(Step::unchanged(Answer::State(action.state)));
        }
        (State::Unknown, Standing::Current) if action.flags.own_closed => {
            return Ok(Step::unchanged(Answer::State(State::Unknown)));
        }
        _ => return Err(refused(action, standing, "released")),
    }
    if action.dispatched_at.is_some() {
        return Err(Error::new(Code::TooLate, "the attempt has marked its dispatch and cannot be released")
            .hint("Report the outcome with idem_commit, idem_fail or idem_mark_unknown."));
    }
    let uncounted = Action { forgiven: action.forgiven.saturating_add(1), ..action.clone() };
    if action.flags.open_before || action.flags.positive_evidence {
        let mut step = still_unknown(&uncounted, action, policies, now);
        step.ended = ended(action, "released").into_iter().collect();
        return Ok(step);
    }
    let settled = Action { flags: closed(action.flags), ..uncounted };
    let next = match action.flags.withdrawn {
        true => end(&settled, never_again(&settled), policies.granted, now),
        false => to_retryable(&settled, now),
    };
    let state = next.state;
    let step = Step::to(next, Answer::State(state));
    Ok(step.ended(ended(action, "released")).event("released"))
}

/// The last gate before the effect. Passes once per attempt.
pub(crate) fn dispatch(
    action: &Action,
    caller: Caller,
    is_held: bool,
    policies: Policies,
    now: Time,
) -> Result<Step> {
    let standing = caller.standing(action);
    if action.state != State::Started || standing != Standing::Current {
        return Err(refused(action, standing, "dispatched"));
    }
    let too_late = |message| {
        Err(Error::new(Code::TooLate, message)
            .hint("Do not send. Say idem_mark_unknown if it may have been sent."))
    };
    if action.dispatched_at.is_some() {
        return too_late("the attempt has already marked its dispatch");
    }
    if !action.lease_alive(now) {
        return too_late("the attempt's lease is over");
    }
    let not_approved = match approval(action, policies.granted, policies, now) {
        Approval::Valid => None,
        Approval::Withdrawn => Some("the action's approval was withdrawn, or the action cancelled"),
        Approval::Lapsed => Some("the action's approval has lapsed"),
        Approval::Missing => Some("the action is not approved under the policy it was granted under"),
    };
    if let Some(message) = not_approved {
        return Err(Error::new(Code::NotApproved, message)
            .hint("Do not send. Release the attempt; it takes a new approval to start another one."));
    }
    if action.flags.discrepancy {
        return Err(discrepancy());
    }
    if is_held {
        return Err(held());
    }
    let flags = Flags { ever_dispatched: true, ..action.flags };
    let next = Action { dispatched_at: Some(now), flags, ..action.clone() };
    Ok(Step::to(next, Answer::State(State::Started)))
}

/// The refusal while reports contradict each other.
pub(crate) fn discrepancy() -> Error {
    Error::new(Code::Discrepancy, "reports about this action contradict each other")
        .hint("A person has to decide with idem_decide.")
}

/// The refusal of a call by a caller who may not make it in this state.
pub(crate) fn refused(action: &Action, standing: Standing, done: &'static str) -> Error {
    let state = action.state.word();
    match standing {
        Standing::Earlier => Error::new(
            Code::LostAttempt,
            format!("the attempt lost the action to a later one; it cannot be {done}"),
        )
        .detail(format!("The action is {state}, attempt {}.", action.attempt))
        .hint("ROLLBACK, and hand over what the provider said with idem_add_evidence."),
        Standing::Stranger => Error::new(Code::LostAttempt, "attempt_id is not an attempt of this action")
            .detail(format!("The action is {state}, attempt {}.", action.attempt))
            .hint("Use the action_id and attempt_id that one and the same idem_reserve returned."),
        Standing::Reconciler => {
            Error::new(Code::IllegalMove, format!("a reconciling attempt cannot be {done}"))
                .hint("Report what was found with idem_resolve.")
        }
        Standing::Current => {
            Error::new(Code::IllegalMove, format!("an action that is {state} cannot be {done}")).hint(
                "Look at it with idem_status_by_id; hand over what the provider said with idem_add_evidence.",
            )
        }
    }
}
