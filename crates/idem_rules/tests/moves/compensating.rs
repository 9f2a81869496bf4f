//! What may be compensated, and how often.

use idem_rules::compensation::{check, is_live, is_open};

use crate::common::*;

#[test]
fn only_what_happened_is_compensated() {
    let policy = careful();
    for state in STATES {
        let parent = in_state(state, &policy);
        let result = check(&parent, false, false, T0 + SECOND);
        assert_eq!(result.is_ok(), state == State::Committed, "{state:?}");
    }
    let over = T0 + SECOND + policy.ttl;
    assert!(check(&committed(&policy), false, false, over - 1).is_ok());
    assert_eq!(check(&committed(&policy), false, false, over).unwrap_err().code, Code::IllegalMove);
}

#[test]
fn an_unclear_outcome_is_reconciled_first_and_nothing_done_is_said_so() {
    let policy = careful();
    let said = |state| check(&in_state(state, &policy), false, false, T0).unwrap_err();
    for state in [State::Started, State::Unknown] {
        assert!(said(state).hint.unwrap().contains("Reconcile it first"), "{state:?}");
    }
    for state in [State::Failed, State::Rejected, State::Retryable, State::Proposed, State::Approved] {
        assert!(said(state).message.contains("did not happen"), "{state:?}");
    }
}

#[test]
fn one_at_a_time_and_none_of_a_compensation() {
    let parent = committed(&careful());
    assert_eq!(check(&parent, true, false, T0 + SECOND).unwrap_err().code, Code::IllegalMove);
    assert_eq!(check(&parent, false, true, T0 + SECOND).unwrap_err().code, Code::IllegalMove);
    for state in STATES {
        assert_eq!(is_live(state), !matches!(state, State::Failed | State::Rejected), "{state:?}");
        assert_eq!(is_open(state), !state.is_terminal(), "{state:?}");
    }
}

#[test]
fn what_happened_in_part_waits_in_the_review_queue_until_its_retention_ends() {
    use idem_rules::expiry::{Open, Queue, open};
    let policy = careful();
    let now = T0 + LEASE;
    let partly = moved(&probed(&policy, now), &found(100, Finding::PartiallyApplied), &policy, now);
    let over = now + policy.ttl;
    assert_eq!(open(&partly, now), Some(Open { queue: Queue::Review, due_at: now, visit_at: Some(over) }));
    let wholly = moved(&probed(&policy, now), &found(100, Finding::Applied), &policy, now);
    assert_ne!(open(&wholly, now).map(|place| place.queue), Some(Queue::Review));
    assert_eq!(moved(&partly, &VISIT, &policy, over).state, State::Expired);
}
