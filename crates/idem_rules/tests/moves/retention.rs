//! What time alone does, and where an action waits meanwhile.

use idem_rules::expiry::{Open, Queue, REMOVE_AFTER, SCRUB_AFTER, open};

use crate::common::*;

fn visited(action: &Action, policy: &Policy, now: Time) -> Step {
    step(action, &VISIT, policy, now)
}

fn nothing() -> Step {
    Step::unchanged(Answer::Nothing)
}

#[test]
fn visit_turns_a_started_action_whose_lease_is_over_into_unknown() {
    for policy in [careful(), policy(Class::ReadOnly), marking()] {
        assert_eq!(visited(&started(&policy), &policy, T0 + LEASE - 1), nothing());
        let step = visited(&started(&policy), &policy, T0 + LEASE);
        assert_eq!((step.answer, step.events), (Answer::State(State::Unknown), vec!["lapsed"]));
        assert_eq!((step.ended[0].attempt_id, step.ended[0].outcome), (token(1), "lapsed"));
        let row = step.next.unwrap();
        assert_eq!((row.attempt, row.fence, row.due_at), (1, T0, Some(T0 + LEASE)));
        assert_eq!(row.flags.open_dispatched, !policy.marks_dispatch);
        // However late the worker is, the outcome is open since the lease's end.
        let late = visited(&started(&policy), &policy, T0 + DAY).next.unwrap();
        assert_eq!(late, row);
    }
}

#[test]
fn visit_rejects_what_was_not_approved_or_started_in_time() {
    let policy = approving();
    let lapse = T0 + policy.approval_ttl;
    for action in [proposed(&policy), approved(&policy)] {
        assert_eq!(visited(&action, &policy, lapse - 1), nothing());
        let step = visited(&action, &policy, lapse);
        assert_eq!((step.answer, step.events), (Answer::State(State::Rejected), vec!["lapsed"]));
        assert_eq!(step.next.unwrap().expires_at, Some(lapse + policy.ttl));
    }
    // The type needs no approval any more, the proposal lapses all the same.
    assert_eq!(visited(&proposed(&policy), &careful(), lapse).answer, Answer::State(State::Rejected));
}

#[test]
fn visit_escalates_what_was_not_resolved_in_time() {
    let policy = careful();
    let deadline = T0 + LEASE + policy.resolve_deadline;
    assert_eq!(visited(&unknown(&policy), &policy, deadline - 1), nothing());
    let step = visited(&unknown(&policy), &policy, deadline);
    assert_eq!((step.answer, step.events), (Answer::State(State::Unknown), vec!["escalated"]));
    let row = step.next.unwrap();
    assert!(row.flags.escalated);
    assert_eq!(visited(&row, &policy, deadline), nothing());
}

#[test]
fn visit_leaves_a_tombstone_and_then_nothing() {
    let policy = Policy { ttl: 10 * SECOND, tombstone_ttl: 20 * SECOND, ..careful() };
    for state in [State::Committed, State::Failed, State::Rejected] {
        let action = in_state(state, &policy);
        let end = action.ended_at.unwrap() + policy.ttl;
        assert_eq!(visited(&action, &policy, end - 1), nothing());
        // However late the worker is, the tombstone's time began when retention ended.
        for now in [end, end + 5 * SECOND] {
            let step = visited(&action, &policy, now);
            assert_eq!(step.answer, Answer::State(State::Expired));
            let row = step.next.unwrap();
            assert_eq!((row.state, row.expires_at), (State::Expired, Some(end + policy.tombstone_ttl)));
            assert_eq!((row.fingerprint, row.resource_id.clone()), (action.fingerprint, None));
            assert_eq!(visited(&row, &policy, end + policy.tombstone_ttl - 1), nothing());
            let gone = visited(&row, &policy, end + policy.tombstone_ttl);
            assert_eq!(gone, Step::unchanged(Answer::Remove));
        }
    }
}

#[test]
fn visit_never_ends_an_action_that_is_not_terminal() {
    let policy = careful();
    let ages = T0 + 10_000 * DAY;
    for state in [State::Started, State::Unknown, State::Retryable] {
        let row = visited(&in_state(state, &policy), &policy, ages).next;
        assert!(row.is_none_or(|row| !row.state.is_terminal()), "{state:?}");
    }
}

#[test]
fn open_lists_what_waits_for_somebody() {
    let policy = approving();
    let now = T0 + 2 * LEASE;
    let lapse = Some(T0 + policy.approval_ttl);
    let place = |queue, due_at, visit_at| Some(Open { queue, due_at, visit_at });
    assert_eq!(open(&proposed(&policy), now), place(Queue::Approval, T0, lapse));
    assert_eq!(open(&approved(&policy), now), place(Queue::Execution, now, lapse));
    assert_eq!(open(&retryable(&policy), now), place(Queue::Execution, T0 + 11 * SECOND, None));
    let unknown = unknown(&policy);
    let deadline = unknown.deadline_at;
    assert_eq!(open(&unknown, now), place(Queue::Reconciliation, T0 + LEASE, deadline));
    let escalated = moved(&unknown, &Event::Escalate, &policy, now);
    assert_eq!(open(&escalated, now), place(Queue::Review, T0 + LEASE, None));
}

#[test]
fn open_needs_no_place_for_a_first_attempt_within_its_first_lease() {
    let policy = careful();
    assert_eq!(open(&started(&policy), T0), None);
    let renewed = moved(&started(&policy), &Event::Renew(caller(1), None), &policy, T0 + 1);
    let end = Some(T0 + 1 + LEASE);
    let place = Open { queue: Queue::Lease, due_at: T0 + 1 + LEASE, visit_at: end };
    assert_eq!(open(&renewed, T0 + 1), Some(place));
    // The lease ends long before the worker would come by for the proposal.
    let started = started(&approving());
    assert!(started.lease_expires_at < Some(started.visit_at));
    let place = Open { queue: Queue::Lease, due_at: T0 + LEASE, visit_at: Some(T0 + LEASE) };
    assert_eq!(open(&started, T0), Some(place));
}

#[test]
fn open_notes_an_ended_action_only_where_the_cursors_come_at_the_wrong_time() {
    let policy = careful();
    let action = committed(&policy);
    // The first visit comes whatever happens.
    assert_eq!(open(&action, action.visit_at - 1), None);
    // Retention as long as the cursor waits: nothing to note.
    assert_eq!(open(&action, action.visit_at), None);
    let passes = action.visit_at + SCRUB_AFTER;
    assert_eq!(open(&action, passes - 1), None);
    let noted = |action: &Action| {
        let due = action.expires_at.unwrap();
        Some(Open { queue: Queue::Expiry, due_at: due, visit_at: Some(due) })
    };
    assert_eq!(open(&action, passes), noted(&action), "the cursor is past it");
    let at = |expires| Action { expires_at: Some(expires), ..action.clone() };
    assert_eq!(open(&at(passes), action.visit_at), None);
    assert_eq!(open(&at(passes + 1), action.visit_at), noted(&at(passes + 1)), "kept for longer");
    assert_eq!(open(&at(passes - DAY), action.visit_at), None);
    assert_eq!(open(&at(passes - DAY - 1), action.visit_at), noted(&at(passes - DAY - 1)), "kept for less");
}

#[test]
fn open_follows_a_tombstone_by_the_removing_cursor() {
    let policy = careful();
    let action = expired(&policy);
    let passes = action.visit_at + REMOVE_AFTER;
    assert_eq!(open(&action, passes - 1), None);
    assert!(open(&action, passes).is_some());
}
