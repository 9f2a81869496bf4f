//! What the owner of a running attempt may do besides ending it: renew its lease, mark its dispatch.

use crate::common::*;

fn renew(n: u128, lease: Span) -> Event<'static> {
    Event::Renew(caller(n), Some(lease))
}

#[test]
fn renew_lengthens_and_never_shortens() {
    let policy = careful();
    let now = T0 + 30 * SECOND;
    let step = step(&started(&policy), &renew(1, 100 * SECOND), &policy, now);
    assert_eq!(step.answer, Answer::Lease(now + 100 * SECOND));
    let row = step.next.unwrap();
    assert_eq!((row.lease_expires_at, row.fence), (Some(now + 100 * SECOND), T0));
    let short = moved(&row, &renew(1, SECOND), &policy, now);
    assert_eq!(short.lease_expires_at, row.lease_expires_at);
    let by_default = moved(&started(&policy), &Event::Renew(caller(1), None), &policy, now);
    assert_eq!(by_default.lease_expires_at, Some(now + LEASE));
    // While nobody took over, also after its end.
    let late = moved(&started(&policy), &renew(1, LEASE), &policy, T0 + LEASE);
    assert_eq!(late.lease_expires_at, Some(T0 + 2 * LEASE));
    let longest = moved(&started(&policy), &renew(1, policy.max_lease), &policy, T0);
    assert_eq!(longest.lease_expires_at, Some(T0 + policy.max_lease));
    for lease in [0, -1, policy.max_lease + 1] {
        assert_eq!(refused(&started(&policy), &renew(1, lease), &policy, T0), Code::InvalidParameter);
    }
}

#[test]
fn renew_stays_inside_the_window_that_it_was_granted_for() {
    let policy = windowed();
    let end = T0 + policy.provider_key_window;
    let second = repeated(&policy, T0 + LEASE);
    let row = moved(&second, &renew(2, 3600 * SECOND), &policy, T0 + LEASE);
    assert_eq!(row.lease_expires_at, Some(end));
    // The type lost its window meanwhile: nothing is added.
    let policies = Policies { granted: &policy, current: &careful() };
    let step = transition(Some(&second), &renew(2, 3600 * SECOND), policies, T0 + LEASE).unwrap();
    assert_eq!(step.answer, Answer::Lease(T0 + 2 * LEASE));
    // An attempt that follows a silent one needs no window, nor does a harmless one.
    let marking = Policy { marks_dispatch: true, ..windowed() };
    let silent = moved(&started(&marking), &Event::Reserve(ask(2)), &marking, T0 + LEASE);
    let row = moved(&silent, &renew(2, 3600 * SECOND), &marking, T0 + LEASE);
    assert_eq!(row.lease_expires_at, Some(T0 + LEASE + 3600 * SECOND));
    let harmless = Policy { class: Class::ReadOnly, ..policy };
    let row = moved(&repeated(&harmless, T0 + LEASE), &renew(2, 3600 * SECOND), &harmless, T0 + LEASE);
    assert_eq!(row.lease_expires_at, Some(T0 + LEASE + 3600 * SECOND));
}

#[test]
fn renew_stays_inside_the_window_in_which_the_attempt_may_have_been_resumed() {
    // Two who hold one token (the message was delivered twice) may both send while the provider knows the key.
    let policy = windowed();
    let end = T0 + policy.provider_key_window;
    let row = moved(&started(&policy), &renew(1, 3600 * SECOND), &policy, T0);
    assert_eq!(row.lease_expires_at, Some(end));
    let policies = Policies { granted: &policy, current: &careful() };
    let step = transition(Some(&started(&policy)), &renew(1, 3600 * SECOND), policies, T0).unwrap();
    assert_eq!(step.answer, Answer::Lease(end));
    // A lease that was longer than the window from the start was never resumed, and is renewed as any other.
    let exact = Policy { provider_key_window: LEASE, ..careful() };
    let row = moved(&started(&exact), &renew(1, 3600 * SECOND), &exact, T0);
    assert_eq!(row.lease_expires_at, Some(T0 + LEASE));
    let narrow = Policy { provider_key_window: LEASE - 1, ..careful() };
    let row = moved(&started(&narrow), &renew(1, 3600 * SECOND), &narrow, T0);
    assert_eq!(row.lease_expires_at, Some(T0 + 3600 * SECOND));
    // Who has to mark his dispatch can do so once, whoever else holds the token.
    let marking = Policy { marks_dispatch: true, ..windowed() };
    let row = moved(&started(&marking), &renew(1, 3600 * SECOND), &marking, T0);
    assert_eq!(row.lease_expires_at, Some(T0 + 3600 * SECOND));
}

#[test]
fn renew_by_a_reconciling_attempt() {
    let policy = careful();
    let busy = probed(&policy, T0 + LEASE);
    let row = moved(&busy, &renew(100, 100 * SECOND), &policy, T0 + LEASE);
    assert_eq!(row.reconcile_lease_expires_at, Some(T0 + LEASE + 100 * SECOND));
    let short = moved(&row, &renew(100, SECOND), &policy, T0 + LEASE);
    assert_eq!(short.reconcile_lease_expires_at, row.reconcile_lease_expires_at);
    let over = moved(&busy, &found(100, Finding::Inconclusive), &policy, T0 + LEASE);
    assert_eq!(refused(&over, &renew(100, LEASE), &policy, T0 + LEASE), Code::IllegalMove);
    let next = moved(&busy, &Event::Reserve(prober(101)), &policy, T0 + 2 * LEASE);
    assert_eq!(refused(&next, &Event::Renew(earlier(100), None), &policy, T0 + 2 * LEASE), Code::LostAttempt);
}

#[test]
fn renew_is_refused_elsewhere() {
    let policy = careful();
    for state in [State::Unknown, State::Retryable, State::Committed, State::Failed, State::Expired] {
        assert_eq!(refused(&in_state(state, &policy), &renew(1, LEASE), &policy, T0), Code::IllegalMove);
    }
    let read_only = crate::common::policy(Class::ReadOnly);
    let second = repeated(&read_only, T0 + LEASE);
    let event = Event::Renew(earlier(1), None);
    assert_eq!(refused(&second, &event, &read_only, T0 + LEASE), Code::LostAttempt);
}

#[test]
fn dispatch_passes_once() {
    for policy in [marking(), approving()] {
        let step = step(&started(&policy), &dispatch(caller(1)), &policy, T0 + LEASE - 1);
        assert_eq!(step.answer, Answer::State(State::Started));
        let row = step.next.unwrap();
        assert_eq!((row.state, row.dispatched_at), (State::Started, Some(T0 + LEASE - 1)));
        assert!(row.flags.ever_dispatched);
        assert_eq!(refused(&row, &dispatch(caller(1)), &policy, T0 + LEASE - 1), Code::TooLate);
    }
}

#[test]
fn dispatch_is_refused_after_the_lease() {
    assert_eq!(refused(&started(&marking()), &dispatch(caller(1)), &marking(), T0 + LEASE), Code::TooLate);
}

#[test]
fn dispatch_is_refused_after_withdrawal_or_lapse_of_approval() {
    let policy = approving();
    let action = moved(&started(&policy), &renew(1, policy.max_lease), &policy, T0 + SECOND);
    let lapse = T0 + policy.approval_ttl;
    assert_eq!(moved(&action, &dispatch(caller(1)), &policy, lapse - 1).dispatched_at, Some(lapse - 1));
    assert_eq!(refused(&action, &dispatch(caller(1)), &policy, lapse), Code::NotApproved);
    for policy in [approving(), marking()] {
        let withdrawn = moved(&started(&policy), &Event::Withdraw, &policy, T0);
        assert_eq!(refused(&withdrawn, &dispatch(caller(1)), &policy, T0), Code::NotApproved);
    }
}

#[test]
fn dispatch_is_refused_under_a_discrepancy_or_a_hold() {
    let policy = marking();
    let disputed = flagged(started(&policy), |flags| flags.discrepancy = true);
    assert_eq!(refused(&disputed, &dispatch(caller(1)), &policy, T0), Code::Discrepancy);
    let held = Event::Dispatch { caller: caller(1), held: true };
    assert_eq!(refused(&started(&policy), &held, &policy, T0), Code::Held);
}

#[test]
fn dispatch_is_refused_to_everybody_else() {
    let policy = marking();
    let silent = moved(&started(&policy), &Event::Reserve(ask(2)), &policy, T0 + LEASE);
    assert_eq!(refused(&silent, &dispatch(earlier(1)), &policy, T0 + LEASE), Code::LostAttempt);
    assert_eq!(refused(&silent, &dispatch(caller(900)), &policy, T0 + LEASE), Code::LostAttempt);
    for state in [State::Unknown, State::Retryable, State::Committed, State::Failed] {
        assert_eq!(refused(&in_state(state, &policy), &dispatch(caller(1)), &policy, T0), Code::IllegalMove);
    }
}

#[test]
fn renew_past_the_window_is_told_so() {
    let policy = windowed();
    let until = T0 + policy.provider_key_window;
    let second = repeated(&policy, until - LEASE);
    assert_eq!(second.lease_expires_at, Some(until));
    let renew = Event::Renew(caller(2), None);
    assert_eq!(moved(&second, &renew, &policy, until - 1).lease_expires_at, Some(until));
    assert_eq!(refused(&second, &renew, &policy, until), Code::TooLate);
}

#[test]
fn mark_unknown_after_the_lease_moves_the_settle_delay_once() {
    let policy = marking();
    let lapsed = unknown(&policy);
    assert_eq!(lapsed.settle_from, Some(T0 + LEASE));
    let late = T0 + 3 * LEASE;
    let counted = Action { probes: 1, probed_at: Some(T0 + 2 * LEASE), ..lapsed };
    let said = moved(&counted, &Event::MarkUnknown(caller(1)), &policy, late);
    assert_eq!((said.settle_from, said.probes, said.probed_at), (Some(late), 0, None));
    assert_eq!(said.dispatched_at, counted.dispatched_at);
    let again = step(&said, &Event::MarkUnknown(caller(1)), &policy, late + LEASE);
    assert_eq!(again, Step::unchanged(Answer::State(State::Unknown)));
    // Nor does one that was said in time.
    let early = moved(&started(&policy), &Event::MarkUnknown(caller(1)), &policy, T0 + SECOND);
    let again = step(&early, &Event::MarkUnknown(caller(1)), &policy, late);
    assert_eq!(again, Step::unchanged(Answer::State(State::Unknown)));
    // What one attempt said does not speak for the next.
    let free = Policy { marks_dispatch: true, ..crate::common::policy(Class::ReadOnly) };
    let early = moved(&started(&free), &Event::MarkUnknown(caller(1)), &free, T0 + SECOND);
    let second = moved(&early, &Event::Reserve(ask(2)), &free, T0 + LEASE);
    assert!(!second.flags.said_unknown);
}
