//! Approval: bound to one request under one policy; refusing, withdrawing, cancelling.

use idem_rules::policy::Distinct;

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

/// Whether `approver` may approve what `proposer` put forward.
fn apart(distinct: Distinct, proposer: Option<Person<'static>>, approver: Person<'static>) -> bool {
    let policy = Policy { distinct_approver: distinct, ..approving() };
    let event = approve(Approve { proposer, approver, ..approval() });
    match transition(Some(&proposed(&policy)), &event, Policies::same(&policy), T0) {
        Ok(step) => step.next.unwrap().state == State::Approved,
        Err(error) => {
            assert_eq!(error.code, Code::NotAllowed);
            false
        }
    }
}

#[test]
fn approve_needs_two_roles() {
    let role = |proposer, approver| apart(Distinct::Role, proposer, approver);
    let app = Some(person("app", "app_login"));
    assert!(role(app, person("boss", "boss_login")));
    // One login under two roles, two logins under one role, and nobody on record.
    assert!(!role(app, person("boss", "app_login")));
    assert!(!role(app, person("app", "boss_login")));
    assert!(!role(app, person("app", "app_login")));
    assert!(!role(None, person("boss", "boss_login")));
}

#[test]
fn approve_needs_two_names_where_the_type_says_so() {
    let named = |name| Person { name: Some(name), ..person("app", "app_login") };
    let name = |proposer, approver| apart(Distinct::Name, proposer, approver);
    assert!(name(Some(named("ann")), named("bob")));
    for same in ["ann", "Ann", " ann "] {
        assert!(!name(Some(named("ann")), named(same)), "{same:?}");
    }
    assert!(!name(Some(named("ann")), person("boss", "boss_login")));
    assert!(!name(Some(person("app", "app_login")), named("bob")));
    assert!(!name(None, named("bob")));
    let nobody = person("app", "app_login");
    assert!(apart(Distinct::None, Some(nobody), nobody) && apart(Distinct::None, None, nobody));
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

/// A type that asks for approval in every version.
fn version(version: i32) -> Policy {
    Policy { version, ..approving() }
}

/// What a caller with the n-th token is told, and the row afterwards, when the type has gone from one policy to another.
fn told_under(action: &Action, n: u128, granted: &Policy, current: &Policy) -> (Decision, Action) {
    let policies = Policies { granted, current };
    let step = transition(Some(action), &Event::Reserve(ask(n)), policies, T0 + 20 * SECOND).unwrap();
    (decision(&step), step.next.unwrap_or_else(|| action.clone()))
}

#[test]
fn approval_is_for_one_version_of_the_policy() {
    let (one, two) = (version(1), version(2));
    // Something was sent once, so the row cannot be called unstarted: a person renews the approval.
    let tried = retryable(&one);
    assert_eq!(told_under(&tried, 2, &one, &one).0, Decision::Execute);
    assert_eq!(told_under(&tried, 2, &one, &two), (Decision::Review, tried.clone()));
    let policies = Policies { granted: &one, current: &two };
    let step = transition(Some(&tried), &approve(approval()), policies, T0 + 20 * SECOND).unwrap();
    let renewed = step.next.unwrap();
    assert_eq!((renewed.policy_version, renewed.approval_policy_version), (1, Some(2)));
    assert_eq!(told_under(&renewed, 2, &one, &two).0, Decision::Execute);
    assert_eq!(told_under(&renewed, 2, &one, &version(3)).0, Decision::Review);
}

#[test]
fn an_approval_under_another_policy_is_asked_for_again_by_whoever_comes() {
    let (one, two) = (version(1), version(2));
    let policies = Policies { granted: &one, current: &two };
    // Those too who could not start it: who only proposes, and who finds that a message carries it.
    let carried = Ask { carried: true, ..ask(1) };
    for event in [Event::Reserve(ask(1)), Event::Reserve(carried), Event::Propose(ask(1))] {
        let step = transition(Some(&approved(&one)), &event, policies, T0).unwrap();
        assert_eq!(decision(&step), Decision::AwaitingApproval);
        let row = step.next.unwrap();
        assert_eq!((row.state, row.policy_version), (State::Proposed, 2));
    }
}

#[test]
fn approval_is_asked_for_again_where_nothing_was_sent() {
    let (one, two) = (version(1), version(2));
    let released = moved(&started(&one), &Event::Release(caller(1)), &one, T0);
    let silent = moved(&started(&one), &VISIT, &one, T0 + LEASE);
    let dead = Action { lease_expires_at: Some(T0), ..started(&one) };
    let twice = flagged(silent.clone(), |flags| flags.open_before = true);
    for action in [released, silent, twice, dead] {
        let now = action.due_at.unwrap_or(T0 + 20 * SECOND);
        let policies = Policies { granted: &one, current: &two };
        let step = transition(Some(&action), &Event::Reserve(ask(2)), policies, now).unwrap();
        assert_eq!(decision(&step), Decision::AwaitingApproval);
        let row = step.next.unwrap();
        assert_eq!(row.state, State::Proposed);
        assert_eq!((row.policy_version, row.approval_policy_version), (2, None));
        assert_eq!(row.approval_expires_at, Some(now + two.approval_ttl));
        assert!(!row.flags.open_before && !row.flags.open_dispatched && row.deadline_at.is_none());
        let approved = moved(&row, &approve(approval()), &two, now);
        let again = moved(&approved, &Event::Reserve(ask(2)), &two, now);
        assert_eq!((again.state, again.attempt, again.flags.open_before), (State::Started, 2, false));
    }
}

#[test]
fn attempt_under_way_keeps_the_approval_it_was_granted_under() {
    let (one, two) = (version(1), version(2));
    let running = started(&one);
    assert_eq!(told_under(&running, 1, &one, &two), (Decision::Resume, running.clone()));
    let policies = Policies { granted: &one, current: &two };
    assert!(transition(Some(&running), &dispatch(caller(1)), policies, T0 + SECOND).is_ok());
    // One that needed none cannot have any: it gives way to the new policy.
    let free = marking();
    let policies = Policies { granted: &free, current: &two };
    let error = transition(Some(&started(&free)), &dispatch(caller(1)), policies, T0 + SECOND).unwrap_err();
    assert_eq!(error.code, Code::NotApproved);
    assert_eq!(told_under(&started(&free), 1, &free, &two).1.state, State::Proposed);
    // And one that needed one needs it still.
    let lapsed = Action { approval_expires_at: Some(T0), ..running };
    let policies = Policies { granted: &one, current: &free };
    let error = transition(Some(&lapsed), &dispatch(caller(1)), policies, T0 + SECOND).unwrap_err();
    assert_eq!(error.code, Code::NotApproved);
}

#[test]
fn withdrawn_attempt_leaves_nothing_that_could_be_tried_again() {
    let policy = approving();
    let running = withdraw(&started(&policy), &policy).1;
    let not_sent = Event::Fail(Fail { proof: Proof::NotSent, ..refusal(caller(1)) });
    for (event, state) in [
        (Event::Release(caller(1)), State::Rejected),
        (not_sent, State::Rejected),
        (Event::Fail(Fail { retryable: false, ..refusal(caller(1)) }), State::Failed),
    ] {
        let row = moved(&running, &event, &policy, T0 + 3 * SECOND);
        assert_eq!(row.state, state, "{event:?}");
        let again = step(&row, &event, &policy, T0 + 3 * SECOND);
        assert_eq!(again, Step::unchanged(Answer::State(state)));
    }
    let sent = moved(&started(&policy), &dispatch(caller(1)), &policy, T0);
    let sent = withdraw(&sent, &policy).1;
    assert_eq!(moved(&sent, &Event::Fail(refusal(caller(1))), &policy, T0 + SECOND).state, State::Failed);
    // A dead one is over with the first visit, since it never passed the gate.
    let step = step(&running, &VISIT, &policy, T0 + LEASE);
    assert_eq!((step.answer, step.ended[0].outcome), (Answer::State(State::Rejected), "superseded"));
    assert_eq!(moved(&sent, &VISIT, &policy, T0 + LEASE).state, State::Unknown);
}

#[test]
fn withdrawn_action_is_not_retried_after_a_disproof_or_by_a_verdict() {
    let policy = Policy { settle_delay: 0, probes_required: 1, ..policy(Class::Reversible) };
    let withdrawn = withdraw(&unknown(&policy), &policy).1;
    let looked = moved(&withdrawn, &Event::Reserve(prober(100)), &policy, T0 + 2 * LEASE);
    assert_eq!(
        moved(&looked, &found(100, Finding::NotApplied), &policy, T0 + 2 * LEASE).state,
        State::Failed
    );
    // A person may start it over, as with any other that was called off: without the old approval.
    let approving = approving();
    let withdrawn = withdraw(&unknown(&approving), &approving).1;
    let row = moved(&withdrawn, &decide(Verdict::Retry), &approving, T0 + 2 * LEASE);
    assert_eq!((row.state, row.flags.withdrawn, row.approval_policy_version), (State::Proposed, false, None));
}

#[test]
fn cancel_is_a_withdrawal_by_another_name() {
    let policy = careful();
    let running = started(&policy);
    let step = step(&running, &Event::Cancel, &policy, T0);
    assert_eq!((step.answer, step.events), (Answer::TooLate, vec!["cancelled"]));
    assert!(step.next.unwrap().flags.withdrawn);
}

#[test]
fn propose_grants_nothing() {
    let policy = approving();
    let propose = |n| Event::Propose(ask(n));
    let error = transition(None, &propose(1), Policies::same(&careful()), T0).unwrap_err();
    assert_eq!(error.code, Code::InvalidParameter);
    let step = transition(None, &propose(1), Policies::same(&policy), T0).unwrap();
    assert_eq!((decision(&step), step.events.clone()), (Decision::AwaitingApproval, vec!["proposed"]));
    let row = step.next.unwrap();
    assert_eq!((row.state, row.attempt_id, row.approval_policy_version), (State::Proposed, None, None));
    for (state, expected) in [
        (State::Proposed, Decision::AwaitingApproval),
        (State::Approved, Decision::Pending),
        (State::Started, Decision::Pending),
        (State::Unknown, Decision::Pending),
        (State::Retryable, Decision::Pending),
        (State::Committed, Decision::Replay),
        (State::Failed, Decision::Failed),
        (State::Rejected, Decision::Rejected),
    ] {
        let action = in_state(state, &policy);
        let step = crate::common::step(&action, &propose(2), &policy, T0 + 20 * SECOND);
        assert_eq!((decision(&step), step.next), (expected, None), "{state:?}");
    }
    let other = Event::Propose(Ask { fingerprint: OTHER, ..ask(2) });
    assert_eq!(decision(&crate::common::step(&proposed(&policy), &other, &policy, T0)), Decision::Conflict);
}
