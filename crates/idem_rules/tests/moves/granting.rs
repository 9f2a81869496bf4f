//! What a grant needs beyond its row of the decision table, and what it leaves behind.

use crate::common::*;

#[test]
fn fence_rises_by_the_clock_or_by_one() {
    let policy = policy(Class::ReadOnly);
    let second = repeated(&policy, T0 + LEASE);
    assert_eq!(second.fence, T0 + LEASE);
    // A clock that was set back still gives a greater one.
    let ahead = Action { fence: T0 + DAY, ..unknown(&policy) };
    assert_eq!(moved(&ahead, &Event::Reserve(ask(2)), &policy, T0 + LEASE).fence, T0 + DAY + 1);
    let ahead = Action { fence: T0 + DAY, ..unknown(&careful()) };
    let row = moved(&ahead, &Event::Reserve(prober(100)), &careful(), T0 + LEASE);
    assert_eq!((row.fence, row.attempt), (T0 + DAY + 1, 1));
}

#[test]
fn window_counts_from_the_first_grant_and_never_slides() {
    let policy = Policy { provider_key_window: 3 * LEASE, ..careful() };
    let second = repeated(&policy, T0 + 2 * LEASE);
    // Attempt 2 ends with the window; a third one would run past it.
    assert_eq!(told(&second, prober(3), &policy, T0 + 3 * LEASE).0, Decision::Reconcile);
    let first_grant = T0 + 2 * SECOND;
    let approved = approved(&Policy { marks_dispatch: false, ..policy.clone() });
    let late = moved(&approved, &Event::Reserve(ask(1)), &policy, first_grant);
    assert_eq!(late.window_start(), Some(first_grant));
    let again = moved(&late, &Event::Reserve(ask(2)), &policy, first_grant + LEASE);
    assert_eq!(again.window_start(), Some(first_grant));
}

#[test]
fn window_of_a_new_provider_key_begins_with_its_own_first_grant() {
    let policy = windowed();
    let fail = Event::Fail(Fail { new_provider_key: true, ..refusal(caller(1)) });
    let failed = moved(&started(&policy), &fail, &policy, T0 + SECOND);
    assert_eq!((failed.generation, failed.window_start()), (1, None));
    let now = T0 + 1000 * SECOND;
    let second = moved(&failed, &Event::Reserve(ask(2)), &policy, now);
    assert_eq!((second.generation, second.window_start()), (1, Some(now)));
    let lapsed = moved(&second, &VISIT, &policy, now + LEASE);
    let last = now + policy.provider_key_window - LEASE;
    assert_eq!(told(&lapsed, prober(3), &policy, last).0, Decision::Execute);
    assert_eq!(told(&lapsed, prober(3), &policy, last + 1).0, Decision::Reconcile);
    // So does the next key's.
    let fail = Event::Fail(Fail { new_provider_key: true, ..refusal(caller(2)) });
    let failed = moved(&second, &fail, &policy, now);
    assert_eq!((failed.generation, failed.window_start()), (2, None));
}

#[test]
fn an_undispatched_outcome_may_be_repeated_and_a_dispatched_one_not() {
    let policy = marking();
    let silent = moved(&started(&policy), &VISIT, &policy, T0 + LEASE);
    assert_eq!(told(&silent, prober(2), &policy, T0 + LEASE).0, Decision::Execute);
    assert_eq!(told(&unknown(&policy), prober(2), &policy, T0 + LEASE).0, Decision::Reconcile);
    // One dispatched attempt is enough, however many silent ones follow.
    let windowed = Policy { provider_key_window: 2 * LEASE, ..policy };
    let second = repeated(&windowed, T0 + LEASE);
    assert!(second.flags.open_dispatched);
    assert_eq!(told(&second, prober(3), &windowed, T0 + 2 * LEASE).0, Decision::Reconcile);
    // Also where the next attempt came before the worker did.
    let sent = moved(&started(&windowed), &dispatch(caller(1)), &windowed, T0);
    let second = moved(&sent, &Event::Reserve(ask(2)), &windowed, T0 + LEASE);
    assert_eq!(told(&second, prober(3), &windowed, T0 + 2 * LEASE).0, Decision::Reconcile);
}

#[test]
fn what_a_restore_forgot_is_repeated_only_where_that_is_no_harm() {
    for (policy, expected) in [
        (policy(Class::ReadOnly), Decision::Execute),
        (policy(Class::IdempotentMutation), Decision::Execute),
        (windowed(), Decision::Reconcile),
        (careful(), Decision::Reconcile),
    ] {
        let action = flagged(unknown(&policy), |flags| flags.restored = true);
        assert_eq!(told(&action, prober(2), &policy, T0 + LEASE).0, expected);
    }
    // A mark that is not there says nothing: the restore may have forgotten it.
    let policy = marking();
    let silent = moved(&started(&policy), &VISIT, &policy, T0 + LEASE);
    let restored = flagged(silent, |flags| flags.restored = true);
    assert_eq!(told(&restored, prober(2), &policy, T0 + LEASE).0, Decision::Reconcile);
    assert_eq!(step(&restored, &Event::Withdraw, &policy, T0 + LEASE).answer, Answer::TooLate);
}

#[test]
fn a_type_that_was_loosened_meanwhile_repeats_nothing_that_is_under_way() {
    let (strict, loose) = (careful(), Policy { version: 2, ..policy(Class::ReadOnly) });
    for (granted, current) in [(&strict, &loose), (&loose, &strict)] {
        let policies = Policies { granted, current };
        let action = unknown(granted);
        let step = transition(Some(&action), &Event::Reserve(prober(2)), policies, T0 + LEASE).unwrap();
        assert_eq!(decision(&step), Decision::Reconcile);
    }
    let policies = Policies { granted: &windowed(), current: &careful() };
    let step =
        transition(Some(&unknown(&windowed())), &Event::Reserve(prober(2)), policies, T0 + LEASE).unwrap();
    assert_eq!(decision(&step), Decision::Reconcile);
}

#[test]
fn attempts_run_out() {
    let policy = Policy { max_attempts: 1, ..careful() };
    let released = moved(&started(&policy), &Event::Release(caller(1)), &policy, T0);
    assert_eq!(
        told(&released, ask(2), &policy, T0).0,
        Decision::Execute,
        "a released attempt does not count"
    );

    let lowered = Policy { max_attempts: 1, ..careful() };
    let step = step(&retryable(&careful()), &Event::Reserve(ask(2)), &lowered, T0 + 11 * SECOND);
    assert_eq!((decision(&step), step.next.unwrap().state), (Decision::Failed, State::Failed));
}

#[test]
fn attempts_run_out_with_an_outcome_open() {
    let policy = Policy { max_attempts: 2, ..policy(Class::ReadOnly) };
    assert_eq!(told(&unknown(&policy), ask(2), &policy, T0 + LEASE).0, Decision::Execute);
    let second = repeated(&policy, T0 + LEASE);
    let end = T0 + 2 * LEASE;
    let lapsed = moved(&second, &VISIT, &policy, end);
    for action in [second, lapsed] {
        let step = step(&action, &Event::Reserve(ask(3)), &policy, end);
        assert_eq!(decision(&step), Decision::Review);
        let row = step.next.unwrap();
        assert_eq!((row.state, row.flags.escalated, row.attempt), (State::Unknown, true, 2));
    }
}

#[test]
fn a_discrepancy_blocks_every_grant() {
    let policy = policy(Class::ReadOnly);
    for action in [retryable(&policy), approved(&policy), unknown(&policy)] {
        let disputed = flagged(action, |flags| flags.discrepancy = true);
        assert_eq!(told(&disputed, ask(2), &policy, T0 + LEASE), (Decision::Review, false), "{disputed:?}");
    }
    let disputed = flagged(started(&policy), |flags| flags.discrepancy = true);
    assert_eq!(told(&disputed, ask(1), &policy, T0), (Decision::Review, false));
    assert_eq!(told(&disputed, ask(2), &policy, T0 + LEASE), (Decision::Review, false));
    // Attempts that have run out do not turn a disputed action into a failed one.
    let last = Policy { max_attempts: 1, ..policy.clone() };
    let disputed = flagged(retryable(&policy), |flags| flags.discrepancy = true);
    assert_eq!(told(&disputed, ask(2), &last, T0 + LEASE), (Decision::Review, false));
}

#[test]
fn a_hold_refuses_every_grant_and_nothing_else() {
    let policy = policy(Class::ReadOnly);
    let held = |n| Event::Reserve(Ask { held: true, ..prober(n) });
    for action in [retryable(&policy), approved(&policy), unknown(&policy), started(&policy)] {
        assert_eq!(refused(&action, &held(2), &policy, T0 + LEASE), Code::Held);
    }
    assert_eq!(refused(&started(&policy), &held(1), &policy, T0), Code::Held);
    assert_eq!(decision(&step(&started(&policy), &held(2), &policy, T0)), Decision::Pending);
    assert_eq!(decision(&step(&unknown(&careful()), &held(2), &careful(), T0 + LEASE)), Decision::Reconcile);
}

#[test]
fn without_a_valid_approval_nothing_is_granted() {
    let policy = approving();
    let lapse = T0 + policy.approval_ttl;
    // Nothing was ever dispatched: rejected. An attempt may be running; its dispatch will be refused.
    let longest =
        moved(&started(&policy), &Event::Renew(caller(1), Some(3600 * SECOND)), &policy, T0 + SECOND);
    assert_eq!(told(&longest, ask(1), &policy, lapse - 1).0, Decision::Resume);
    let step = step(&longest, &Event::Reserve(ask(1)), &policy, lapse);
    assert_eq!((decision(&step), step.next.unwrap().state), (Decision::Rejected, State::Rejected));
    let released = moved(&started(&policy), &Event::Release(caller(1)), &policy, T0);
    assert_eq!(told(&released, ask(2), &policy, lapse - 1).0, Decision::Execute);
    assert_eq!(told(&released, ask(2), &policy, lapse), (Decision::Rejected, true));
    // Something was: a person has to look.
    assert_eq!(told(&retryable(&policy), ask(2), &policy, lapse - 1).0, Decision::Execute);
    assert_eq!(told(&retryable(&policy), ask(2), &policy, lapse), (Decision::Review, false));
    // A type that began to need approval meanwhile needs it from every grant.
    let policies = Policies { granted: &careful(), current: &policy };
    let step =
        transition(Some(&retryable(&careful())), &Event::Reserve(ask(2)), policies, T0 + LEASE).unwrap();
    assert_eq!(decision(&step), Decision::Review);
}

#[test]
fn a_token_serves_one_attempt() {
    let used = |ask: Ask| Event::Reserve(Ask { attempt_id_used: true, ..ask });
    let careful = careful();
    let read_only = policy(Class::ReadOnly);
    for event in [used(ask(2)), Event::Reserve(ask(1))] {
        assert_eq!(refused(&retryable(&careful), &event, &careful, T0 + LEASE), Code::InvalidParameter);
        assert_eq!(refused(&unknown(&read_only), &event, &read_only, T0 + LEASE), Code::InvalidParameter);
        assert_eq!(refused(&started(&read_only), &event, &read_only, T0 + LEASE), Code::InvalidParameter);
    }
    for event in [used(prober(2)), Event::Reserve(prober(1)), Event::Reserve(prober(100))] {
        let action = probed(&careful, T0 + LEASE);
        assert_eq!(refused(&action, &event, &careful, T0 + 2 * LEASE), Code::InvalidParameter);
    }
    // Where nothing would be granted, there is nothing to mix up.
    assert_eq!(told(&retryable(&careful), ask(1), &careful, T0 + SECOND).0, Decision::Pending);
    assert_eq!(told(&committed(&careful), ask(1), &careful, T0 + LEASE).0, Decision::Replay);
}

#[test]
fn lease_and_retention_asked_for_have_their_limits() {
    let policy = careful();
    let row = first(Ask { lease: Some(1), ttl: Some(policy.ttl + 1), ..ask(1) }, &policy, T0).next.unwrap();
    assert_eq!((row.lease_expires_at, row.ttl), (Some(T0 + 1), Some(policy.ttl + 1)));
    let row = first(Ask { ttl: Some(policy.ttl - 1), ..ask(1) }, &policy, T0).next.unwrap();
    assert_eq!(row.ttl, None, "never shorter than the type's");
    for lease in [0, -1, policy.max_lease + 1] {
        let event = Event::Reserve(Ask { lease: Some(lease), ..ask(1) });
        let error = transition(None, &event, Policies::same(&policy), T0).unwrap_err();
        assert_eq!(error.code, Code::InvalidParameter);
    }
    // A later call may lengthen it as well, and does not shorten what an earlier one asked for.
    for (ttl, kept) in [(policy.ttl + 2, policy.ttl + 2), (policy.ttl + 1, policy.ttl + 1)] {
        let asked = Event::Reserve(Ask { ttl: Some(ttl), ..ask(2) });
        let before = Action { ttl: Some(policy.ttl + 1), ..retryable(&policy) };
        assert_eq!(moved(&before, &asked, &policy, T0 + LEASE).ttl, Some(kept));
    }
    let before = Action { ttl: Some(policy.ttl + 1), ..retryable(&policy) };
    assert_eq!(moved(&before, &Event::Reserve(ask(2)), &policy, T0 + LEASE).ttl, Some(policy.ttl + 1));
}

#[test]
fn a_takeover_ends_the_reconciling_attempt_before_it() {
    let action = probed(&careful(), T0 + LEASE);
    let step = step(&action, &Event::Reserve(prober(101)), &careful(), T0 + 2 * LEASE);
    assert_eq!((step.ended[0].attempt_id, step.ended[0].outcome), (token(100), "superseded"));
    assert!(step.ended[0].reconciling);
}

#[test]
fn a_grant_forgets_the_probes_of_the_attempt_before() {
    let policy = Policy { settle_delay: 0, ..policy(Class::ReadOnly) };
    let counted = Action { probes: 1, probe_tries: 3, probed_at: Some(T0), ..unknown(&policy) };
    let row = moved(&counted, &Event::Reserve(ask(2)), &policy, T0 + LEASE);
    assert_eq!((row.probes, row.probe_tries, row.probed_at), (0, 0, None));
    assert_eq!((row.reconcile_id, row.reconcile_lease_expires_at), (None, None));
}
