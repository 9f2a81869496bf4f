//! What a caller of idem_reserve is told: the decision table, read top-down, the fingerprint first.

use crate::action::{Action, Flags, Span, State, Time};
use crate::approval::{Approval, approval};
use crate::attempt::closed;
use crate::error::{Code, Error, Result};
use crate::expiry::end;
use crate::lease::{ended, ever_dispatched, grant, lapse, may_repeat, next_fence, reconciler_ended};
use crate::policy::{Policies, Policy};
use crate::transition::{Answer, Ask, Decision, Ended, Step};

/// Judges a caller asking for an action. See [`crate::transition::transition`].
pub(crate) fn reserve(action: Option<&Action>, ask: &Ask, policies: Policies, now: Time) -> Result<Step> {
    Policy::check_lease(ask.lease)?;
    let Some(action) = action else {
        return first(ask, policies.current.lease_for(ask.lease)?, policies, now);
    };
    if action.fingerprint != ask.fingerprint || action.scheme != ask.scheme {
        return Ok(told(Decision::Conflict));
    }
    if action.state.is_terminal() {
        return Ok(told(match action.state_at(now) {
            State::Committed => Decision::Replay,
            State::Failed => Decision::Failed,
            State::Rejected => Decision::Rejected,
            _ => Decision::Expired,
        }));
    }
    // A lease longer than the type allows by now is no reason to keep an old answer back; before a grant it is.
    let lease = policies.current.lease_for(ask.lease)?;
    if matches!(action.state, State::Proposed | State::Approved) {
        return before_the_first_attempt(action, ask, lease, policies, now);
    }
    if ask.carried {
        return Ok(told(Decision::Pending));
    }
    match action.state {
        State::Started => started(action, ask, lease, policies, now),
        State::Unknown => unknown(action, ask, lease, policies, now),
        _ => retryable(action, ask, lease, policies, now),
    }
}

/// Puts an action forward for approval. What is granted to nobody else is not granted here either.
pub(crate) fn propose(action: Option<&Action>, ask: &Ask, policies: Policies, now: Time) -> Result<Step> {
    if action.is_none() && !policies.current.requires_approval {
        return Err(Error::new(Code::InvalidParameter, "the action type does not require approval")
            .hint("Register it with requires_approval => true, or use idem_reserve."));
    }
    reserve(action, &Ask { carried: true, ..*ask }, policies, now)
}

fn told(decision: Decision) -> Step {
    Step::unchanged(Answer::Decided(decision, None))
}

fn wait(decision: Decision, until: Option<Time>, now: Time) -> Step {
    let span = until.map_or(0, |until| until.saturating_sub(now).max(0));
    Step::unchanged(Answer::Decided(decision, Some(span)))
}

fn first(ask: &Ask, lease: Span, policies: Policies, now: Time) -> Result<Step> {
    let policy = policies.current;
    let mut new = Action::new(ask.fingerprint, ask.scheme, policy.version, now);
    new.ttl = ask.ttl.filter(|ttl| *ttl > policy.ttl);
    if policy.requires_approval {
        let lapses = now.saturating_add(policy.approval_ttl);
        let proposed = Action { approval_expires_at: Some(lapses), visit_at: lapses, ..new };
        return Ok(Step::to(proposed, Answer::Decided(Decision::AwaitingApproval, None)).event("proposed"));
    }
    if ask.held {
        return Err(held());
    }
    let mut started = grant(&new, ask, lease, policies, now);
    started.visit_at = now.saturating_add(lease);
    Ok(Step::to(started, Answer::Decided(Decision::Execute, None)))
}

fn before_the_first_attempt(
    action: &Action,
    ask: &Ask,
    lease: Span,
    policies: Policies,
    now: Time,
) -> Result<Step> {
    if action.approval_expires_at.is_some_and(|lapses| lapses <= now) {
        return Ok(rejected(action, policies, now, "lapsed"));
    }
    if action.state == State::Proposed {
        return Ok(told(Decision::AwaitingApproval));
    }
    if action.policy_version != policies.current.version {
        return Ok(proposed_again(action, policies, now));
    }
    if ask.carried {
        return Ok(told(Decision::Pending));
    }
    execute(action, ask, lease, policies, now)
}

fn started(action: &Action, ask: &Ask, lease: Span, policies: Policies, now: Time) -> Result<Step> {
    if action.lease_alive(now) {
        let still_here = action.attempt_id == Some(ask.attempt_id);
        let undispatched = policies.granted.marks_dispatch && action.dispatched_at.is_none();
        // What is given back is the rest of the present lease, whatever length is asked for.
        let rest = action.lease_expires_at.map_or(lease, |end| end.saturating_sub(now));
        if still_here && (undispatched || may_repeat(action, rest, policies, now)) {
            return match stopped(action, policies.granted, policies, now) {
                Some(step) => Ok(step),
                None if ask.held => Err(held()),
                None => Ok(told(Decision::Resume)),
            };
        }
        return Ok(wait(Decision::Pending, action.lease_expires_at, now));
    }
    if may_repeat(action, lease, policies, now) && !action.flags.positive_evidence {
        return execute(action, ask, lease, policies, now);
    }
    lapsing(action, policies, now, |lapsed| unknown(lapsed, ask, lease, policies, now))
}

/// Takes notice that a started action's lease is over, and judges it as what it is then.
fn lapsing(
    action: &Action,
    policies: Policies,
    now: Time,
    judge: impl FnOnce(&Action) -> Result<Step>,
) -> Result<Step> {
    let (lapsed, ended) = lapse(action, policies, now);
    let mut step = judge(&lapsed)?;
    step.ended.splice(0..0, ended);
    step.events.insert(0, "lapsed");
    step.next.get_or_insert(lapsed);
    Ok(step)
}

/// What keeps everybody from an unknown action just now; `None` when nothing does.
fn not_now(action: &Action, now: Time) -> Option<Step> {
    if action.needs_review(now) {
        return Some(told(Decision::Review));
    }
    if action.reconciler_alive(now) {
        return Some(wait(Decision::Unknown, action.reconcile_lease_expires_at, now));
    }
    if !action.is_due(now) {
        return Some(wait(Decision::Unknown, action.due_at, now));
    }
    None
}

fn unknown(action: &Action, ask: &Ask, lease: Span, policies: Policies, now: Time) -> Result<Step> {
    if let Some(step) = not_now(action, now) {
        return Ok(step);
    }
    if may_repeat(action, lease, policies, now) && !action.flags.positive_evidence {
        return execute(action, ask, lease, policies, now);
    }
    if ask.can_reconcile {
        return reconcile(action, ask, lease, now);
    }
    Ok(wait(Decision::Unknown, now.checked_add(policies.granted.probe_interval), now))
}

fn retryable(action: &Action, ask: &Ask, lease: Span, policies: Policies, now: Time) -> Result<Step> {
    if action.is_due(now) {
        return execute(action, ask, lease, policies, now);
    }
    Ok(wait(Decision::Pending, action.due_at, now))
}

/// Judges a reconciler who came by himself. What may simply be repeated is his as well: nobody else may ever ask for it.
pub(crate) fn take_over(action: &Action, ask: &Ask, policies: Policies, now: Time) -> Result<Step> {
    let lease = policies.current.lease_for(ask.lease)?;
    let judge = |action: &Action| match not_now(action, now) {
        Some(step) => Ok(step),
        None if action.flags.discrepancy => Ok(told(Decision::Review)),
        None => reconcile(action, ask, lease, now),
    };
    match action.state {
        State::Started if !action.lease_alive(now) => lapsing(action, policies, now, judge),
        State::Unknown => judge(action),
        _ => Ok(told(Decision::Pending)),
    }
}

/// Grants a reconciling attempt: its own lease and token, the fence raised, the attempt count not.
pub(crate) fn reconcile(action: &Action, ask: &Ask, lease: Span, now: Time) -> Result<Step> {
    fresh(action, ask)?;
    let next = Action {
        reconcile_id: Some(ask.attempt_id),
        reconcile_lease_expires_at: Some(now.saturating_add(lease)),
        fence: next_fence(action.fence, now),
        ..action.clone()
    };
    Ok(Step::to(next, Answer::Decided(Decision::Reconcile, None))
        .ended(reconciler_ended(action, "superseded"))
        .event("reconcile"))
}

/// Grants the next attempt, if the precondition of every grant holds.
fn execute(action: &Action, ask: &Ask, lease: Span, policies: Policies, now: Time) -> Result<Step> {
    if let Some(step) = stopped(action, policies.current, policies, now) {
        return Ok(step);
    }
    if action.counted_attempts() >= policies.current.max_attempts {
        return Ok(exhausted(action, policies, now));
    }
    if ask.held {
        return Err(held());
    }
    fresh(action, ask)?;
    let superseded = match action.state {
        State::Started => ended(action, "lapsed"),
        _ => reconciler_ended(action, "superseded"),
    };
    let answer = Answer::Decided(Decision::Execute, None);
    Ok(Step::to(grant(action, ask, lease, policies, now), answer).ended(superseded).event("execute"))
}

/// What stands against `execute`, `resume` and a dispatch alike; `None` when nothing does.
fn stopped(action: &Action, under: &Policy, policies: Policies, now: Time) -> Option<Step> {
    let approval = approval(action, under, policies, now);
    if approval != Approval::Valid {
        if ever_dispatched(action, policies.granted) {
            return Some(told(Decision::Review));
        }
        return Some(match approval {
            Approval::Withdrawn => rejected(action, policies, now, "withdrawn"),
            Approval::Lapsed => rejected(action, policies, now, "lapsed"),
            _ => proposed_again(action, policies, now),
        });
    }
    action.flags.discrepancy.then(|| told(Decision::Review))
}

/// The action waits for approval again: what was approved is not what would be started now.
fn proposed_again(action: &Action, policies: Policies, now: Time) -> Step {
    let last = last_ended(action);
    let next = Action {
        state: State::Proposed,
        policy_version: policies.current.version,
        approval_expires_at: Some(now.saturating_add(policies.current.approval_ttl)),
        approval_policy_version: None,
        lease_expires_at: None,
        due_at: None,
        deadline_at: None,
        settle_from: None,
        reconcile_lease_expires_at: None,
        flags: closed(action.flags),
        ..action.clone()
    };
    Step::to(next, Answer::Decided(Decision::AwaitingApproval, None)).ended(last).event("policy_changed")
}

fn last_ended(action: &Action) -> Option<Ended> {
    match action.state {
        State::Started => ended(action, "superseded"),
        _ => reconciler_ended(action, "superseded"),
    }
}

pub(crate) fn rejected(action: &Action, policies: Policies, now: Time, event: &'static str) -> Step {
    let next = end(action, State::Rejected, policies.granted, now);
    Step::to(next, Answer::Decided(Decision::Rejected, None)).ended(last_ended(action)).event(event)
}

fn exhausted(action: &Action, policies: Policies, now: Time) -> Step {
    let (lapsed, last) = match action.state {
        State::Started => lapse(action, policies, now),
        _ => (action.clone(), reconciler_ended(action, "superseded")),
    };
    if lapsed.state == State::Unknown {
        let flags = Flags { escalated: true, ..lapsed.flags };
        let next = Action { flags, reconcile_lease_expires_at: None, ..lapsed };
        return Step::to(next, Answer::Decided(Decision::Review, None)).ended(last).event("escalated");
    }
    let failed = end(action, State::Failed, policies.granted, now);
    Step::to(failed, Answer::Decided(Decision::Failed, None)).event("attempts_exhausted")
}

/// Refuses a token that this action has used before: two attempts with one token could not be told apart.
fn fresh(action: &Action, ask: &Ask) -> Result<()> {
    let stored = [action.attempt_id, action.reconcile_id].contains(&Some(ask.attempt_id));
    if !ask.attempt_id_used && !stored {
        return Ok(());
    }
    Err(Error::new(Code::InvalidParameter, "attempt_id has been used by an earlier attempt of this action")
        .hint(
            "Make a new random attempt_id for every try; never derive it from a job, message or tool call.",
        ))
}

/// The refusal while an operator holds the tenant or the action type.
pub(crate) fn held() -> Error {
    Error::new(Code::Held, "the action is held by an operator").hint(
        "Wait until the hold is lifted with idem_unhold; replays and the ending of attempts still work.",
    )
}

/// The policy a call is judged by before its row exists.
pub fn check_policy_version(asked: Option<i32>, current: &Policy) -> Result<()> {
    match asked {
        Some(version) if version != current.version => Err(Error::new(
            Code::InvalidParameter,
            format!("policy_version is {version}, but the action type is at version {}", current.version),
        )
        .hint("Decide again under the present policy, or leave policy_version out.")),
        _ => Ok(()),
    }
}
