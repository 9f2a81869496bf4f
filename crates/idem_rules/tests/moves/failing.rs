//! An attempt that ends without having done it, or without knowing.

use crate::common::*;

fn fail(fail: Fail) -> Event<'static> {
    Event::Fail(fail)
}

/// Attempt 2 runs while the outcome of attempt 1 is open.
fn second_try(policy: &Policy) -> Action {
    repeated(policy, T0 + LEASE)
}

#[test]
fn mark_unknown_from_started() {
    let policy = careful();
    let now = T0 + SECOND;
    let step = step(&started(&policy), &Event::MarkUnknown(caller(1)), &policy, now);
    assert_eq!((step.answer, step.events), (Answer::State(State::Unknown), vec!["unknown"]));
    assert_eq!((step.ended[0].attempt_id, step.ended[0].outcome), (token(1), "unknown"));
    let row = step.next.unwrap();
    assert_eq!((row.state, row.due_at, row.lease_expires_at), (State::Unknown, Some(now), None));
    assert_eq!(row.deadline_at, Some(now + policy.resolve_deadline));
    // It may be sending until its lease is over, whatever it says.
    assert_eq!((row.settle_from, row.dispatched_at), (Some(T0 + LEASE), None));
    assert!(row.flags.open_dispatched && row.flags.ever_dispatched && !row.flags.open_before);
    let late = moved(&started(&policy), &Event::MarkUnknown(caller(1)), &policy, T0 + DAY);
    assert_eq!(late.settle_from, Some(T0 + DAY));
}

#[test]
fn mark_unknown_twice_is_harmless() {
    let row = moved(&started(&careful()), &Event::MarkUnknown(caller(1)), &careful(), T0 + SECOND);
    let again = step(&row, &Event::MarkUnknown(caller(1)), &careful(), T0 + DAY);
    assert_eq!(again, Step::unchanged(Answer::State(State::Unknown)));
}

#[test]
fn mark_unknown_counts_as_the_mark_of_a_dispatch() {
    let policy = marking();
    let marked = moved(&started(&policy), &Event::MarkUnknown(caller(1)), &policy, T0 + SECOND);
    assert_eq!(marked.dispatched_at, Some(T0 + SECOND));
    assert_eq!(told(&marked, prober(2), &policy, T0 + SECOND).0, Decision::Reconcile);
    // Also when the worker came first and found no mark.
    let silent = moved(&started(&policy), &VISIT, &policy, T0 + LEASE);
    assert_eq!(told(&silent, prober(2), &policy, T0 + 2 * LEASE).0, Decision::Execute);
    let late = moved(&silent, &Event::MarkUnknown(caller(1)), &policy, T0 + 2 * LEASE);
    assert_eq!(told(&late, prober(2), &policy, T0 + 2 * LEASE).0, Decision::Reconcile);
    assert!(late.flags.open_dispatched && late.flags.ever_dispatched);
    assert_eq!(late.settle_from, Some(T0 + 2 * LEASE));
}

#[test]
fn the_settle_delay_counts_from_the_latest_of_all_open_attempts() {
    // Attempt 1 may be sending until its lease ends, although it said "unknown" at once and attempt 2 was shorter.
    let policy = windowed();
    let marked = moved(&started(&policy), &Event::MarkUnknown(caller(1)), &policy, T0);
    let short = Event::Reserve(Ask { lease: Some(SECOND), ..ask(2) });
    let second = moved(&marked, &short, &policy, T0);
    let marked = moved(&second, &Event::MarkUnknown(caller(2)), &policy, T0);
    assert_eq!(marked.settle_from, Some(T0 + LEASE));
    assert_eq!(moved(&second, &VISIT, &policy, T0 + SECOND).settle_from, Some(T0 + LEASE));
    assert_eq!(moved(&second, &Event::Release(caller(2)), &policy, T0).settle_from, Some(T0 + LEASE));
    // What is closed counts no more.
    let closed = moved(&started(&policy), &Event::Release(caller(1)), &policy, T0);
    assert_eq!(moved(&closed, &short, &policy, T0).settle_from, None);
}

#[test]
fn mark_unknown_late_makes_earlier_probes_worthless() {
    let policy = careful();
    let counted = Action { probes: 1, probed_at: Some(T0 + 3 * LEASE), ..unknown(&policy) };
    let late = moved(&counted, &Event::MarkUnknown(caller(1)), &policy, T0 + 4 * LEASE);
    assert_eq!((late.probes, late.probed_at, late.settle_from), (0, None, Some(T0 + 4 * LEASE)));
}

#[test]
fn mark_unknown_is_refused_elsewhere() {
    let policy = policy(Class::ReadOnly);
    let mark = Event::MarkUnknown;
    for state in [State::Retryable, State::Committed, State::Failed, State::Expired] {
        assert_eq!(refused(&in_state(state, &policy), &mark(caller(1)), &policy, T0), Code::IllegalMove);
    }
    assert_eq!(refused(&second_try(&policy), &mark(earlier(1)), &policy, T0 + LEASE), Code::LostAttempt);
    assert_eq!(refused(&started(&policy), &mark(caller(900)), &policy, T0), Code::LostAttempt);
    assert_eq!(
        refused(&probed(&careful(), T0 + LEASE), &mark(caller(100)), &careful(), T0),
        Code::IllegalMove
    );
}

#[test]
fn fail_leads_to_retryable_or_failed() {
    let policy = careful();
    for proof in [Proof::NotSent, Proof::Refused] {
        let again = Fail { proof, ..refusal(caller(1)) };
        let step_again = step(&started(&policy), &fail(again), &policy, T0 + SECOND);
        assert_eq!(step_again.answer, Answer::State(State::Retryable));
        assert_eq!((step_again.ended[0].attempt_id, step_again.ended[0].outcome), (token(1), "retryable"));
        let row = step_again.next.unwrap();
        assert_eq!((row.due_at, row.lease_expires_at, row.generation), (Some(T0 + 11 * SECOND), None, 0));
        assert_eq!(row.flags.ever_dispatched, proof == Proof::Refused);
        assert!(!row.flags.open_dispatched);

        let over = Fail { retryable: false, ..again };
        let step_over = step(&started(&policy), &fail(over), &policy, T0 + SECOND);
        assert_eq!((step_over.answer, step_over.ended[0].outcome), (Answer::State(State::Failed), "failed"));
        let row = step_over.next.unwrap();
        assert_eq!((row.state, row.expires_at), (State::Failed, Some(T0 + SECOND + policy.ttl)));
    }
    // While nobody took over, the lease's end makes no difference; neither does the worker's visit.
    assert_eq!(
        moved(&started(&policy), &fail(refusal(caller(1))), &policy, T0 + DAY).state,
        State::Retryable
    );
    assert_eq!(
        moved(&unknown(&policy), &fail(refusal(caller(1))), &policy, T0 + DAY).state,
        State::Retryable
    );
}

#[test]
fn fail_backs_off_and_gives_up_after_the_last_attempt() {
    let policy = Policy { max_attempts: 2, ..careful() };
    let by_itself = Fail { retry_after: None, ..refusal(caller(1)) };
    let row = moved(&started(&policy), &fail(by_itself), &policy, T0);
    assert_eq!(row.due_at, Some(T0 + policy.backoff(1, 0.5)));
    let second = moved(&row, &Event::Reserve(ask(2)), &policy, T0 + LEASE);
    let last = Fail { caller: caller(2), ..by_itself };
    assert_eq!(moved(&second, &fail(last), &policy, T0 + LEASE).state, State::Failed);
    let roomy = Policy { max_attempts: 3, ..policy };
    let row = moved(&second, &fail(last), &roomy, T0 + LEASE);
    assert_eq!((row.state, row.due_at), (State::Retryable, Some(T0 + LEASE + roomy.backoff(2, 0.5))));
}

#[test]
fn fail_not_sent_is_refused_after_dispatch() {
    let not_sent = Fail { proof: Proof::NotSent, ..refusal(caller(1)) };
    let policy = marking();
    assert_eq!(moved(&started(&policy), &fail(not_sent), &policy, T0).state, State::Retryable);
    let sent = moved(&started(&policy), &dispatch(caller(1)), &policy, T0);
    assert_eq!(refused(&sent, &fail(not_sent), &policy, T0), Code::TooLate);
    assert_eq!(refused(&unknown(&policy), &fail(not_sent), &policy, T0 + LEASE), Code::TooLate);
    let marked = moved(&started(&policy), &Event::MarkUnknown(caller(1)), &policy, T0);
    assert_eq!(refused(&marked, &fail(not_sent), &policy, T0), Code::TooLate);
    assert_eq!(moved(&sent, &fail(refusal(caller(1))), &policy, T0).state, State::Retryable);
    // A mark that nobody asked for holds as well.
    let volunteered = moved(&started(&careful()), &dispatch(caller(1)), &careful(), T0);
    assert_eq!(refused(&volunteered, &fail(not_sent), &careful(), T0), Code::TooLate);
    // Also once its lease is over, or it said "unknown".
    for what in [VISIT, Event::MarkUnknown(caller(1))] {
        let open = moved(&volunteered, &what, &careful(), T0 + LEASE);
        assert_eq!(refused(&open, &fail(not_sent), &careful(), T0 + LEASE), Code::TooLate);
    }
    let lapsed = moved(&started(&careful()), &VISIT, &careful(), T0 + LEASE);
    let late = moved(&lapsed, &Event::MarkUnknown(caller(1)), &careful(), T0 + LEASE);
    assert_eq!(moved(&late, &fail(not_sent), &careful(), T0 + LEASE).state, State::Retryable);
    // Who need not mark may find out later that it never left.
    assert_eq!(moved(&unknown(&careful()), &fail(not_sent), &careful(), T0 + LEASE).state, State::Retryable);
}

#[test]
fn fail_takes_a_new_provider_key_only_when_asked_and_nothing_is_open() {
    let new_key = |n| Fail { new_provider_key: true, ..refusal(caller(n)) };
    let row = moved(&started(&careful()), &fail(new_key(1)), &careful(), T0);
    assert_eq!((row.generation, row.generation_granted_at), (1, None));
    let policy = policy(Class::ReadOnly);
    assert_eq!(moved(&second_try(&policy), &fail(new_key(2)), &policy, T0 + LEASE).generation, 0);
}

#[test]
fn fail_is_sticky_while_an_earlier_outcome_is_open() {
    for policy in [policy(Class::ReadOnly), windowed()] {
        for retryable in [true, false] {
            let event = fail(Fail { retryable, ..refusal(caller(2)) });
            let step = step(&second_try(&policy), &event, &policy, T0 + LEASE + SECOND);
            assert_eq!((step.answer, step.ended[0].outcome), (Answer::State(State::Unknown), "failed"));
            let row = step.next.unwrap();
            assert!(row.flags.open_before && row.flags.own_closed && row.flags.open_dispatched);
            // The clock of the oldest open outcome runs on.
            assert_eq!(row.deadline_at, Some(T0 + LEASE + policy.resolve_deadline));
            // Said twice, it is answered twice.
            let again = crate::common::step(&row, &event, &policy, T0 + 2 * LEASE);
            assert_eq!(again, Step::unchanged(Answer::State(State::Unknown)));
            // The next attempt's failure is sticky as well.
            let third = moved(&row, &Event::Reserve(ask(3)), &policy, T0 + 2 * LEASE);
            assert!(third.flags.open_before && !third.flags.own_closed);
            let event = fail(Fail { retryable, ..refusal(caller(3)) });
            assert_eq!(moved(&third, &event, &policy, T0 + 2 * LEASE).state, State::Unknown);
        }
    }
}

#[test]
fn fail_from_unknown_closes_only_its_own_outcome() {
    let policy = policy(Class::ReadOnly);
    let lapsed = moved(&second_try(&policy), &VISIT, &policy, T0 + 2 * LEASE);
    let row = moved(&lapsed, &fail(refusal(caller(2))), &policy, T0 + 2 * LEASE);
    assert_eq!((row.state, row.flags.own_closed, row.flags.open_before), (State::Unknown, true, true));
    // Whoever repeats it waits as after any other failure.
    assert_eq!(row.due_at, Some(T0 + 2 * LEASE + 10 * SECOND));
}

#[test]
fn fail_does_not_overrule_positive_evidence() {
    let policy = careful();
    let seen = moved(&unknown(&policy), &evidence(caller(1), Finding::Applied), &policy, T0 + LEASE);
    let row = moved(&seen, &fail(refusal(caller(1))), &policy, T0 + LEASE);
    assert_eq!((row.state, row.flags.positive_evidence), (State::Unknown, true));
    let seen = moved(&started(&policy), &evidence(caller(1), Finding::Applied), &policy, T0);
    assert_eq!(moved(&seen, &fail(refusal(caller(1))), &policy, T0).state, State::Unknown);
    assert_eq!(moved(&seen, &Event::Release(caller(1)), &policy, T0).state, State::Unknown);
}

#[test]
fn fail_is_refused_once_somebody_took_over() {
    let policy = careful();
    let busy = probed(&policy, T0 + LEASE);
    assert_eq!(refused(&busy, &fail(refusal(caller(1))), &policy, T0 + LEASE), Code::LostAttempt);
    // Also after the reconciling attempt is over: what it saw must not be forgotten.
    let over = moved(&busy, &found(100, Finding::Inconclusive), &policy, T0 + LEASE);
    assert_eq!(refused(&over, &fail(refusal(caller(1))), &policy, T0 + 3 * LEASE), Code::LostAttempt);
    let read_only = crate::common::policy(Class::ReadOnly);
    let event = fail(refusal(earlier(1)));
    assert_eq!(refused(&second_try(&read_only), &event, &read_only, T0 + LEASE), Code::LostAttempt);
    assert_eq!(refused(&started(&policy), &fail(refusal(caller(900))), &policy, T0), Code::LostAttempt);
}

#[test]
fn fail_twice_is_harmless() {
    let policy = careful();
    for state in [State::Retryable, State::Failed] {
        let again = step(&in_state(state, &policy), &fail(refusal(caller(1))), &policy, T0 + DAY);
        assert_eq!(again, Step::unchanged(Answer::State(state)));
    }
    assert_eq!(refused(&committed(&policy), &fail(refusal(caller(1))), &policy, T0), Code::IllegalMove);
}

#[test]
fn release_is_retryable_at_once_and_not_counted() {
    for policy in [careful(), marking(), approving()] {
        for now in [T0, T0 + LEASE + SECOND] {
            let step = step(&started(&policy), &Event::Release(caller(1)), &policy, now);
            assert_eq!((step.answer, step.events), (Answer::State(State::Retryable), vec!["released"]));
            assert_eq!((step.ended[0].attempt_id, step.ended[0].outcome), (token(1), "released"));
            let row = step.next.unwrap();
            assert_eq!((row.due_at, row.attempt, row.counted_attempts()), (Some(now), 1, 0));
            assert!(!row.flags.ever_dispatched && !row.flags.open_dispatched);
            let again = crate::common::step(&row, &Event::Release(caller(1)), &policy, now);
            assert_eq!(again, Step::unchanged(Answer::State(State::Retryable)));
        }
    }
}

#[test]
fn release_is_unknown_while_an_earlier_outcome_is_open() {
    let policy = policy(Class::ReadOnly);
    let step = step(&second_try(&policy), &Event::Release(caller(2)), &policy, T0 + LEASE);
    assert_eq!((step.answer, step.ended[0].outcome), (Answer::State(State::Unknown), "released"));
    let row = step.next.unwrap();
    assert_eq!((row.counted_attempts(), row.flags.own_closed, row.flags.open_before), (1, true, true));
    let again = crate::common::step(&row, &Event::Release(caller(2)), &policy, T0 + LEASE);
    assert_eq!(again, Step::unchanged(Answer::State(State::Unknown)));
}

#[test]
fn release_is_refused_after_dispatch_and_elsewhere() {
    let release = Event::Release;
    let sent = moved(&started(&marking()), &dispatch(caller(1)), &marking(), T0);
    assert_eq!(refused(&sent, &release(caller(1)), &marking(), T0), Code::TooLate);
    let policy = careful();
    assert_eq!(refused(&unknown(&policy), &release(caller(1)), &policy, T0 + LEASE), Code::IllegalMove);
    assert_eq!(refused(&committed(&policy), &release(caller(1)), &policy, T0), Code::IllegalMove);
    assert_eq!(refused(&started(&policy), &release(earlier(2)), &policy, T0), Code::LostAttempt);
}

#[test]
fn fail_that_is_sticky_waits_where_it_is_repeated_and_not_where_it_is_looked_up() {
    let now = T0 + LEASE + SECOND;
    let free = policy(Class::IdempotentMutation);
    for (retry_after, wait) in [(Some(30 * SECOND), 30 * SECOND), (None, SECOND)] {
        let event = fail(Fail { retry_after, ..refusal(caller(2)) });
        let row = moved(&second_try(&free), &event, &free, now);
        assert_eq!(row.due_at, Some(now + wait));
        let step = step(&row, &Event::Reserve(ask(3)), &free, now + wait - 1);
        assert_eq!((decision(&step), retry_after_of(&step)), (Decision::Unknown, Some(1)));
        assert_eq!(told(&row, ask(3), &free, now + wait).0, Decision::Execute);
    }
    // An evidence of its effect closes every repeat, so nothing waits.
    let seen = moved(&started(&careful()), &evidence(caller(1), Finding::Applied), &careful(), T0);
    assert_eq!(moved(&seen, &fail(refusal(caller(1))), &careful(), T0).due_at, Some(T0));
}

fn retry_after_of(step: &Step) -> Option<Span> {
    crate::common::retry_after(step)
}

#[test]
fn fail_for_good_keeps_the_wish_for_a_new_key() {
    let policy = careful();
    for retryable in [true, false] {
        let event = fail(Fail { retryable, new_provider_key: true, ..refusal(caller(1)) });
        let row = moved(&started(&policy), &event, &policy, T0);
        assert_eq!((row.generation, row.window_start()), (1, None));
    }
    let event = fail(Fail { retryable: false, new_provider_key: true, ..refusal(caller(1)) });
    let failed = moved(&started(&policy), &event, &policy, T0);
    let again = moved(&moved(&failed, &Event::Reopen, &policy, T0), &Event::Reserve(ask(2)), &policy, T0);
    assert_eq!((again.generation, again.window_start()), (1, Some(T0)));
}
