//! A restore, a failover or a copy: the database may be older than the world.

use crate::action::{Action, Flags, State, Time};
use crate::lease::{ended, reconciler_ended};
use crate::policy::Policies;
use crate::transition::{Answer, Step};

/// What is not ended here may have gone on, and ended, in the time that was forgotten.
///
/// Every such action becomes unknown: a proposal may have been approved and carried out, an approval used or withdrawn,
/// a failure tried again. The open outcome lies outside every window. Attempts of before own nothing any more; what
/// they saw is evidence. An approval of before is none.
pub(crate) fn restore(action: &Action, policies: Policies, now: Time) -> Step {
    if action.state.is_terminal() {
        return Step::unchanged(Answer::Nothing);
    }
    let last = match action.state {
        State::Started => ended(action, "restored"),
        _ => reconciler_ended(action, "restored"),
    };
    // Whoever has a lease may be sending until its end, whatever the database forgot.
    let settle_from = [action.lease_expires_at, action.settle_from, Some(now)].into_iter().flatten().max();
    let next = Action {
        state: State::Unknown,
        attempt_id: None,
        lease_expires_at: None,
        dispatched_at: None,
        due_at: Some(now),
        deadline_at: Some(now.saturating_add(policies.granted.resolve_deadline)),
        settle_from,
        probes: 0,
        probe_tries: 0,
        probed_at: None,
        reconcile_id: None,
        reconcile_lease_expires_at: None,
        approval_expires_at: None,
        approval_policy_version: None,
        flags: Flags {
            open_before: true,
            own_closed: false,
            open_dispatched: true,
            ever_dispatched: true,
            restored: true,
            ..action.flags
        },
        ..action.clone()
    };
    Step::to(next, Answer::State(State::Unknown)).ended(last).event("restored")
}
