//! Approval: bound to one request under one policy; refusing, withdrawing, cancelling.

use crate::common::*;

fn approve(approve: Approve<'static>) -> Event<'static> {
    Event::Approve(approve)
}

#[test]
fn approve_binds_to_the_fingerprint() {
    let policy = approving();
    for seen in [&OTHER[..], &FINGERPRINT[..31], &[]] {
        let event = approve(Approve { fingerprint: seen, ..approval() });
        assert_eq!(refused(&proposed(&policy), &event, &policy, T0), Code::InvalidParameter);
    }
}

#[test]
fn approve_binds_to_the_policy_version() {
    let policy = approving();
    let named = |version| approve(Approve { policy_version: Some(version), ..approval() });
    assert_eq!(moved(&proposed(&policy), &named(1), &policy, T0).state, State::Approved);
    for version in [0, 2] {
        assert_eq!(refused(&proposed(&policy), &named(version), &policy, T0), Code::InvalidParameter);
    }
    // The proposal may be older than the policy; the approval is for the present one.
    let new = Policy { version: 2, ..approving() };
    let row = moved(&proposed(&policy), &named(2), &new, T0);
    assert_eq!(row.policy_version, 2);
    assert_eq!(told(&row, ask(1), &new, T0).0, Decision::Execute);
}

#[test]
fn approve_needs_two_people() {
    let event = approve(Approve { same_person: true, ..approval() });
    assert_eq!(refused(&proposed(&approving()), &event, &approving(), T0), Code::NotAllowed);
}

#[test]
fn approve_holds_for_its_time() {
    let policy = approving();
    let now = T0 + SECOND;
    let step = step(&proposed(&policy), &approve(approval()), &policy, now);
    assert_eq!((step.answer, step.events), (Answer::State(State::Approved), vec!["approved"]));
    assert_eq!(step.next.unwrap().approval_expires_at, Some(now + policy.approval_ttl));
    let short = approve(Approve { valid: Some(1), ..approval() });
    assert_eq!(moved(&proposed(&policy), &short, &policy, now).approval_expires_at, Some(now + 1));
    for valid in [0, -1] {
        let event = approve(Approve { valid: Some(valid), ..approval() });
        assert_eq!(refused(&proposed(&policy), &event, &policy, now), Code::InvalidParameter);
    }
    // A proposal that lapsed is not approved any more, visited or not.
    let lapse = T0 + policy.approval_ttl;
    assert_eq!(moved(&proposed(&policy), &approve(approval()), &policy, lapse - 1).state, State::Approved);
    for action in [proposed(&policy), approved(&policy)] {
        assert_eq!(refused(&action, &approve(approval()), &policy, lapse), Code::IllegalMove);
    }
}

#[test]
fn approve_may_be_renewed_while_retryable_or_unknown() {
    let policy = approving();
    let late = T0 + policy.approval_ttl + SECOND;
    for action in [retryable(&policy), unknown(&policy)] {
        let row = moved(&action, &approve(approval()), &policy, late);
        assert_eq!((row.state, row.policy_version), (action.state, action.policy_version));
        assert_eq!(row.approval_expires_at, Some(late + policy.approval_ttl));
    }
    assert_eq!(told(&retryable(&policy), ask(2), &policy, late).0, Decision::Review);
    let renewed = moved(&retryable(&policy), &approve(approval()), &policy, late);
    assert_eq!(told(&renewed, ask(2), &policy, late).0, Decision::Execute);
    assert_eq!(moved(&approved(&policy), &approve(approval()), &policy, T0 + SECOND).state, State::Approved);
}

#[test]
fn approve_is_refused_elsewhere_and_after_withdrawal() {
    let policy = approving();
    for state in [State::Started, State::Committed, State::Failed, State::Rejected, State::Expired] {
        let action = in_state(state, &policy);
        assert_eq!(
            refused(&action, &approve(approval()), &policy, T0 + SECOND),
            Code::IllegalMove,
            "{state:?}"
        );
    }
    let withdrawn = moved(&unknown(&policy), &Event::Withdraw, &policy, T0 + LEASE);
    assert_eq!(refused(&withdrawn, &approve(approval()), &policy, T0 + LEASE), Code::IllegalMove);
}

#[test]
fn reject_before_the_start() {
    let policy = approving();
    for action in [proposed(&policy), approved(&policy)] {
        let step = step(&action, &Event::Reject, &policy, T0 + SECOND);
        assert_eq!((step.answer, step.events), (Answer::State(State::Rejected), vec!["rejected"]));
        let row = step.next.unwrap();
        assert_eq!((row.state, row.ended_at), (State::Rejected, Some(T0 + SECOND)));
        let again = crate::common::step(&row, &Event::Reject, &policy, T0 + LEASE);
        assert_eq!(again, Step::unchanged(Answer::State(State::Rejected)));
    }
    for state in
        [State::Started, State::Unknown, State::Retryable, State::Committed, State::Failed, State::Expired]
    {
        let action = in_state(state, &policy);
        assert_eq!(refused(&action, &Event::Reject, &policy, T0 + SECOND), Code::IllegalMove, "{state:?}");
    }
}

/// Withdraws `action`: the answer and the row, which stays what it was where nothing is stored.
fn withdraw(action: &Action, policy: &Policy) -> (Answer, Action) {
    let step = step(action, &Event::Withdraw, policy, T0 + 2 * SECOND);
    assert_eq!(step.events, ["withdrawn"], "always recorded");
    (step.answer, step.next.unwrap_or_else(|| action.clone()))
}

#[test]
fn withdraw_before_anything_was_dispatched_stops() {
    let policy = approving();
    let silent = moved(&started(&policy), &VISIT, &policy, T0 + LEASE);
    let released = moved(&started(&policy), &Event::Release(caller(1)), &policy, T0);
    for action in [proposed(&policy), approved(&policy), released, silent] {
        let (answer, row) = withdraw(&action, &policy);
        assert_eq!((answer, row.state), (Answer::Stopped, State::Rejected), "{:?}", action.state);
        assert!(row.flags.withdrawn);
    }
    // A running attempt that has to mark its dispatch will be refused the mark, and any later one the grant.
    let (answer, row) = withdraw(&started(&policy), &policy);
    assert_eq!((answer, row.state), (Answer::Stopped, State::Started));
    assert_eq!(told(&row, ask(1), &policy, T0 + 2 * SECOND), (Decision::Rejected, true));
    assert_eq!(told(&row, ask(2), &policy, T0 + LEASE), (Decision::Rejected, true));
    // Definitely without effect is stopped as well, but was not before anything left.
    let (answer, row) = withdraw(&retryable(&policy), &policy);
    assert_eq!((answer, row.state), (Answer::Stopped, State::Failed));
    assert_eq!(withdraw(&row, &policy), (Answer::Stopped, row));
}

#[test]
fn withdraw_after_dispatch_is_too_late_but_stands() {
    let policy = policy(Class::ReadOnly);
    for action in [started(&policy), unknown(&policy)] {
        let (answer, row) = withdraw(&action, &policy);
        assert_eq!((answer, row.state), (Answer::TooLate, action.state));
        assert!(row.flags.withdrawn);
        assert_eq!(told(&row, ask(2), &policy, T0 + LEASE), (Decision::Review, false));
        assert_eq!(moved(&row, &commit(caller(1)), &policy, T0 + LEASE).state, State::Committed);
    }
    let (_, row) = withdraw(&unknown(&careful()), &careful());
    assert_eq!(told(&row, prober(100), &careful(), T0 + LEASE).0, Decision::Reconcile);
    let marking = marking();
    let sent = moved(&started(&marking), &dispatch(caller(1)), &marking, T0);
    assert_eq!(withdraw(&sent, &marking).0, Answer::TooLate);
}

#[test]
fn withdraw_of_an_ended_action_changes_nothing() {
    let policy = careful();
    for (state, expected) in [
        (State::Committed, Answer::TooLate),
        (State::Expired, Answer::TooLate),
        (State::Failed, Answer::Stopped),
        (State::Rejected, Answer::Stopped),
    ] {
        let step = step(&in_state(state, &policy), &Event::Withdraw, &policy, T0 + LEASE);
        assert_eq!((step.answer, step.next), (expected, None), "{state:?}");
    }
}

#[test]
fn withdraw_does_not_close_a_discrepancy() {
    let policy = careful();
    for state in [State::Approved, State::Retryable, State::Failed, State::Rejected] {
        let disputed = flagged(in_state(state, &policy), |flags| flags.discrepancy = true);
        let (answer, row) = withdraw(&disputed, &policy);
        assert_eq!((answer, row.state, row.flags.discrepancy), (Answer::TooLate, state, true));
    }
}
