//! Approval: bound to one request under one policy, ending, and taken away for good.

use crate::action::{Action, Flags, State, Time};
use crate::attempt::refused;
use crate::error::{Code, Error, Result};
use crate::expiry::end;
use crate::lease::{ever_dispatched, reconciler_ended};
use crate::policy::{Distinct, Policies, Policy};
use crate::reconcile::{again, refuse_discrepancy};
use crate::transition::{Answer, Approve, Person, Standing, Step};

/// How an action's approval stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Approval {
    /// None is needed, or the one there is holds.
    Valid,
    /// It was withdrawn, or the action cancelled.
    Withdrawn,
    /// It has ended.
    Lapsed,
    /// None was given, or for another version of the policy.
    Missing,
}

/// The approval of `action` for an attempt under the policy `under`: the one it was granted under, or the present one
/// for a new attempt.
///
/// One that either policy asks for is needed: a change never makes an action under way less safe.
pub(crate) fn approval(action: &Action, under: &Policy, policies: Policies, now: Time) -> Approval {
    if action.flags.withdrawn {
        return Approval::Withdrawn;
    }
    if !policies.current.requires_approval && !policies.granted.requires_approval {
        return Approval::Valid;
    }
    match action.approval_expires_at {
        Some(lapses) if lapses <= now => Approval::Lapsed,
        Some(_) if action.approval_policy_version == Some(under.version) => Approval::Valid,
        _ => Approval::Missing,
    }
}

/// True when proposer and approver are not apart by the measure of `distinct`. Who is not on record is not apart.
fn same_person(distinct: Distinct, proposer: Option<Person>, approver: Person) -> bool {
    let Some(proposer) = proposer else { return distinct != Distinct::None };
    match distinct {
        Distinct::None => false,
        Distinct::Role => proposer.role == approver.role || proposer.session_role == approver.session_role,
        Distinct::Name => match (proposer.name, approver.name) {
            (Some(proposer), Some(approver)) => {
                proposer.trim().to_lowercase() == approver.trim().to_lowercase()
            }
            _ => true,
        },
    }
}

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
    if same_person(current.distinct_approver, approve.proposer, approve.approver) {
        return Err(Error::new(Code::NotAllowed, "proposer and approver must not be the same").hint(
            match current.distinct_approver {
                _ if approve.proposer.is_none() => {
                    "Nobody is on its record who asked for it: have somebody else look into it \
                     (idem_reconcile_next), or decide on it with idem_decide."
                }
                Distinct::Name => {
                    "The type tells them apart by the names given: let somebody else approve, with a name."
                }
                _ => "The type tells them apart by role: let another role approve, in a login of its own.",
            },
        ));
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
        approval_policy_version: Some(current.version),
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

/// The approval is withdrawn, or the action cancelled, as `event` says. Always recorded; no later grant or dispatch
/// passes.
pub(crate) fn withdraw(action: &Action, event: &'static str, policies: Policies, now: Time) -> Result<Step> {
    let flags = Flags { withdrawn: true, ..action.flags };
    let withdrawn = Action { flags, ..action.clone() };
    match action.state {
        State::Rejected | State::Failed if !action.flags.discrepancy => {
            Ok(Step::unchanged(Answer::Stopped).event(event))
        }
        state if state.is_terminal() => Ok(Step::unchanged(Answer::TooLate).event(event)),
        // Somebody says that it happened: nothing can be called stopped until a person has decided.
        _ if action.flags.discrepancy => Ok(Step::to(withdrawn, Answer::TooLate).event(event)),
        State::Started | State::Unknown if ever_dispatched(action, policies.granted) => {
            Ok(Step::to(withdrawn, Answer::TooLate).event(event))
        }
        // The attempt is running, but its dispatch will be refused.
        State::Started => Ok(Step::to(withdrawn, Answer::Stopped).event(event)),
        _ => {
            let next = end(&withdrawn, never_again(&withdrawn), policies.granted, now);
            let last = reconciler_ended(action, "superseded");
            Ok(Step::to(next, Answer::Stopped).ended(last).event(event))
        }
    }
}

/// The end of an action that is not to be tried again although nothing is known to stand against it.
pub(crate) fn never_again(action: &Action) -> State {
    if action.flags.ever_dispatched { State::Failed } else { State::Rejected }
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
    next.approval_policy_version = None;
    if policies.current.requires_approval {
        next.state = State::Proposed;
        next.due_at = None;
        next.approval_expires_at = Some(now.saturating_add(policies.current.approval_ttl));
    }
    next
}
