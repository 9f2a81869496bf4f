//! A person decides what happened, or gives an ended action another chance.

use crate::common::*;

fn open_everything(action: Action) -> Action {
    flagged(action, |flags| {
        flags.open_before = true;
        flags.open_dispatched = true;
        flags.restored = true;
        flags.positive_evidence = true;
        flags.discrepancy = true;
        flags.escalated = true;
    })
}

#[test]
fn decide_from_every_state_but_expired_closes_every_question() {
    for policy in [careful(), approving()] {
        for state in STATES.into_iter().filter(|state| *state != State::Expired) {
            let action = open_everything(in_state(state, &policy));
            let now = T0 + LEASE;
            for (verdict, ends) in [
                (Verdict::Applied, Some(State::Committed)),
                (Verdict::NotApplied, Some(State::Failed)),
                (Verdict::Retry, None),
            ] {
                let step = step(&action, &decide(verdict), &policy, now);
                assert_eq!(step.events, ["decided"]);
                let row = step.next.unwrap();
                assert_eq!(step.answer, Answer::State(row.state));
                let open = Flags { ever_dispatched: row.flags.ever_dispatched, ..Flags::default() };
                assert_eq!(row.flags, open, "{state:?} {verdict:?}");
                assert!(row.lease_expires_at.is_none() || row.state == State::Committed);
                assert_eq!(row.deadline_at, None);
                match ends {
                    Some(end) => {
                        assert_eq!((row.state, row.expires_at), (end, Some(now + policy.ttl)));
                        assert_eq!(row.ended_at, Some(now));
                    }
                    None => {
                        assert!(matches!(row.state, State::Retryable | State::Proposed));
                        assert_eq!((row.expires_at, row.ended_at, row.counted_attempts()), (None, None, 0));
                    }
                }
            }
        }
    }
}

#[test]
fn decide_is_refused_once_retention_is_over() {
    let policy = careful();
    let action = committed(&policy);
    let end = action.expires_at.unwrap();
    assert_eq!(moved(&action, &decide(Verdict::NotApplied), &policy, end - 1).state, State::Failed);
    assert_eq!(refused(&action, &decide(Verdict::NotApplied), &policy, end), Code::IllegalMove);
    assert_eq!(refused(&expired(&policy), &decide(Verdict::Retry), &policy, end), Code::IllegalMove);
}

#[test]
fn decide_names_the_resource() {
    let event = Event::Decide(Decide { verdict: Verdict::Applied, resource_id: Some("re_2") });
    for (action, silent) in [(unknown(&careful()), None), (committed(&careful()), Some("re_1"))] {
        let row = moved(&action, &event, &careful(), T0 + LEASE);
        assert_eq!(row.resource_id.as_deref(), Some("re_2"));
        let row = moved(&action, &decide(Verdict::Applied), &careful(), T0 + LEASE);
        assert_eq!(row.resource_id.as_deref(), silent);
        // What did not happen made nothing.
        for verdict in [Verdict::NotApplied, Verdict::Retry] {
            assert_eq!(moved(&action, &decide(verdict), &careful(), T0 + LEASE).resource_id, None);
        }
    }
}

#[test]
fn decide_takes_the_action_from_whoever_runs() {
    let policy = careful();
    let running = step(&started(&policy), &decide(Verdict::NotApplied), &policy, T0);
    assert_eq!((running.ended[0].attempt_id, running.ended[0].outcome), (token(1), "superseded"));
    assert_eq!(refused(&running.next.unwrap(), &commit(caller(1)), &policy, T0), Code::IllegalMove);
    let busy = step(&probed(&policy, T0 + LEASE), &decide(Verdict::Retry), &policy, T0 + LEASE);
    assert_eq!((busy.ended[0].attempt_id, busy.ended[0].reconciling), (token(100), true));
    assert_eq!(told(&busy.next.unwrap(), ask(2), &policy, T0 + LEASE).0, Decision::Execute);
}

#[test]
fn decide_to_retry_is_no_approval() {
    let policy = approving();
    for state in [State::Proposed, State::Approved, State::Committed, State::Failed, State::Rejected] {
        let row = moved(&in_state(state, &policy), &decide(Verdict::Retry), &policy, T0 + 2 * SECOND);
        assert_eq!(row.state, State::Proposed, "{state:?}");
        assert_eq!(row.approval_expires_at, Some(T0 + 2 * SECOND + policy.approval_ttl));
        assert_eq!(told(&row, ask(2), &policy, T0 + LEASE), (Decision::AwaitingApproval, false));
    }
    // What an attempt was under way for goes on under its own approval, for as long as that holds.
    for state in [State::Started, State::Unknown, State::Retryable] {
        let action = in_state(state, &policy);
        let row = moved(&action, &decide(Verdict::Retry), &policy, T0 + LEASE);
        assert_eq!((row.state, row.approval_expires_at), (State::Retryable, action.approval_expires_at));
        assert_eq!(told(&row, ask(2), &policy, T0 + policy.approval_ttl - 1).0, Decision::Execute);
        assert_ne!(told(&row, ask(2), &policy, T0 + policy.approval_ttl).0, Decision::Execute);
    }
    // A proposal's time that is not over yet is no approval either when the type needs none any more.
    let loose = Policy { version: 2, ..careful() };
    let policies = Policies { granted: &policy, current: &loose };
    let step = transition(Some(&rejected(&policy)), &decide(Verdict::Retry), policies, T0 + LEASE).unwrap();
    let row = step.next.unwrap();
    assert_eq!((row.state, row.approval_expires_at, row.policy_version), (State::Retryable, None, 2));
}

#[test]
fn reopen_failed_or_rejected() {
    let policy = careful();
    for action in [failed(&policy), rejected(&policy)] {
        let attempts = action.attempt;
        let step = step(&action, &Event::Reopen, &policy, T0 + DAY);
        assert_eq!((step.answer, step.events), (Answer::State(State::Retryable), vec!["reopened"]));
        let row = step.next.unwrap();
        assert_eq!((row.state, row.due_at), (State::Retryable, Some(T0 + DAY)));
        assert_eq!((row.attempt, row.counted_attempts()), (attempts, 0), "max_attempts anew");
        assert_eq!((row.ended_at, row.expires_at), (None, None));
        assert_eq!(told(&row, ask(5), &policy, T0 + DAY).0, Decision::Execute);
    }
}

#[test]
fn reopen_needs_approval_where_the_type_does() {
    let policy = approving();
    let now = T0 + DAY;
    for action in [failed(&policy), rejected(&policy)] {
        let row = moved(&action, &Event::Reopen, &policy, now);
        assert_eq!((row.state, row.policy_version, row.due_at), (State::Proposed, 1, None));
        assert_eq!(row.approval_expires_at, Some(now + policy.approval_ttl));
        assert_eq!(told(&row, ask(5), &policy, now).0, Decision::AwaitingApproval);
        let approved = moved(&row, &Event::Approve(approval()), &policy, now);
        assert_eq!(told(&approved, ask(5), &policy, now).0, Decision::Execute);
    }
}

#[test]
fn reopen_forgets_the_withdrawal() {
    let policy = approving();
    let withdrawn = moved(&approved(&policy), &Event::Withdraw, &policy, T0);
    assert!(withdrawn.flags.withdrawn);
    let row = moved(&withdrawn, &Event::Reopen, &policy, T0);
    assert!(!row.flags.withdrawn);
    assert_eq!(moved(&row, &Event::Approve(approval()), &policy, T0).state, State::Approved);
}

#[test]
fn reopen_is_refused_under_a_discrepancy_and_elsewhere() {
    let policy = careful();
    for action in [failed(&policy), rejected(&policy)] {
        let disputed = moved(&action, &evidence(earlier(9), Finding::Applied), &policy, T0 + LEASE);
        assert_eq!(refused(&disputed, &Event::Reopen, &policy, T0 + LEASE), Code::Discrepancy);
        let end = action.expires_at.unwrap();
        assert_eq!(moved(&action, &Event::Reopen, &policy, end - 1).state, State::Retryable);
        assert_eq!(refused(&action, &Event::Reopen, &policy, end), Code::IllegalMove);
    }
    for state in STATES.into_iter().filter(|state| !matches!(state, State::Failed | State::Rejected)) {
        assert_eq!(
            refused(&in_state(state, &policy), &Event::Reopen, &policy, T0),
            Code::IllegalMove,
            "{state:?}"
        );
    }
}
