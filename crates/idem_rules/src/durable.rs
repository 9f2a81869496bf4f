//! Which steps a crash must not take back.
//!
//! A forgotten step leaves the action as it was before it. That is safe where the action could then not start again
//! either; it is not where the step itself is what tells that the effect may have happened.

use crate::action::{Action, State};
use crate::policy::Policy;
use crate::transition::{Answer, Step};

/// True when `step` must be on disk before its caller is answered.
///
/// A first-try commit need not be, where the grant counts as the dispatch: forgotten, the attempt is open.
pub fn must_last(step: &Step, before: &Action, granted: &Policy) -> bool {
    // Reports are kept to take permission away.
    if matches!(step.answer, Answer::Superseded | Answer::Discrepancy | Answer::Recorded) {
        return true;
    }
    let Some(after) = &step.next else { return false };
    // Without a mark, the commit is all that is known of the effect.
    let tells = granted.marks_dispatch && before.dispatched_at.is_none() && before.state != after.state;
    if tells && after.state == State::Committed {
        return true;
    }
    let (was, is) = (before.flags, after.flags);
    (before.dispatched_at.is_none() && after.dispatched_at.is_some())
        || (is.open_dispatched && !was.open_dispatched)
        || (is.ever_dispatched && !was.ever_dispatched)
        || (is.positive_evidence && !was.positive_evidence)
        || (is.escalated && !was.escalated)
        || (is.discrepancy && !was.discrepancy)
}
