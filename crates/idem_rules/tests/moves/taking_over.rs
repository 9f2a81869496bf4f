//! A reconciler who comes by himself: what he is given, and what he never is.

use idem_rules::expiry::{Open, Queue, open};

use crate::common::*;

fn by(n: u128) -> Event<'static> {
    Event::Reconcile(ask(n))
}

fn told_by(action: &Action, n: u128, policy: &Policy, now: Time) -> (Decision, bool) {
    let step = step(action, &by(n), policy, now);
    (decision(&step), step.next.is_some())
}

#[test]
fn due_unknown_actions_are_his_with_a_lease_and_a_fence_of_their_own() {
    for policy in
        [careful(), windowed(), marking(), policy(Class::ReadOnly), policy(Class::IdempotentMutation)]
    {
        let now = T0 + LEASE;
        let step = step(&unknown(&policy), &by(100), &policy, now);
        assert_eq!((decision(&step), step.events.clone()), (Decision::Reconcile, vec!["reconcile"]));
        let row = step.next.unwrap();
        assert_eq!((row.state, row.attempt, row.reconcile_id), (State::Unknown, 1, Some(token(100))));
        assert_eq!(row.reconcile_lease_expires_at, Some(now + LEASE));
        assert!(row.fence > unknown(&policy).fence);
        assert_eq!(told_by(&row, 101, &policy, now + LEASE - 1), (Decision::Unknown, false));
        assert_eq!(told_by(&row, 101, &policy, now + LEASE), (Decision::Reconcile, true));
    }
}

#[test]
fn a_dead_attempt_is_noticed_and_given_to_him_in_one_step() {
    let policy = careful();
    assert_eq!(told_by(&started(&policy), 100, &policy, T0 + LEASE - 1), (Decision::Pending, false));
    let step = step(&started(&policy), &by(100), &policy, T0 + LEASE);
    assert_eq!(step.events, vec!["lapsed", "reconcile"]);
    assert_eq!((step.ended[0].attempt_id, step.ended[0].outcome), (token(1), "lapsed"));
    assert_eq!(step.next.unwrap().reconcile_id, Some(token(100)));
}

#[test]
fn a_dead_attempt_that_he_is_not_given_is_noticed_all_the_same() {
    let policy = Policy { resolve_deadline: SECOND, ..careful() };
    let step = step(&started(&policy), &by(100), &policy, T0 + LEASE + SECOND);
    assert_eq!((decision(&step), step.next.unwrap().state), (Decision::Review, State::Unknown));
}

#[test]
fn what_a_person_has_to_decide_is_not_his() {
    let policy = careful();
    let deadline = T0 + LEASE + policy.resolve_deadline;
    assert_eq!(told_by(&unknown(&policy), 100, &policy, deadline - 1), (Decision::Reconcile, true));
    assert_eq!(told_by(&unknown(&policy), 100, &policy, deadline), (Decision::Review, false));
    let escalated = flagged(unknown(&policy), |flags| flags.escalated = true);
    assert_eq!(told_by(&escalated, 100, &policy, T0 + LEASE), (Decision::Review, false));
    let contradicted = flagged(unknown(&policy), |flags| flags.discrepancy = true);
    assert_eq!(told_by(&contradicted, 100, &policy, T0 + LEASE), (Decision::Review, false));
}

#[test]
fn a_probe_that_found_nothing_puts_the_next_one_off() {
    let policy = careful();
    let now = T0 + LEASE;
    let again = moved(
        &moved(&unknown(&policy), &by(100), &policy, now),
        &found(100, Finding::Inconclusive),
        &policy,
        now,
    );
    let due_at = again.due_at.unwrap();
    assert_eq!(told_by(&again, 101, &policy, due_at - 1), (Decision::Unknown, false));
    assert_eq!(told_by(&again, 101, &policy, due_at), (Decision::Reconcile, true));
}

#[test]
fn the_effect_is_never_granted_to_him() {
    for policy in [careful(), windowed(), approving(), policy(Class::ReadOnly), policy(Class::Reversible)] {
        for state in STATES {
            for now in [T0, T0 + LEASE, T0 + 2 * LEASE, T0 + 40 * DAY] {
                let (decision, _) = told_by(&in_state(state, &policy), 100, &policy, now);
                assert!(!decision.is_granted(), "{state:?}");
                let reconciled = decision == Decision::Reconcile;
                assert!(!reconciled || matches!(state, State::Started | State::Unknown), "{state:?}");
            }
        }
    }
}

#[test]
fn a_token_that_was_used_is_not_used_again() {
    assert_eq!(refused(&unknown(&careful()), &by(1), &careful(), T0 + LEASE), Code::InvalidParameter);
}

#[test]
fn in_the_queue_an_action_is_due_when_the_reconciler_has_had_his_time() {
    let policy = careful();
    let now = T0 + LEASE;
    let deadline = Some(now + policy.resolve_deadline);
    let place = |due_at| Some(Open { queue: Queue::Reconciliation, due_at, visit_at: deadline });
    assert_eq!(open(&unknown(&policy), now), place(now));
    assert_eq!(open(&probed(&policy, now), now), place(now + LEASE));
}

#[test]
fn contradicting_reports_wait_for_a_person_in_every_state() {
    let policy = careful();
    for state in
        [State::Retryable, State::Committed, State::Failed, State::Rejected, State::Unknown, State::Started]
    {
        let action = flagged(in_state(state, &policy), |flags| flags.discrepancy = true);
        let place = open(&action, T0 + SECOND).expect("it is listed");
        assert_eq!(place.queue, Queue::Review, "{state:?}");
        // The clock still ends a lease and escalates; it does not end what a person has to look at.
        let visit_at = match state {
            State::Started => action.lease_expires_at,
            State::Unknown => action.deadline_at,
            _ => None,
        };
        assert_eq!(place.visit_at, visit_at, "{state:?}");
    }
    for state in [State::Proposed, State::Approved, State::Expired] {
        let action = flagged(in_state(state, &policy), |flags| flags.discrepancy = true);
        assert_eq!(open(&action, T0), open(&in_state(state, &policy), T0), "{state:?}");
    }
}

#[test]
fn contradicting_reports_are_kept_until_a_person_has_decided() {
    let policy = careful();
    let over = T0 + SECOND + policy.ttl;
    for state in [State::Committed, State::Failed, State::Rejected] {
        let action = flagged(in_state(state, &policy), |flags| flags.discrepancy = true);
        // Nobody is answered from it any more.
        assert_eq!(action.state_at(over), State::Expired);
        assert_eq!(step(&action, &VISIT, &policy, over), Step::unchanged(Answer::Nothing));
        let decided = moved(&action, &decide(Verdict::NotApplied), &policy, over);
        assert_eq!(decided.state_at(over + policy.ttl), State::Expired);
    }
}

#[test]
fn a_record_with_open_children_stays() {
    let policy = careful();
    let kept = Event::Visit { open_children: true };
    let over = T0 + SECOND + policy.ttl;
    assert_eq!(step(&committed(&policy), &kept, &policy, over), Step::unchanged(Answer::Nothing));
    assert_eq!(moved(&committed(&policy), &VISIT, &policy, over).state, State::Expired);
    let gone = over + policy.tombstone_ttl;
    assert_eq!(step(&expired(&policy), &kept, &policy, gone), Step::unchanged(Answer::Nothing));
    assert_eq!(step(&expired(&policy), &VISIT, &policy, gone), Step::unchanged(Answer::Remove));
    // The end of a lease and of a deadline come all the same.
    assert_eq!(moved(&started(&policy), &kept, &policy, T0 + LEASE).state, State::Unknown);
}
