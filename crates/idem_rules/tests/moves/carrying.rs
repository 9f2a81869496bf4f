//! Actions that a message carries: put, let go, and what nobody but the relay may do meanwhile.

use idem_rules::expiry::open;
use idem_rules::policy::Effect;

use crate::common::*;

const PUT: Event = Event::Carry { here: true };
const LATER: Event = Event::Carry { here: false };

#[test]
fn a_message_takes_over_the_attempt_of_its_own_transaction() {
    let policy = careful();
    let step = step(&started(&policy), &PUT, &policy, T0);
    assert_eq!(step.answer, Answer::State(State::Retryable));
    assert_eq!(step.events, ["released", "carried"]);
    let row = step.next.unwrap();
    assert!(row.flags.carried && row.counted_attempts() == 0 && row.is_due(T0));
    // Nothing of the queues shows it: the message stands in a queue of its own.
    assert_eq!(open(&row, T0), None);
    // The relay asks, and gets the next attempt.
    let granted = moved(&row, &Event::Reserve(ask(2)), &policy, T0);
    assert_eq!((granted.state, granted.attempt), (State::Started, 2));
    assert!(granted.flags.carried);
}

#[test]
fn an_attempt_of_another_transaction_is_not_taken_over() {
    let policy = careful();
    for now in [T0, T0 + LEASE] {
        assert_eq!(refused(&started(&policy), &LATER, &policy, now), Code::WrongState);
    }
    let marked = moved(&started(&marking()), &dispatch(caller(1)), &marking(), T0);
    assert_eq!(refused(&marked, &PUT, &marking(), T0), Code::TooLate);
}

#[test]
fn a_message_carries_what_is_open_and_not_running() {
    let policy = careful();
    for row in [unknown(&policy), retryable(&policy), proposed(&approving()), approved(&approving())] {
        let policy = if row.approval_expires_at.is_some() { approving() } else { policy.clone() };
        let step = step(&row, &LATER, &policy, T0);
        assert_eq!((step.answer, step.events), (Answer::State(row.state), vec!["carried"]));
        let carried = step.next.unwrap();
        assert_eq!(carried, Action { flags: Flags { carried: true, ..row.flags }, ..row.clone() });
        assert_eq!(refused(&carried, &LATER, &policy, T0), Code::WrongState, "two messages");
    }
}

#[test]
fn a_message_only_tells_of_what_has_ended_or_happens_here() {
    let policy = careful();
    let local = Policy { effect: Effect::Local, ..careful() };
    for (row, policy) in [(committed(&policy), &policy), (started(&local), &local)] {
        let step = step(&row, &PUT, policy, T0);
        assert_eq!((step.answer, step.next, step.events.len()), (Answer::Nothing, None, 0));
    }
}

#[test]
fn a_message_that_is_gone_lets_the_action_go() {
    let policy = careful();
    let row = moved(&started(&policy), &PUT, &policy, T0);
    let free = step(&row, &Event::LetGo, &policy, T0);
    assert_eq!((free.answer, free.events), (Answer::State(State::Retryable), vec!["let_go"]));
    let free = free.next.unwrap();
    assert!(!free.flags.carried && open(&free, T0).is_some());
    assert_eq!(step(&free, &Event::LetGo, &policy, T0).next, None);
}

#[test]
fn an_action_that_has_ended_is_carried_no_longer() {
    let policy = careful();
    let row = moved(&started(&policy), &PUT, &policy, T0);
    let granted = moved(&row, &Event::Reserve(ask(2)), &policy, T0);
    assert!(!moved(&granted, &commit(caller(2)), &policy, T0).flags.carried);
}
