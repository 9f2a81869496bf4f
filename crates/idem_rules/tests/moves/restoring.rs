//! After a restore, a failover or a copy nothing that was open may be taken for what it looks like.

use crate::common::*;

const OPEN: [State; 5] = [State::Proposed, State::Approved, State::Started, State::Unknown, State::Retryable];

/// When the database was restored: the lease of attempt 1 runs still.
const AT: Time = T0 + 30 * SECOND;

fn restored(action: &Action, policy: &Policy) -> Action {
    moved(action, &Event::Restore, policy, AT)
}

/// As [`in_state`], at a time before [`AT`].
fn open_in(state: State, policy: &Policy) -> Action {
    match state {
        State::Unknown => {
            let mut action = started(policy);
            if policy.marks_dispatch {
                action = moved(&action, &dispatch(caller(1)), policy, T0 + SECOND);
            }
            moved(&action, &Event::MarkUnknown(caller(1)), policy, T0 + SECOND)
        }
        other => in_state(other, policy),
    }
}

#[test]
fn whatever_is_open_becomes_unknown() {
    for policy in [careful(), windowed(), marking(), approving(), policy(Class::ReadOnly)] {
        for state in OPEN {
            let before = open_in(state, &policy);
            let step = step(&before, &Event::Restore, &policy, AT);
            assert_eq!((step.answer, &step.events[..]), (Answer::State(State::Unknown), &["restored"][..]));
            let row = step.next.unwrap();
            assert_eq!((row.state, row.attempt), (State::Unknown, before.attempt));
            assert!(row.flags.restored && row.flags.open_before && !row.flags.own_closed, "{state:?}");
            assert!(row.flags.open_dispatched && row.flags.ever_dispatched);
            assert_eq!((row.attempt_id, row.reconcile_id), (None, None));
            assert_eq!((row.lease_expires_at, row.reconcile_lease_expires_at), (None, None));
            assert_eq!((row.due_at, row.deadline_at), (Some(AT), Some(AT + policy.resolve_deadline)));
            // A worker of before may be sending until its lease ends.
            let settles = if state == State::Started || state == State::Unknown { T0 + LEASE } else { AT };
            assert_eq!(row.settle_from, Some(settles), "{state:?}");
            assert_eq!((row.probes, row.probe_tries, row.probed_at), (0, 0, None));
        }
    }
}

#[test]
fn what_is_ended_stays_as_it_is() {
    for state in [State::Committed, State::Failed, State::Rejected, State::Expired] {
        let step = step(&in_state(state, &careful()), &Event::Restore, &careful(), AT);
        assert_eq!(step, Step::unchanged(Answer::Nothing));
    }
}

#[test]
fn attempts_that_were_running_stand_in_the_history() {
    let step_of = |action: &Action| step(action, &Event::Restore, &careful(), AT);
    let ended = &step_of(&started(&careful())).ended[0];
    assert_eq!((ended.attempt_id, ended.outcome, ended.reconciling), (token(1), "restored", false));
    let lost = open_in(State::Unknown, &careful());
    let probed = moved(&lost, &Event::Reserve(prober(100)), &careful(), T0 + 2 * SECOND);
    let ended = &step_of(&probed).ended[0];
    assert_eq!((ended.attempt_id, ended.outcome, ended.reconciling), (token(100), "restored", true));
    // The others ended before and stand there already.
    assert!(step_of(&lost).ended.is_empty());
    assert!(step_of(&retryable(&careful())).ended.is_empty());
}

#[test]
fn only_what_repeats_freely_repeats_before_a_disproof() {
    for state in OPEN {
        for policy in [careful(), windowed(), marking(), policy(Class::Reversible)] {
            let row = restored(&open_in(state, &policy), &policy);
            for now in [AT, AT + LEASE] {
                assert_eq!(told(&row, ask(2), &policy, now), (Decision::Unknown, false), "{state:?}");
                assert_eq!(told(&row, prober(2), &policy, now).0, Decision::Reconcile);
            }
        }
    }
    let free = policy(Class::IdempotentMutation);
    for state in [State::Started, State::Unknown, State::Retryable] {
        let row = restored(&open_in(state, &free), &free);
        let next = moved(&row, &Event::Reserve(ask(2)), &free, AT);
        assert_eq!((next.state, next.flags.restored), (State::Started, true));
        // A definite failure of the new attempt says nothing about what was forgotten.
        let failed = moved(&next, &Event::Fail(refusal(caller(2))), &free, AT + SECOND);
        assert_eq!(failed.state, State::Unknown);
        assert_eq!(moved(&next, &commit(caller(2)), &free, AT + SECOND).state, State::Committed);
    }
}

#[test]
fn attempts_of_before_own_nothing() {
    let policy = careful();
    let row = restored(&started(&policy), &policy);
    for event in [
        commit(earlier(1)),
        Event::MarkUnknown(earlier(1)),
        Event::Fail(refusal(earlier(1))),
        Event::Fail(Fail { proof: Proof::NotSent, ..refusal(earlier(1)) }),
        Event::Renew(earlier(1), None),
        Event::Release(earlier(1)),
        dispatch(earlier(1)),
    ] {
        assert_eq!(refused(&row, &event, &policy, AT), Code::LostAttempt, "{event:?}");
    }
    // What it saw counts, and no look-up can say the contrary any more.
    let seen = moved(&row, &record(earlier(1)), &policy, AT);
    assert!(seen.flags.positive_evidence);
    assert_eq!(seen.state, State::Unknown);
    let seen = moved(&row, &evidence(earlier(1), Finding::Applied), &policy, AT);
    assert!(seen.flags.positive_evidence);
    // A reconciler of before has no lease any more.
    let lost = open_in(State::Unknown, &policy);
    let probed = moved(&lost, &Event::Reserve(prober(100)), &policy, T0 + 2 * SECOND);
    let row = restored(&probed, &policy);
    let found = Event::Resolve(Resolve {
        caller: earlier(100),
        finding: Finding::NotApplied,
        resource_id: None,
        next_probe: None,
        random: 0.5,
    });
    assert_eq!(refused(&row, &found, &policy, AT), Code::LostAttempt);
}

#[test]
fn an_attempt_of_after_may_commit_late() {
    let free = policy(Class::IdempotentMutation);
    let row = restored(&started(&free), &free);
    let next = moved(&row, &Event::Reserve(ask(2)), &free, AT);
    let lapsed = moved(&next, &VISIT, &free, AT + LEASE);
    assert_eq!(moved(&lapsed, &commit(caller(2)), &free, AT + LEASE).state, State::Committed);
}

#[test]
fn an_approval_of_before_is_none() {
    let policy = Policy { probes_required: 1, settle_delay: 0, ..approving() };
    let reversible = Policy { class: Class::Reversible, ..policy };
    for state in [State::Proposed, State::Approved, State::Retryable] {
        let row = restored(&open_in(state, &reversible), &reversible);
        assert_eq!(row.approval_expires_at, None);
        let probed = moved(&row, &Event::Reserve(prober(100)), &reversible, AT);
        let row = moved(&probed, &found(100, Finding::NotApplied), &reversible, AT + SECOND);
        assert_eq!((row.state, row.flags.restored), (State::Retryable, false));
        assert_eq!(told(&row, ask(2), &reversible, AT + SECOND), (Decision::Review, false), "{state:?}");
        let again = moved(&row, &Event::Approve(approval()), &reversible, AT + SECOND);
        assert_eq!(told(&again, ask(2), &reversible, AT + SECOND).0, Decision::Execute);
    }
}

#[test]
fn what_people_and_reports_said_stays() {
    let policy = careful();
    let said = flagged(open_in(State::Unknown, &policy), |flags| {
        flags.positive_evidence = true;
        flags.discrepancy = true;
        flags.escalated = true;
        flags.withdrawn = true;
    });
    let flags = restored(&said, &policy).flags;
    assert!(flags.positive_evidence && flags.discrepancy && flags.escalated && flags.withdrawn);
}

#[test]
fn an_outcome_that_its_owner_closed_is_open_again() {
    let policy = careful();
    let closed = flagged(open_in(State::Unknown, &policy), |flags| flags.own_closed = true);
    assert!(!restored(&closed, &policy).flags.own_closed);
}
