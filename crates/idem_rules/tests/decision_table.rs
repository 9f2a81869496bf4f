//! The decision table of idem_reserve: one test for every row, with its boundary instants.

mod common;

use common::*;

/// The reconciling attempt's lease has its own length, so that no test mixes it up with the attempt's.
fn short(ask: Ask) -> Ask {
    Ask { lease: Some(20 * SECOND), ..ask }
}

#[test]
fn nothing_without_approval_executes() {
    let step = first(ask(1), &careful(), T0);
    assert_eq!(decision(&step), Decision::Execute);
    let row = step.next.unwrap();
    assert_eq!((row.state, row.attempt, row.attempt_id), (State::Started, 1, Some(token(1))));
    assert_eq!((row.fence, row.lease_expires_at), (T0, Some(T0 + LEASE)));
    assert_eq!((row.created_at, row.visit_at, row.policy_version), (T0, T0 + LEASE, 1));
    assert_eq!((row.fingerprint, row.scheme), (FINGERPRINT, 1));
    assert_eq!(row.flags, Flags::default());
    // Nothing that the hot path does not need: no history, no event.
    assert!(step.ended.is_empty() && step.events.is_empty());

    let held = Event::Reserve(Ask { held: true, ..ask(1) });
    assert_eq!(transition(None, &held, Policies::same(&careful()), T0).unwrap_err().code, Code::Held);
}

#[test]
fn any_state_other_fingerprint_conflicts() {
    for policy in [careful(), windowed(), policy(Class::ReadOnly), approving()] {
        for state in STATES {
            let action = in_state(state, &policy);
            // Before and after every boundary: lease, approval, retention, tombstone.
            for now in [T0 + 2 * SECOND, T0 + LEASE, T0 + 4000 * SECOND, T0 + 60 * DAY, T0 + 300 * DAY] {
                for changed in [
                    Ask { fingerprint: OTHER, ..prober(2) },
                    Ask { scheme: 2, ..prober(2) },
                    // The owner's own token opens nothing, nor does a hold or a message hide it.
                    Ask { fingerprint: OTHER, carried: true, held: true, ..ask(1) },
                ] {
                    let step = step(&action, &Event::Reserve(changed), &policy, now);
                    assert_eq!(
                        step,
                        Step::unchanged(Answer::Decided(Decision::Conflict, None)),
                        "{state:?} {now}"
                    );
                }
            }
        }
    }
}

#[test]
fn proposed_or_approved_lapsed_is_rejected() {
    let policy = approving();
    let end = T0 + policy.approval_ttl;
    for (state, before) in
        [(State::Proposed, Decision::AwaitingApproval), (State::Approved, Decision::Execute)]
    {
        let action = in_state(state, &policy);
        assert_eq!(told(&action, ask(2), &policy, end - 1).0, before);
        for asked in [ask(2), Ask { carried: true, ..ask(2) }] {
            let step = step(&action, &Event::Reserve(asked), &policy, end);
            assert_eq!(decision(&step), Decision::Rejected);
            let row = step.next.unwrap();
            assert_eq!((row.state, row.ended_at, row.attempt), (State::Rejected, Some(end), 0));
            assert_eq!(row.expires_at, Some(end + policy.ttl));
            assert_eq!(step.events, ["lapsed"]);
        }
    }
}

#[test]
fn nothing_with_approval_awaits_it() {
    let policy = approving();
    // Proposing is no effect, so a hold does not stand against it.
    for asked in [ask(1), Ask { held: true, ..ask(1) }] {
        let step = first(asked, &policy, T0);
        assert_eq!(decision(&step), Decision::AwaitingApproval);
        assert_eq!(step.events, ["proposed"]);
        let row = step.next.unwrap();
        assert_eq!((row.state, row.attempt, row.attempt_id, row.fence), (State::Proposed, 0, None, 0));
        assert_eq!(row.approval_expires_at, Some(T0 + policy.approval_ttl));
        assert_eq!(row.visit_at, T0 + policy.approval_ttl);
    }
}

#[test]
fn proposed_awaits_approval() {
    let policy = approving();
    for asked in [ask(1), prober(2), Ask { carried: true, held: true, ..ask(2) }] {
        assert_eq!(told(&proposed(&policy), asked, &policy, T0), (Decision::AwaitingApproval, false));
    }
    // Also where the type asks for no approval any more: the proposal was made, a person answers it.
    assert_eq!(told(&proposed(&policy), ask(1), &careful(), T0), (Decision::AwaitingApproval, false));
}

#[test]
fn approved_valid_executes() {
    let policy = approving();
    let now = T0 + 5 * SECOND;
    let step = step(&approved(&policy), &Event::Reserve(ask(1)), &policy, now);
    assert_eq!(decision(&step), Decision::Execute);
    let row = step.next.unwrap();
    assert_eq!((row.state, row.attempt, row.attempt_id), (State::Started, 1, Some(token(1))));
    assert_eq!((row.fence, row.lease_expires_at), (now, Some(now + LEASE)));
    assert!(!row.flags.open_before);
}

#[test]
fn approved_under_another_policy_version_awaits_approval_again() {
    let old = approving();
    let new = Policy { version: 2, approval_ttl: 60 * SECOND, ..approving() };
    let policies = Policies { granted: &old, current: &new };
    let now = T0 + 5 * SECOND;
    let step = transition(Some(&approved(&old)), &Event::Reserve(ask(1)), policies, now).unwrap();
    assert_eq!(decision(&step), Decision::AwaitingApproval);
    let row = step.next.unwrap();
    assert_eq!((row.state, row.policy_version), (State::Proposed, 2));
    assert_eq!(row.approval_expires_at, Some(now + 60 * SECOND));
}

#[test]
fn any_open_carried_is_pending() {
    let carried = Ask { carried: true, ..prober(2) };
    for policy in [careful(), windowed(), policy(Class::ReadOnly)] {
        for state in [State::Approved, State::Started, State::Unknown, State::Retryable] {
            let action = in_state(state, &policy);
            for now in [T0 + 20 * SECOND, T0 + LEASE, T0 + 100 * SECOND] {
                assert_eq!(told(&action, carried, &policy, now), (Decision::Pending, false), "{state:?}");
            }
        }
        // An ended action is not open.
        assert_eq!(told(&committed(&policy), carried, &policy, T0 + LEASE).0, Decision::Replay);
    }
    // The attempt's own token resumes nothing that a message carries.
    assert_eq!(
        told(&started(&careful()), Ask { carried: true, ..ask(1) }, &careful(), T0).0,
        Decision::Pending
    );
}

#[test]
fn started_alive_same_attempt_resumes() {
    let mine = Ask { attempt_id_used: true, ..ask(1) };
    // It had to mark its dispatch and has not.
    for policy in [marking(), approving()] {
        let action = started(&policy);
        assert_eq!(told(&action, mine, &policy, T0 + LEASE - 1), (Decision::Resume, false));
        let sent = moved(&action, &dispatch(caller(1)), &policy, T0 + SECOND);
        assert_eq!(told(&sent, mine, &policy, T0 + SECOND).0, Decision::Pending);
    }
    // The type may repeat.
    for class in [Class::ReadOnly, Class::IdempotentMutation] {
        let policy = policy(class);
        assert_eq!(told(&started(&policy), mine, &policy, T0 + LEASE - 1), (Decision::Resume, false));
    }
    // It may not: it may have been sent already.
    for class in [Class::DeduplicatedCreation, Class::Reversible, Class::Irreversible] {
        let policy = policy(class);
        assert_eq!(told(&started(&policy), mine, &policy, T0), (Decision::Pending, false));
    }
    // Another token resumes nothing.
    assert_eq!(told(&started(&marking()), ask(2), &marking(), T0).0, Decision::Pending);
}

#[test]
fn started_alive_resumes_only_a_lease_that_ends_inside_the_window() {
    let mine = Ask { attempt_id_used: true, lease: Some(SECOND), ..ask(1) };
    for (window, expected) in [(LEASE, Decision::Resume), (LEASE - 1, Decision::Pending)] {
        let policy = Policy { provider_key_window: window, ..careful() };
        // Asking for a shorter lease does not shorten the one that is given back.
        assert_eq!(told(&started(&policy), mine, &policy, T0 + SECOND), (expected, false));
        let long = Ask { lease: None, ..mine };
        assert_eq!(told(&started(&policy), long, &policy, T0 + 30 * SECOND), (expected, false));
    }
}

#[test]
fn started_alive_is_pending() {
    for policy in [careful(), policy(Class::ReadOnly), windowed(), marking()] {
        let step = step(&started(&policy), &Event::Reserve(prober(2)), &policy, T0 + LEASE - 1);
        assert_eq!(step, Step::unchanged(Answer::Decided(Decision::Pending, Some(1))));
    }
}

#[test]
fn started_over_may_repeat_executes() {
    for policy in [policy(Class::ReadOnly), policy(Class::IdempotentMutation), windowed(), marking()] {
        let step = step(&started(&policy), &Event::Reserve(ask(2)), &policy, T0 + LEASE);
        assert_eq!(decision(&step), Decision::Execute, "{policy:?}");
        let row = step.next.unwrap();
        assert_eq!((row.state, row.attempt, row.attempt_id), (State::Started, 2, Some(token(2))));
        assert_eq!(row.lease_expires_at, Some(T0 + 2 * LEASE));
        assert!(row.flags.open_before, "the outcome of attempt 1 stays open");
        assert_eq!((step.ended[0].attempt_id, step.ended[0].outcome), (token(1), "lapsed"));
    }
}

#[test]
fn started_over_otherwise_is_judged_as_unknown() {
    for policy in [careful(), policy(Class::Reversible), policy(Class::Irreversible)] {
        for (asked, expected) in [(ask(2), Decision::Unknown), (prober(2), Decision::Reconcile)] {
            assert_eq!(told(&started(&policy), asked, &policy, T0 + LEASE - 1).0, Decision::Pending);
            let step = step(&started(&policy), &Event::Reserve(asked), &policy, T0 + LEASE);
            assert_eq!(decision(&step), expected);
            let row = step.next.unwrap();
            assert_eq!((row.state, row.attempt, row.attempt_id), (State::Unknown, 1, Some(token(1))));
            assert_eq!((row.settle_from, row.lease_expires_at), (Some(T0 + LEASE), None));
            assert_eq!(row.deadline_at, Some(T0 + LEASE + policy.resolve_deadline));
            assert_eq!((step.ended[0].attempt_id, step.ended[0].outcome), (token(1), "lapsed"));
            assert_eq!(step.events[0], "lapsed");
        }
        // Found after a long time, it is past its deadline at once: time does not begin with the visit.
        let late = T0 + LEASE + policy.resolve_deadline;
        assert_eq!(told(&started(&policy), prober(2), &policy, late), (Decision::Review, true));
        assert_eq!(told(&started(&policy), prober(2), &policy, late - 1), (Decision::Reconcile, true));
    }
}

#[test]
fn unknown_past_its_deadline_or_escalated_is_for_review() {
    for policy in [careful(), policy(Class::ReadOnly)] {
        let action = unknown(&policy);
        let deadline = T0 + LEASE + policy.resolve_deadline;
        assert_ne!(told(&action, prober(2), &policy, deadline - 1).0, Decision::Review);
        assert_eq!(told(&action, prober(2), &policy, deadline), (Decision::Review, false));

        let escalated = moved(&action, &Event::Escalate, &policy, T0 + LEASE);
        assert_eq!(told(&escalated, prober(2), &policy, T0 + LEASE), (Decision::Review, false));
    }
    // A live reconciler changes nothing about it: the deadline is judged at read time.
    let policy = Policy { resolve_deadline: 10 * SECOND, ..careful() };
    let action = probed(&policy, T0 + LEASE);
    assert_eq!(told(&action, prober(2), &policy, T0 + LEASE + 10 * SECOND), (Decision::Review, false));
}

#[test]
fn unknown_due_may_repeat_executes() {
    for policy in [policy(Class::ReadOnly), policy(Class::IdempotentMutation), windowed()] {
        let now = T0 + LEASE;
        // can_reconcile makes no difference: repeating is the surer way to the answer.
        for asked in [ask(2), prober(2)] {
            let step = step(&unknown(&policy), &Event::Reserve(asked), &policy, now);
            assert_eq!(decision(&step), Decision::Execute);
            let row = step.next.unwrap();
            assert_eq!((row.state, row.attempt, row.flags.open_before), (State::Started, 2, true));
            // The time to resolve it runs on.
            assert_eq!(row.deadline_at, unknown(&policy).deadline_at);
        }
        let later = Action { due_at: Some(now + 1), ..unknown(&policy) };
        assert_eq!(told(&later, prober(2), &policy, now), (Decision::Unknown, false));
        let seen = moved(&unknown(&policy), &evidence(caller(1), Finding::Applied), &policy, now);
        assert_eq!(told(&seen, prober(2), &policy, now).0, Decision::Reconcile);
        assert_eq!(told(&seen, ask(2), &policy, now).0, Decision::Unknown);
    }
}

#[test]
fn unknown_may_repeat_up_to_the_end_of_the_window() {
    let policy = windowed();
    let last = T0 + policy.provider_key_window - LEASE;
    assert_eq!(told(&unknown(&policy), prober(2), &policy, last).0, Decision::Execute);
    assert_eq!(told(&unknown(&policy), prober(2), &policy, last + 1).0, Decision::Reconcile);
    // It is the lease asked for that has to fit.
    let long = Ask { lease: Some(LEASE + 1), ..prober(2) };
    assert_eq!(told(&unknown(&policy), long, &policy, last).0, Decision::Reconcile);
}

#[test]
fn unknown_due_can_reconcile_reconciles() {
    let policy = careful();
    let now = T0 + LEASE;
    let before = unknown(&policy);
    let step = step(&before, &Event::Reserve(short(prober(100))), &policy, now);
    assert_eq!(decision(&step), Decision::Reconcile);
    assert!(!decision(&step).is_granted());
    let row = step.next.unwrap();
    assert_eq!((row.state, row.attempt, row.attempt_id), (State::Unknown, 1, Some(token(1))));
    assert_eq!(
        (row.reconcile_id, row.reconcile_lease_expires_at),
        (Some(token(100)), Some(now + 20 * SECOND))
    );
    assert!(row.fence > before.fence);

    // One reconciler each; the next one when the lease is over, and only when a probe is due.
    let end = now + 20 * SECOND;
    assert_eq!(told(&row, prober(101), &policy, end - 1), (Decision::Unknown, false));
    assert_eq!(told(&row, prober(101), &policy, end), (Decision::Reconcile, true));
    let later = Action { due_at: Some(end + 1), ..row };
    assert_eq!(told(&later, prober(101), &policy, end), (Decision::Unknown, false));
    assert_eq!(told(&later, prober(101), &policy, end + 1), (Decision::Reconcile, true));
}

#[test]
fn unknown_otherwise_waits() {
    let policy = careful();
    let now = T0 + LEASE;
    let nobody_can = step(&unknown(&policy), &Event::Reserve(ask(2)), &policy, now);
    assert_eq!(nobody_can, Step::unchanged(Answer::Decided(Decision::Unknown, Some(policy.probe_interval))));
    let busy = step(&probed(&policy, now), &Event::Reserve(prober(101)), &policy, now + SECOND);
    assert_eq!(busy, Step::unchanged(Answer::Decided(Decision::Unknown, Some(LEASE - SECOND))));
    let early = Action { due_at: Some(now + 5), ..unknown(&policy) };
    let early = step(&early, &Event::Reserve(prober(101)), &policy, now);
    assert_eq!(early, Step::unchanged(Answer::Decided(Decision::Unknown, Some(5))));
}

#[test]
fn unknown_with_a_live_reconciler_is_not_repeated() {
    let seen = moved(&unknown(&windowed()), &evidence(caller(1), Finding::Applied), &windowed(), T0 + LEASE);
    let busy = moved(&seen, &Event::Reserve(short(prober(100))), &windowed(), T0 + LEASE);
    let free = flagged(busy, |flags| flags.positive_evidence = false);
    assert_eq!(told(&free, ask(2), &windowed(), T0 + LEASE + 20 * SECOND - 1).0, Decision::Unknown);
    assert_eq!(told(&free, ask(2), &windowed(), T0 + LEASE + 20 * SECOND).0, Decision::Execute);
}

#[test]
fn retryable_due_executes() {
    for policy in [careful(), policy(Class::Irreversible), approving(), marking()] {
        let step = step(&retryable(&policy), &Event::Reserve(ask(2)), &policy, T0 + 11 * SECOND);
        assert_eq!(decision(&step), Decision::Execute);
        let row = step.next.unwrap();
        assert_eq!((row.state, row.attempt, row.attempt_id), (State::Started, 2, Some(token(2))));
        assert!(!row.flags.open_before && !row.flags.open_dispatched);
        assert_eq!((row.dispatched_at, row.deadline_at), (None, None));
    }
}

#[test]
fn retryable_not_due_is_pending() {
    let step = step(&retryable(&careful()), &Event::Reserve(prober(2)), &careful(), T0 + 11 * SECOND - 1);
    assert_eq!(step, Step::unchanged(Answer::Decided(Decision::Pending, Some(1))));
}

#[test]
fn committed_replays() {
    let policy = careful();
    let end = T0 + SECOND + policy.ttl;
    for asked in [ask(1), ask(2), prober(2), Ask { carried: true, held: true, ..ask(2) }] {
        let replayed = step(&committed(&policy), &Event::Reserve(asked), &policy, end - 1);
        assert_eq!(replayed, Step::unchanged(Answer::Decided(Decision::Replay, None)));
        // An expired row never replays, even if no worker ran.
        let expired = step(&committed(&policy), &Event::Reserve(asked), &policy, end);
        assert_eq!(expired, Step::unchanged(Answer::Decided(Decision::Expired, None)));
    }
}

#[test]
fn failed_rejected_expired_say_so() {
    for policy in [careful(), approving(), policy(Class::ReadOnly)] {
        for (state, word) in [
            (State::Failed, Decision::Failed),
            (State::Rejected, Decision::Rejected),
            (State::Expired, Decision::Expired),
        ] {
            let action = in_state(state, &policy);
            let end = action.expires_at.unwrap();
            for asked in [ask(2), Ask { held: true, carried: true, ..prober(2) }] {
                let said = step(&action, &Event::Reserve(asked), &policy, end - 1);
                assert_eq!(said, Step::unchanged(Answer::Decided(word, None)));
                assert_eq!(told(&action, asked, &policy, end), (Decision::Expired, false));
            }
        }
    }
}

#[test]
fn row_any_a_lease_that_is_too_long_by_now_keeps_no_answer_back() {
    let policy = careful();
    let short = Policy { version: 2, max_lease: LEASE, ..careful() };
    let long = Ask { lease: Some(2 * LEASE), ..ask(2) };
    for (action, expected) in [
        (committed(&policy), Decision::Replay),
        (failed(&policy), Decision::Failed),
        (rejected(&policy), Decision::Rejected),
        (expired(&policy), Decision::Expired),
    ] {
        assert_eq!(told(&action, long, &short, T0 + SECOND).0, expected);
    }
    assert_eq!(told(&started(&policy), Ask { fingerprint: OTHER, ..long }, &short, T0).0, Decision::Conflict);
    for action in [Some(&started(&policy)), Some(&retryable(&policy)), None] {
        let result = transition(action, &Event::Reserve(long), Policies::same(&short), T0 + 20 * SECOND);
        assert_eq!(result.unwrap_err().code, Code::InvalidParameter);
    }
    // What can be no lease at all is refused everywhere.
    let none = Ask { lease: Some(0), ..ask(2) };
    let result = transition(Some(&committed(&policy)), &Event::Reserve(none), Policies::same(&policy), T0);
    assert_eq!(result.unwrap_err().code, Code::InvalidParameter);
}
