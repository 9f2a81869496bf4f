//! Which steps wait for the disk: those without which a crash would let the effect happen again.

use idem_rules::durable::must_last;

use crate::common::*;

fn lasts(action: &Action, event: &Event, policy: &Policy, now: Time) -> bool {
    must_last(&step(action, event, policy, now), action, policy)
}

/// A marking attempt whose lease ran out without a mark.
fn lapsed(policy: &Policy) -> Action {
    moved(&started(policy), &VISIT, policy, T0 + LEASE)
}

#[test]
fn what_counts_as_the_mark_lasts() {
    let policy = marking();
    let dispatched = moved(&started(&policy), &dispatch(caller(1)), &policy, T0);
    assert!(lasts(&started(&policy), &dispatch(caller(1)), &policy, T0));
    // An earlier attempt's mark says nothing of this one.
    let again = flagged(started(&policy), |flags| flags.ever_dispatched = true);
    assert!(lasts(&again, &dispatch(caller(1)), &policy, T0));
    assert!(lasts(&started(&policy), &Event::MarkUnknown(caller(1)), &policy, T0));
    assert!(lasts(&lapsed(&policy), &Event::MarkUnknown(caller(1)), &policy, T0 + LEASE));
    assert!(!lasts(&dispatched, &Event::Renew(caller(1), None), &policy, T0));
    // That a provider was asked stays on record, though it refused.
    assert!(lasts(&started(&careful()), &Event::Fail(refusal(caller(1))), &careful(), T0));
}

#[test]
fn a_commit_lasts_where_nothing_else_tells_of_the_effect() {
    let policy = marking();
    let dispatched = moved(&started(&policy), &dispatch(caller(1)), &policy, T0);
    assert!(lasts(&started(&policy), &commit(caller(1)), &policy, T0));
    assert!(lasts(&lapsed(&policy), &commit(caller(1)), &policy, T0 + LEASE));
    assert!(!lasts(&dispatched, &commit(caller(1)), &policy, T0));
    assert!(!lasts(&started(&policy), &Event::Renew(caller(1), None), &policy, T0));
    // Where the grant counts as the dispatch, a forgotten commit leaves an attempt open.
    assert!(!lasts(&started(&careful()), &commit(caller(1)), &careful(), T0));
    assert!(!lasts(&committed(&policy), &commit(caller(1)), &policy, T0));
}

#[test]
fn what_is_found_lasts() {
    let policy = marking();
    for finding in [Finding::Applied, Finding::Inconclusive] {
        assert!(lasts(&unknown(&policy), &evidence(caller(1), finding), &policy, T0 + LEASE));
    }
    assert!(lasts(&unknown(&policy), &Event::Escalate, &policy, T0 + LEASE));
    assert!(lasts(&committed(&policy), &record(earlier(2)), &policy, T0 + LEASE));
}
