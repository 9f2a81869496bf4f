//! The effect happened: who may say so, when, and what becomes of a report that comes too late.

use crate::common::*;

#[test]
fn started_by_its_attempt_commits() {
    let policy = careful();
    // The lease's end is no reason to refuse: nobody took over.
    for now in [T0, T0 + LEASE - 1, T0 + LEASE, T0 + DAY] {
        let step = step(&started(&policy), &commit_as(caller(1), "re_1"), &policy, now);
        assert_eq!(step.answer, Answer::Committed);
        assert!(step.ended.is_empty() && step.events.is_empty(), "a first-try commit leaves no history");
        let row = step.next.unwrap();
        assert_eq!((row.state, row.attempt_id), (State::Committed, Some(token(1))));
        assert_eq!(row.resource_id.as_deref(), Some("re_1"));
        // Retention counts from the end, not from the reservation.
        assert_eq!((row.ended_at, row.expires_at), (Some(now), Some(now + policy.ttl)));
        assert_eq!((row.due_at, row.deadline_at), (None, None));
    }
    let longer = Action { ttl: Some(policy.ttl + 5), ..started(&policy) };
    assert_eq!(moved(&longer, &commit(caller(1)), &policy, T0).expires_at, Some(T0 + policy.ttl + 5));
}

#[test]
fn started_by_a_later_attempt_commits_with_history() {
    let policy = policy(Class::ReadOnly);
    let step = step(&repeated(&policy, T0 + LEASE), &commit(caller(2)), &policy, T0 + LEASE);
    assert_eq!((step.ended[0].attempt_id, step.ended[0].outcome), (token(2), "committed"));
    assert_eq!(step.events, ["committed"]);
}

#[test]
fn started_by_anybody_else_is_refused() {
    let policy = policy(Class::ReadOnly);
    let action = repeated(&policy, T0 + LEASE);
    assert_eq!(refused(&action, &commit(earlier(1)), &policy, T0 + LEASE), Code::LostAttempt);
    assert_eq!(refused(&action, &commit(caller(900)), &policy, T0 + LEASE), Code::LostAttempt);
    // Also when the later attempt's lease is over: it may still be at it.
    assert_eq!(refused(&action, &commit(earlier(1)), &policy, T0 + DAY), Code::LostAttempt);
}

#[test]
fn unknown_by_its_attempt_commits() {
    for policy in [careful(), marking()] {
        let action = unknown(&policy);
        let step = step(&action, &commit_as(caller(1), "re_1"), &policy, T0 + LEASE);
        assert_eq!((step.answer, step.events), (Answer::Committed, vec!["committed_late"]));
        assert_eq!(step.next.unwrap().state, State::Committed);
        let escalated = moved(&action, &Event::Escalate, &policy, T0 + LEASE);
        let row = moved(&escalated, &commit(caller(1)), &policy, T0 + LEASE);
        assert_eq!((row.state, row.flags.escalated), (State::Committed, false));
    }
}

#[test]
fn unknown_by_an_earlier_attempt_commits() {
    let policy = policy(Class::ReadOnly);
    let action = moved(&repeated(&policy, T0 + LEASE), &VISIT, &policy, T0 + 2 * LEASE);
    let row = moved(&action, &commit(earlier(1)), &policy, T0 + 2 * LEASE);
    assert_eq!((row.state, row.attempt, row.attempt_id), (State::Committed, 2, Some(token(1))));
    // It owns the commit from now on; the later attempt does not.
    assert_eq!(step(&row, &commit(caller(1)), &policy, T0 + 3 * LEASE).answer, Answer::AlreadyCommitted);
    assert_eq!(refused(&row, &commit(earlier(2)), &policy, T0 + 3 * LEASE), Code::LostAttempt);
    assert_eq!(refused(&action, &commit(caller(900)), &policy, T0 + 2 * LEASE), Code::LostAttempt);
}

#[test]
fn unknown_under_a_reconcilers_lease_is_refused() {
    let policy = careful();
    let action = probed(&policy, T0 + LEASE);
    let end = T0 + 2 * LEASE;
    for who in [caller(1), earlier(2)] {
        assert_eq!(refused(&action, &commit(who), &policy, end - 1), Code::LostAttempt);
        let step = step(&action, &commit(who), &policy, end);
        assert_eq!(step.answer, Answer::Committed);
        assert_eq!((step.ended[0].attempt_id, step.ended[0].outcome), (token(100), "superseded"));
    }
    // A reconciling attempt resolves; it never commits.
    assert_eq!(refused(&action, &commit(caller(100)), &policy, T0 + LEASE), Code::IllegalMove);
    assert_eq!(refused(&action, &commit(caller(100)), &policy, end), Code::IllegalMove);
}

#[test]
fn committed_twice_by_the_same_attempt_is_harmless() {
    let policy = careful();
    for event in [commit(caller(1)), commit_as(caller(1), "re_1"), record(caller(1))] {
        for now in [T0 + SECOND, T0 + DAY] {
            let step = step(&committed(&policy), &event, &policy, now);
            assert_eq!(step, Step::unchanged(Answer::AlreadyCommitted));
        }
    }
    // Nothing was said about the resource the first time, so nothing is contradicted.
    let silent = moved(&started(&policy), &commit(caller(1)), &policy, T0);
    assert_eq!(step(&silent, &commit_as(caller(1), "re_2"), &policy, T0).answer, Answer::AlreadyCommitted);
}

#[test]
fn committed_with_another_resource_is_a_discrepancy() {
    let policy = careful();
    for who in [caller(1), earlier(2)] {
        let step = step(&committed(&policy), &commit_as(who, "re_2"), &policy, T0 + LEASE);
        assert_eq!((step.answer, step.events), (Answer::Discrepancy, vec!["discrepancy"]));
        let row = step.next.unwrap();
        assert!(row.flags.discrepancy);
        assert_eq!((row.state, row.resource_id.as_deref()), (State::Committed, Some("re_1")));
    }
    assert_eq!(refused(&committed(&policy), &commit_as(caller(900), "re_2"), &policy, T0), Code::LostAttempt);
    assert_eq!(refused(&committed(&policy), &commit(earlier(2)), &policy, T0 + LEASE), Code::LostAttempt);
}

#[test]
fn a_lost_result_is_kept_where_the_caller_asks_for_it() {
    let policy = policy(Class::ReadOnly);
    let lost = record(earlier(9));
    for state in
        [State::Started, State::Retryable, State::Failed, State::Rejected, State::Proposed, State::Approved]
    {
        let action = in_state(state, &policy);
        let step = step(&action, &lost, &policy, T0 + 2 * SECOND);
        assert_eq!((step.answer, step.events), (Answer::Superseded, vec!["discrepancy"]), "{state:?}");
        let row = step.next.unwrap();
        assert_eq!((row.state, row.flags.discrepancy), (state, true));
        assert!(row.flags.ever_dispatched);
    }
    let busy = probed(&careful(), T0 + LEASE);
    let step = step(&busy, &record(caller(1)), &careful(), T0 + LEASE);
    assert_eq!((step.answer, step.events), (Answer::Superseded, vec!["evidence"]));
    let row = step.next.unwrap();
    assert_eq!(
        (row.state, row.flags.positive_evidence, row.flags.discrepancy),
        (State::Unknown, true, false)
    );
    assert_eq!(row.reconcile_lease_expires_at, busy.reconcile_lease_expires_at);
    for state in STATES {
        let action = in_state(state, &policy);
        assert!(
            transition(Some(&action), &record(caller(900)), Policies::same(&policy), T0 + SECOND).is_err()
        );
    }
}

#[test]
fn ended_otherwise_cannot_be_committed() {
    let policy = careful();
    for state in [State::Retryable, State::Failed] {
        assert_eq!(
            refused(&in_state(state, &policy), &commit(caller(1)), &policy, T0 + LEASE),
            Code::IllegalMove
        );
    }
    let expired = expired(&policy);
    let end = expired.expires_at.unwrap();
    for event in [commit(caller(1)), record(caller(1))] {
        assert_eq!(refused(&expired, &event, &policy, end), Code::IllegalMove);
    }
}

#[test]
fn commit_without_the_mark_stands_and_is_written_down() {
    let policy = marking();
    let unmarked = step(&started(&policy), &commit(caller(1)), &policy, T0 + SECOND);
    assert_eq!((unmarked.answer, unmarked.events), (Answer::Committed, vec!["unmarked"]));
    let marked = moved(&started(&policy), &dispatch(caller(1)), &policy, T0);
    assert!(step(&marked, &commit(caller(1)), &policy, T0 + SECOND).events.is_empty());
    assert!(step(&started(&careful()), &commit(caller(1)), &careful(), T0 + SECOND).events.is_empty());
    // Late, too; but who said "unknown" has said that it may have been sent.
    let silent = moved(&started(&policy), &VISIT, &policy, T0 + LEASE);
    let late = step(&silent, &commit(caller(1)), &policy, T0 + 2 * LEASE);
    assert_eq!(late.events, ["committed_late", "unmarked"]);
    let told = moved(&started(&policy), &Event::MarkUnknown(caller(1)), &policy, T0);
    assert_eq!(step(&told, &commit(caller(1)), &policy, T0 + LEASE).events, ["committed_late"]);
}
