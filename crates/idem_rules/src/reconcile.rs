//! Finding out what an earlier attempt did: evidence, probes, escalation, a person's decision.

use crate::action::{Action, Flags, Span, State, Time};
use crate::approval::{anew, never_again};
use crate::attempt::{closed, differs, discrepancy, refused, to_retryable};
use crate::error::{Code, Error, Result};
use crate::expiry::end;
use crate::lease::{ended, reconciler_ended};
use crate::policy::{Class, Policies, Policy};
use crate::transition::{Answer, Decide, Evidence, Finding, Resolve, Standing, Step, Verdict};

/// Somebody reports what he saw, outside a reconciling attempt.
pub(crate) fn evidence(action: &Action, evidence: &Evidence) -> Result<Step> {
    if evidence.caller.standing(action) == Standing::Stranger {
        return Err(refused(action, Standing::Stranger, "given evidence for"));
    }
    // A tombstone has been emptied for good.
    if action.state == State::Expired {
        return Err(refused(action, Standing::Current, "given evidence for"));
    }
    Ok(evidence_kept(action, evidence.finding.is_positive(), evidence.resource_id, Answer::Recorded))
}

/// Keeps a report that cannot move the action by itself.
///
/// Positive evidence about an unknown action shuts out a contrary finding. Anywhere else it contradicts what is
/// stored (in committed only another resource does) and blocks every further grant until a person decides.
pub(crate) fn evidence_kept(action: &Action, positive: bool, resource: Option<&str>, answer: Answer) -> Step {
    let contradicts = match action.state {
        State::Committed => positive && differs(action.resource_id.as_deref(), resource),
        State::Unknown | State::Expired => false,
        _ => positive,
    };
    let flags = Flags {
        discrepancy: action.flags.discrepancy || contradicts,
        positive_evidence: action.flags.positive_evidence || (positive && !action.state.is_terminal()),
        ever_dispatched: action.flags.ever_dispatched || positive,
        open_dispatched: action.flags.open_dispatched || (positive && action.state == State::Unknown),
        ..action.flags
    };
    let next = Action { flags, ..action.clone() };
    if contradicts {
        let answer = if answer == Answer::Recorded { Answer::Discrepancy } else { answer };
        return Step::to(next, answer).event("discrepancy");
    }
    Step::to(next, answer).event("evidence")
}

/// A reconciling attempt reports what it found.
pub(crate) fn resolve(action: &Action, resolve: &Resolve, policies: Policies, now: Time) -> Result<Step> {
    let standing = resolve.caller.standing(action);
    if action.state == State::Committed && standing == Standing::Reconciler && resolve.finding.is_positive() {
        if differs(action.resource_id.as_deref(), resolve.resource_id) {
            return Ok(evidence_kept(action, true, resolve.resource_id, Answer::State(State::Committed)));
        }
        return Ok(Step::unchanged(Answer::State(State::Committed)));
    }
    if standing != Standing::Reconciler {
        return Err(match standing {
            Standing::Current => {
                Error::new(Code::IllegalMove, "only a reconciling attempt can resolve an action").hint(
                    "Reserve with can_reconcile => true, and resolve with the attempt_id of that answer.",
                )
            }
            other => refused(action, other, "resolved"),
        });
    }
    match action.state {
        State::Unknown => {}
        // The same report again, after it was the one that counted.
        State::Retryable | State::Failed | State::Rejected if resolve.finding == Finding::NotApplied => {
            return Ok(Step::unchanged(Answer::State(action.state)));
        }
        _ => return Err(refused(action, Standing::Current, "resolved")),
    }
    // A reconciling attempt is one probe. Its report sent twice (a lost answer) must not count as two that agree;
    // only that the effect was found after all is news.
    if action.reconcile_lease_expires_at.is_none() && !resolve.finding.is_positive() {
        return Ok(Step::unchanged(Answer::State(State::Unknown)));
    }
    let ended = reconciler_ended(action, resolve.finding.word());
    let step = match resolve.finding {
        Finding::Applied => applied(action, false, resolve.resource_id, policies.granted, now),
        Finding::PartiallyApplied => applied(action, true, resolve.resource_id, policies.granted, now),
        Finding::NotApplied => not_applied(action, resolve, policies, now),
        Finding::Ambiguous => Step::to(escalated(action), Answer::State(State::Unknown)).event("escalated"),
        Finding::Inconclusive => {
            let wait =
                resolve.next_probe.unwrap_or_else(|| probe_backoff(action, policies.granted, resolve.random));
            Step::to(probe_again(action, now.saturating_add(wait)), Answer::State(State::Unknown))
        }
    };
    Ok(step.ended(ended).event(resolve.finding.word()))
}

fn applied(action: &Action, partially: bool, resource: Option<&str>, granted: &Policy, now: Time) -> Step {
    let mut next = end(action, State::Committed, granted, now);
    next.flags.needs_compensation |= partially;
    next.resource_id = resource.map(str::to_owned).or(next.resource_id);
    Step::to(next, Answer::State(State::Committed))
}

/// Nothing found counts only when the effect had time to show, and only together with other such probes.
fn not_applied(action: &Action, resolve: &Resolve, policies: Policies, now: Time) -> Step {
    let granted = policies.granted;
    if action.flags.positive_evidence {
        return Step::to(escalated(action), Answer::State(State::Unknown)).event("escalated");
    }
    let settled_at = action.settle_from.unwrap_or(action.visit_at).saturating_add(granted.settle_delay);
    if now < settled_at {
        let next = probe_again(action, settled_at.max(now.saturating_add(resolve.next_probe.unwrap_or(0))));
        return Step::to(next, Answer::State(State::Unknown));
    }
    // What a probe saw may be as old as its grant, and its fence is not older than that. One that was granted before
    // all could show has to be followed by one that was not, however late it reports.
    if action.fence < settled_at {
        let next = probe_again(action, now.saturating_add(resolve.next_probe.unwrap_or(0)));
        return Step::to(next, Answer::State(State::Unknown));
    }
    let apart = action.probed_at.map(|last| last.saturating_add(granted.probe_interval));
    if let Some(counts_at) = apart.filter(|counts_at| now < *counts_at) {
        return Step::to(probe_again(action, counts_at), Answer::State(State::Unknown));
    }
    let probes = action.probes.saturating_add(1);
    if probes < granted.probes_required {
        let wait = resolve.next_probe.unwrap_or(0).max(granted.probe_interval);
        let next = Action { probes, probed_at: Some(now), ..probe_again(action, now.saturating_add(wait)) };
        return Step::to(next, Answer::State(State::Unknown));
    }
    let disproved = Action { flags: closed(action.flags), probes, probed_at: Some(now), ..action.clone() };
    let attempts_left = action.counted_attempts() < policies.current.max_attempts;
    if action.flags.withdrawn {
        let state = never_again(&disproved);
        return Step::to(end(&disproved, state, granted, now), Answer::State(state));
    }
    if attempts_left && repeats_after_disproof(policies) {
        return Step::to(to_retryable(&disproved, now), Answer::State(State::Retryable));
    }
    Step::to(end(&disproved, State::Failed, granted, now), Answer::State(State::Failed))
}

/// An effect that cannot be undone is repeated after a disproof only when a person says so.
fn repeats_after_disproof(policies: Policies) -> bool {
    policies.granted.class != Class::Irreversible && policies.current.class != Class::Irreversible
}

/// The reconciling attempt is over; the next one may come at `due_at`.
fn probe_again(action: &Action, due_at: Time) -> Action {
    Action {
        due_at: Some(due_at),
        reconcile_lease_expires_at: None,
        probe_tries: action.probe_tries.saturating_add(1),
        ..action.clone()
    }
}

fn probe_backoff(action: &Action, granted: &Policy, random: f64) -> Span {
    let stretched = Policy {
        backoff_base: granted.probe_interval,
        backoff_cap: granted.probe_interval.max(granted.backoff_cap),
        ..granted.clone()
    };
    // Half fixed, half jitter: a probe soon after the last one would find the same.
    let wait = stretched.backoff(action.probe_tries.saturating_add(1), 1.0);
    wait / 2 + (wait as f64 / 2.0 * random) as Span
}

fn escalated(action: &Action) -> Action {
    Action {
        flags: Flags { escalated: true, ..action.flags },
        reconcile_lease_expires_at: None,
        ..action.clone()
    }
}

/// Asks a person to look at an unknown action.
pub(crate) fn escalate(action: &Action) -> Result<Step> {
    if action.state != State::Unknown {
        return Err(refused(action, Standing::Current, "escalated"));
    }
    if action.flags.escalated {
        return Ok(Step::unchanged(Answer::State(State::Unknown)));
    }
    Ok(Step::to(escalated(action), Answer::State(State::Unknown))
        .ended(reconciler_ended(action, "escalated"))
        .event("escalated"))
}

/// A person decides, from any state but expired. Closes every open question.
pub(crate) fn decide(action: &Action, decide: &Decide, policies: Policies, now: Time) -> Result<Step> {
    if !action.undecided() && action.retention_over(now) || action.state == State::Expired {
        return Err(refused(action, Standing::Current, "decided"));
    }
    let mut base = Action { flags: closed(action.flags), ..action.clone() };
    base.flags.discrepancy = false;
    base.flags.escalated = false;
    base.flags.positive_evidence = false;
    if decide.verdict != Verdict::Applied {
        base.resource_id = None;
    }
    let next = match decide.verdict {
        Verdict::Applied => {
            let mut next = end(&base, State::Committed, policies.granted, now);
            next.resource_id = decide.resource_id.map(str::to_owned).or(next.resource_id);
            next
        }
        Verdict::NotApplied => end(&base, State::Failed, policies.granted, now),
        // Whoever decides does not approve: only an attempt's own approval goes on, and not one that was withdrawn.
        Verdict::Retry if action.flags.withdrawn => anew(&base, policies, now),
        Verdict::Retry => match action.state {
            State::Started | State::Unknown | State::Retryable => again(&base, now),
            _ => anew(&base, policies, now),
        },
    };
    let state = next.state;
    let last = match action.state {
        State::Started => ended(action, "superseded"),
        _ => reconciler_ended(action, "superseded"),
    };
    Ok(Step::to(next, Answer::State(state)).ended(last).event("decided"))
}

/// Another chance with the full number of attempts.
pub(crate) fn again(action: &Action, now: Time) -> Action {
    let mut next = to_retryable(action, now);
    next.forgiven = action.attempt;
    next.ended_at = None;
    next.expires_at = None;
    next
}

/// The refusal of a reopening while reports contradict each other.
pub(crate) fn refuse_discrepancy(action: &Action) -> Result<()> {
    if action.flags.discrepancy { Err(discrepancy()) } else { Ok(()) }
}
