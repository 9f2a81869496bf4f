//! Leases: how an attempt begins, how long it holds, and what its end means.

use crate::action::{Action, Flags, Span, State, Time};
use crate::policy::{Policies, Policy};
use crate::transition::{Ask, Ended};

/// The fence of the next acquisition: greater than the last one, and as great as the clock.
pub fn next_fence(last: i64, now: Time) -> i64 {
    now.max(last.saturating_add(1))
}

/// True when the last attempt's effect may have left the building.
///
/// An attempt that need not mark its dispatch counts as dispatched from its grant.
pub fn is_dispatched(action: &Action, granted: &Policy) -> bool {
    action.attempt > 0 && (!granted.marks_dispatch || action.dispatched_at.is_some())
}

/// True when any attempt since the last disproof may have had its effect. What a restore forgot may have.
pub fn any_dispatched(action: &Action, granted: &Policy) -> bool {
    action.flags.restored
        || action.flags.open_dispatched
        || (action.state == State::Started && is_dispatched(action, granted))
}

/// True when any attempt at all may have sent something, disproved since or not.
pub fn ever_dispatched(action: &Action, granted: &Policy) -> bool {
    action.flags.ever_dispatched || any_dispatched(action, granted)
}

/// End of the time in which the provider recognises the present key; `None` where it never does.
pub fn window_end(action: &Action, policies: Policies) -> Option<Time> {
    let window = policies.granted.provider_key_window.min(policies.current.provider_key_window);
    if window <= 0 || action.flags.restored {
        return None;
    }
    action.window_start().map(|start| start.saturating_add(window))
}

/// True when another attempt of length `lease` may run although an outcome is open ("may repeat").
///
/// A type that was changed meanwhile must allow it under both policies: a change never makes an action under
/// way less safe.
pub fn may_repeat(action: &Action, lease: Span, policies: Policies, now: Time) -> bool {
    if policies.granted.class.repeats_freely() && policies.current.class.repeats_freely() {
        return true;
    }
    if !any_dispatched(action, policies.granted) {
        return true;
    }
    window_end(action, policies).is_some_and(|end| now.saturating_add(lease) <= end)
}

/// The action with its next attempt granted to `ask`.
pub fn grant(action: &Action, ask: &Ask, lease: Span, policies: Policies, now: Time) -> Action {
    let open = matches!(action.state, State::Started | State::Unknown);
    let mut next = Action {
        state: State::Started,
        attempt: action.attempt.saturating_add(1),
        attempt_id: Some(ask.attempt_id),
        fence: next_fence(action.fence, now),
        lease_expires_at: Some(now.saturating_add(lease)),
        policy_version: policies.current.version,
        ttl: action.ttl.max(ask.ttl.filter(|ttl| *ttl > policies.current.ttl)),
        dispatched_at: None,
        due_at: None,
        settle_from: if open { settles_from(action, policies) } else { None },
        probes: 0,
        probe_tries: 0,
        probed_at: None,
        reconcile_id: None,
        reconcile_lease_expires_at: None,
        flags: Flags {
            open_before: open && (action.flags.open_before || !action.flags.own_closed),
            own_closed: false,
            said_unknown: false,
            open_dispatched: any_dispatched(action, policies.granted),
            ever_dispatched: ever_dispatched(action, policies.granted),
            ..action.flags
        },
        ..action.clone()
    };
    if !next.flags.open_before {
        next.deadline_at = None;
    }
    // The first grant of a provider key that is younger than the row itself opens that key's window. A later
    // grant never does: the provider counts from the first request that it may have seen.
    let first_of_key = next.generation > 0 || (action.attempt == 0 && now > next.created_at);
    if next.generation_granted_at.is_none() && first_of_key {
        next.generation_granted_at = Some(now);
    }
    next
}

/// From when the settle delay counts for those who were granted before, once a new attempt is.
///
/// Who said "unknown" before his lease was over may be sending until then, whoever comes after him. A type that was
/// given a shorter delay meanwhile leaves theirs as long as it was.
fn settles_from(action: &Action, policies: Policies) -> Option<Time> {
    let shorter_by = policies.granted.settle_delay.saturating_sub(policies.current.settle_delay);
    if shorter_by <= 0 {
        return action.settle_from;
    }
    let latest =
        [action.settle_from, action.lease_expires_at, action.dispatched_at].into_iter().flatten().max();
    latest.map(|latest| latest.saturating_add(shorter_by))
}

/// The action after its attempt ended with an open outcome at `ended_at` (lease end, or the mark).
pub fn to_unknown(action: &Action, ended_at: Time, policies: Policies) -> Action {
    let granted = policies.granted;
    // Whoever reported early may still be sending until the lease is over.
    let latest = [action.lease_expires_at, action.dispatched_at, action.settle_from, Some(ended_at)];
    // Nor does a mark that comes after the lease's end put off the deadline.
    let overdue_from = action.lease_expires_at.map_or(ended_at, |end| end.min(ended_at));
    Action {
        state: State::Unknown,
        lease_expires_at: None,
        due_at: Some(ended_at),
        deadline_at: action.deadline_at.or(Some(overdue_from.saturating_add(granted.resolve_deadline))),
        settle_from: latest.into_iter().flatten().max(),
        flags: Flags {
            open_dispatched: any_dispatched(action, granted),
            ever_dispatched: ever_dispatched(action, granted),
            own_closed: false,
            ..action.flags
        },
        ..action.clone()
    }
}

/// A started action whose lease is over, as it stands once that is taken notice of.
pub fn lapse(action: &Action, policies: Policies, now: Time) -> (Action, Option<Ended>) {
    let lease_end = action.lease_expires_at.unwrap_or(now);
    (to_unknown(action, lease_end, policies), ended(action, "lapsed"))
}

/// The history's record of the last attempt.
pub fn ended(action: &Action, outcome: &'static str) -> Option<Ended> {
    action.attempt_id.map(|attempt_id| Ended {
        attempt: action.attempt,
        attempt_id,
        fence: action.fence,
        reconciling: false,
        outcome,
    })
}

/// The history's record of the last reconciling attempt, where one is still running.
pub fn reconciler_ended(action: &Action, outcome: &'static str) -> Option<Ended> {
    action.reconcile_lease_expires_at.and(action.reconcile_id).map(|attempt_id| Ended {
        attempt: action.attempt,
        attempt_id,
        fence: action.fence,
        reconciling: true,
        outcome,
    })
}
