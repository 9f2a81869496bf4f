//! Approval: bound to one request under one policy, ending, and taken away for good.

use crate::action::{Action, Flags, State, Time};
use crate::attempt::refused;
use crate::error::{Code, Error, Result};
use crate::expiry::end;
use crate::lease::{ever_dispatched, reconciler_ended};
use crate::policy::Policies;
use crate::reconcile::{again, refuse_discrepancy};
use crate::transition::{Answer, Approve, Standing, Step};

/// A person approves exactly this request under exactly this policy.
///
/// An approval serves one action. It may be renewed while the action is retryable or unknown.
pub(crate) fn approve(action: &Action, approve: &Approve, policies: Policies, now: Time) -> Result<Step> {
    let current = policies.current;
    if approve.fingerprint != action.fingerprint {
        return Err(Error::new(Code::InvalidParameter, "the fingerprint is not the one of this action")
            .hint("Look at the proposal again: approve what it says now, or reject it."));
    }
    if approve.policy_version.is_some_and(|version| version != current.version) {
        return Err(Error::new(
            Code::InvalidParameter,
            format!("the action type's policy has changed; it is at version {}", current.version),
        )
        .hint("Look at the policy again with the view idem_policy."));
    }
    if approve.same_person {
        return Err(Error::new(Code::NotAllowed, "proposer and approver must not be the same")
            .hint("Let somebody else approve."));
    }
    let renewable = matches!(action.state, State::Retryable | State::Unknown);
    let lapsed = action.approval_expires_at.is_some_and(|lapses| lapses <= now);
    let open = matches!(action.state, State::Proposed | State::Approved) && !lapsed;
    if action.flags.withdrawn || !(open || renewable) {
        return Err(refused(action, Standing::Current, "approved"));
    }
    let valid = approve.valid.unwrap_or(current.approval_ttl);
    if valid <= 0 {
        return Err(Error::new(Code::InvalidParameter, "valid_seconds must be greater than zero"));
    }
    let state = if renewable { action.state } else { State::Approved };
    let next = Action {
        state,
        approval_expires_at: Some(now.saturating_add(valid)),
        policy_version: if renewable { action.policy_version } else { current.version },
        ..action.clone()
    };
    Ok(Step::to(next, Answer::State(state)).event("approved"))
}

/// A person refuses a proposal or takes an approval back before it was used.
pub(crate) fn reject(action: &Action, policies: Policies, now: Time) -> Result<Step> {
    match action.state {
        State::Proposed | State::Approved => {
            let next = end(action, State::Rejected, policies.granted, now);
            Ok(Step::to(next, Answer::State(State::Rejected)).event("rejected"))
        }
        State::Rejected => Ok(Step::unchanged(Answer::State(State::Rejected))),
        _ => Err(refused(action, Standing::Current, "rejected")),
    }
}

/// The approval is withdrawn, or the action cancelled. Always recorded; no later grant or dispatch passes.
pub(crate) fn withdraw(action: &Action, policies: Policies, now: Time) -> Result<Step> {
    let flags = Flags { withdrawn: true, ..action.flags };
    let withdrawn = Action { flags, ..action.clone() };
    match action.state {
        State::Rejected | State::Failed if !action.flags.discrepancy => {
            Ok(Step::unchanged(Answer::Stopped).event("withdrawn"))
        }
        state if state.is_terminal() => Ok(Step::unchanged(Answer::TooLate).event("withdrawn")),
        // Somebody says that it happened: nothing can be called stopped until a person has decided.
        _ if action.flags.discrepancy => Ok(Step::to(withdrawn, Answer::TooLate).event("withdrawn")),
        State::Started | State::Unknown if ever_dispatched(action, policies.granted) => {
            Ok(Step::to(withdrawn, Answer::TooLate).event("withdrawn"))
        }
        // The attempt is running, but its dispatch will be refused.
        State::Started => Ok(Step::to(withdrawn, Answer::Stopped).event("withdrawn")),
        State::Retryable if action.flags.ever_dispatched => {
            let next = end(&withdrawn, State::Failed, policies.granted, now);
            Ok(Step::to(next, Answer::Stopped).event("withdrawn"))
        }
        _ => {
            let next = end(&withdrawn, State::Rejected, policies.granted, now);
            let last = reconciler_ended(action, "superseded");
            Ok(Step::to(next, Answer::Stopped).ended(last).event("withdrawn"))
        }
    }
}

/// A person gives a failed or rejected action another chance, with the full number of attempts.
pub(crate) fn reopen(action: &Action, policies: Policies, now: Time) -> Result<Step> {
    refuse_discrepancy(action)?;
    if !matches!(action.state_at(now), State::Failed | State::Rejected) {
        return Err(refused(action, Standing::Current, "reopened"));
    }
    let next = anew(action, policies, now);
    let state = next.state;
    Ok(Step::to(next, Answer::State(state)).event("reopened"))
}

/// An action that no attempt is under way for, started over under the present policy.
///
/// An old approval, or the time that was left to give one, is no approval of this.
pub(crate) fn anew(action: &Action, policies: Policies, now: Time) -> Action {
    let mut next = again(action, now);
    next.flags.withdrawn = false;
    next.flags.escalated = false;
    next.policy_version = policies.current.version;
    next.approval_expires_at = None;
    if policies.current.requires_approval {
        next.state = State::Proposed;
        next.due_at = None;
        next.approval_expires_at = Some(now.saturating_add(policies.current.approval_ttl));
    }
    next
}
