//! Finding out what an earlier attempt did: evidence, probes, escalation.

use crate::common::*;

/// One probe by a reconciler of its own, reporting `finding` at `now`.
fn probe(action: &Action, n: u128, finding: Finding, policy: &Policy, now: Time) -> Action {
    let busy = moved(action, &Event::Reserve(prober(n)), policy, now);
    moved(&busy, &found(n, finding), policy, now)
}

#[test]
fn evidence_in_unknown_is_kept_and_shuts_out_the_contrary() {
    let policy = careful();
    for finding in [Finding::Applied, Finding::PartiallyApplied] {
        let step = step(&unknown(&policy), &evidence(caller(1), finding), &policy, T0 + LEASE);
        assert_eq!((step.answer, step.events), (Answer::Recorded, vec!["evidence"]));
        let row = step.next.unwrap();
        assert_eq!(
            (row.state, row.flags.positive_evidence, row.flags.discrepancy),
            (State::Unknown, true, false)
        );
        // Nothing found stops counting: a person has to say which of the two is wrong.
        let now = T0 + LEASE + policy.settle_delay;
        let denied = probe(&row, 100, Finding::NotApplied, &policy, now);
        assert_eq!((denied.state, denied.flags.escalated, denied.probes), (State::Unknown, true, 0));
    }
    for finding in [Finding::NotApplied, Finding::Ambiguous, Finding::Inconclusive] {
        let row = moved(&unknown(&policy), &evidence(caller(1), finding), &policy, T0 + LEASE);
        assert_eq!(row, unknown(&policy), "only a reconciling attempt's negative finding moves anything");
    }
}

#[test]
fn evidence_counts_as_the_mark_of_a_dispatch() {
    let policy = marking();
    let silent = moved(&started(&policy), &VISIT, &policy, T0 + LEASE);
    let row = moved(&silent, &evidence(caller(1), Finding::Applied), &policy, T0 + LEASE);
    assert!(row.flags.open_dispatched && row.flags.ever_dispatched);
    assert_eq!(told(&row, prober(2), &policy, T0 + LEASE).0, Decision::Reconcile);
    assert_eq!(step(&row, &Event::Withdraw, &policy, T0 + LEASE).answer, Answer::TooLate);
    let running = moved(&started(&policy), &evidence(caller(1), Finding::Applied), &policy, T0);
    assert_eq!(step(&running, &Event::Withdraw, &policy, T0).answer, Answer::TooLate);
}

#[test]
fn positive_evidence_elsewhere_opens_a_discrepancy() {
    let policy = policy(Class::ReadOnly);
    for state in STATES {
        if matches!(state, State::Unknown | State::Committed | State::Expired) {
            continue;
        }
        let action = in_state(state, &policy);
        let step = step(&action, &evidence(earlier(9), Finding::Applied), &policy, T0 + SECOND);
        assert_eq!((step.answer, step.events), (Answer::Discrepancy, vec!["discrepancy"]), "{state:?}");
        let row = step.next.unwrap();
        assert_eq!((row.state, row.flags.discrepancy), (state, true));
        let harmless = moved(&action, &evidence(earlier(9), Finding::NotApplied), &policy, T0 + SECOND);
        assert_eq!(harmless, action);
    }
    let row = moved(&started(&policy), &evidence(caller(1), Finding::Applied), &policy, T0);
    assert!(row.flags.positive_evidence);
}

#[test]
fn evidence_in_committed_contradicts_only_by_another_resource() {
    let policy = careful();
    let with = |resource| {
        Event::Evidence(Evidence { caller: earlier(9), finding: Finding::Applied, resource_id: resource })
    };
    for same in [None, Some("re_1")] {
        let step = step(&committed(&policy), &with(same), &policy, T0 + LEASE);
        assert_eq!(step.answer, Answer::Recorded);
        assert!(!step.next.unwrap().flags.discrepancy);
    }
    let step_other = step(&committed(&policy), &with(Some("re_2")), &policy, T0 + LEASE);
    assert_eq!(step_other.answer, Answer::Discrepancy);
    let denied = Event::Evidence(Evidence {
        caller: earlier(9),
        finding: Finding::NotApplied,
        resource_id: Some("re_2"),
    });
    assert_eq!(step(&committed(&policy), &denied, &policy, T0 + LEASE).answer, Answer::Recorded);
    // A tombstone takes nothing in any more.
    let event = with(Some("re_2"));
    assert_eq!(refused(&expired(&policy), &event, &policy, T0 + 60 * DAY), Code::IllegalMove);
}

#[test]
fn evidence_from_a_stranger_is_refused() {
    let policy = careful();
    for state in STATES {
        let event = evidence(caller(900), Finding::Applied);
        assert_eq!(refused(&in_state(state, &policy), &event, &policy, T0), Code::LostAttempt);
    }
}

#[test]
fn applied_commits() {
    let policy = careful();
    for (finding, partially) in [(Finding::Applied, false), (Finding::PartiallyApplied, true)] {
        let event = Event::Resolve(Resolve {
            caller: caller(100),
            finding,
            resource_id: Some("re_1"),
            next_probe: None,
            random: 0.0,
        });
        // Also when the reconciling lease is over: nobody took over.
        for now in [T0 + LEASE, T0 + 3 * LEASE] {
            let step = step(&probed(&policy, T0 + LEASE), &event, &policy, now);
            assert_eq!((step.answer, step.events), (Answer::State(State::Committed), vec![finding.word()]));
            assert_eq!((step.ended[0].attempt_id, step.ended[0].outcome), (token(100), finding.word()));
            let row = step.next.unwrap();
            assert_eq!((row.state, row.flags.needs_compensation), (State::Committed, partially));
            assert_eq!((row.resource_id.as_deref(), row.expires_at), (Some("re_1"), Some(now + policy.ttl)));
            // The same report again changes nothing.
            let again = crate::common::step(&row, &event, &policy, now);
            assert_eq!(again, Step::unchanged(Answer::State(State::Committed)));
        }
    }
}

#[test]
fn applied_with_another_resource_than_committed_is_a_discrepancy() {
    let policy = careful();
    let action = moved(&probed(&policy, T0 + LEASE), &commit_as(caller(1), "re_1"), &policy, T0 + 2 * LEASE);
    let event = Event::Resolve(Resolve {
        caller: caller(100),
        finding: Finding::Applied,
        resource_id: Some("re_2"),
        next_probe: None,
        random: 0.0,
    });
    let step = step(&action, &event, &policy, T0 + 2 * LEASE);
    assert_eq!((step.answer, step.events), (Answer::State(State::Committed), vec!["discrepancy"]));
    assert!(step.next.unwrap().flags.discrepancy);
    let denied = found(100, Finding::NotApplied);
    assert_eq!(refused(&action, &denied, &policy, T0 + 2 * LEASE), Code::IllegalMove);
}

#[test]
fn not_applied_counts_only_after_the_settle_delay() {
    let policy = Policy { probes_required: 1, settle_delay: 200 * SECOND, ..careful() };
    let settled = T0 + LEASE + policy.settle_delay;
    let early = probe(&unknown(&policy), 100, Finding::NotApplied, &policy, settled - 1);
    assert_eq!((early.state, early.probes, early.due_at), (State::Unknown, 0, Some(settled)));
    assert_eq!((early.probe_tries, early.reconcile_lease_expires_at), (1, None));
    let counted = probe(&unknown(&policy), 100, Finding::NotApplied, &policy, settled);
    assert_eq!(counted.state, State::Retryable);
    // From the latest of lease end, dispatch and mark.
    let marked = moved(&started(&policy), &Event::MarkUnknown(caller(1)), &policy, T0 + 500 * SECOND);
    let settled = T0 + 500 * SECOND + policy.settle_delay;
    assert_eq!(probe(&marked, 100, Finding::NotApplied, &policy, settled - 1).state, State::Unknown);
    assert_eq!(probe(&marked, 100, Finding::NotApplied, &policy, settled).state, State::Retryable);
}

#[test]
fn a_shorter_settle_delay_is_not_for_those_granted_before() {
    let long = Policy { provider_key_window: 300 * SECOND, settle_delay: 200 * SECOND, ..careful() };
    let short = Policy { version: 2, settle_delay: SECOND, ..long.clone() };
    let changed = Policies { granted: &long, current: &short };
    for (before, lease_end) in [(started(&long), T0 + LEASE), (unknown(&long), T0 + LEASE)] {
        let again =
            transition(Some(&before), &Event::Reserve(ask(2)), changed, lease_end).unwrap().next.unwrap();
        assert_eq!((again.attempt, again.policy_version), (2, 2));
        let lapsed = moved(&again, &VISIT, &short, lease_end + LEASE);
        let settles = lapsed.settle_from.unwrap() + short.settle_delay;
        assert_eq!(
            settles,
            lease_end + long.settle_delay,
            "the first attempt's effect may take as long as it could"
        );
    }
    // A longer one is for everybody.
    let changed = Policies { granted: &short, current: &long };
    let again = transition(Some(&unknown(&short)), &Event::Reserve(ask(2)), changed, T0 + LEASE).unwrap();
    assert_eq!(again.next.unwrap().settle_from, unknown(&short).settle_from);
}

#[test]
fn a_mark_after_the_end_of_the_lease_does_not_put_off_the_deadline() {
    let policy = careful();
    let deadline = Some(T0 + LEASE + policy.resolve_deadline);
    let late = moved(&started(&policy), &Event::MarkUnknown(caller(1)), &policy, T0 + LEASE + 9 * SECOND);
    assert_eq!((late.deadline_at, late.settle_from), (deadline, Some(T0 + LEASE + 9 * SECOND)));
    assert_eq!(unknown(&policy).deadline_at, deadline);
    let early = moved(&started(&policy), &Event::MarkUnknown(caller(1)), &policy, T0 + SECOND);
    assert_eq!(early.deadline_at, Some(T0 + SECOND + policy.resolve_deadline));
}

#[test]
fn not_applied_counts_only_from_a_probe_that_began_after_the_settle_delay() {
    let policy = Policy { probes_required: 1, ..careful() };
    let settled = T0 + LEASE + policy.settle_delay;
    // It may have looked when it was granted, and the effect may have shown since.
    let stalled = probed(&policy, settled - 1);
    let late = moved(&stalled, &found(100, Finding::NotApplied), &policy, settled);
    assert_eq!((late.state, late.probes, late.due_at), (State::Unknown, 0, Some(settled)));
    assert_eq!((late.probe_tries, late.reconcile_lease_expires_at), (1, None));
    assert_eq!(probe(&late, 101, Finding::NotApplied, &policy, settled).state, State::Retryable);
    // That it saw the effect counts whenever it says so.
    assert_eq!(moved(&stalled, &found(100, Finding::Applied), &policy, settled).state, State::Committed);
}

#[test]
fn not_applied_needs_agreeing_probes_an_interval_apart() {
    let policy = Policy { probes_required: 3, ..careful() };
    let now = T0 + LEASE + policy.settle_delay;
    let one = probe(&unknown(&policy), 100, Finding::NotApplied, &policy, now);
    let next = now + policy.probe_interval;
    assert_eq!(
        (one.state, one.probes, one.probed_at, one.due_at),
        (State::Unknown, 1, Some(now), Some(next))
    );
    // A probe that comes sooner (a sweep that ignores due_at) does not count.
    let hasty = Action { due_at: None, ..one.clone() };
    let hasty = probe(&hasty, 101, Finding::NotApplied, &policy, next - 1);
    assert_eq!((hasty.probes, hasty.due_at), (1, Some(next)));
    // An inconclusive one in between agrees with nothing and contradicts nothing.
    let two = probe(&one, 101, Finding::NotApplied, &policy, next);
    assert_eq!((two.state, two.probes), (State::Unknown, 2));
    let blind = probe(&two, 102, Finding::Inconclusive, &policy, next + policy.probe_interval);
    assert_eq!(blind.probes, 2);
    let three = probe(&blind, 103, Finding::NotApplied, &policy, blind.due_at.unwrap());
    assert_eq!((three.state, three.due_at), (State::Retryable, blind.due_at));
    assert!(!three.flags.open_before && !three.flags.open_dispatched && three.flags.ever_dispatched);
    assert_eq!((three.settle_from, three.deadline_at, three.probes), (None, None, 0));
}

#[test]
fn not_applied_by_one_probe_reported_twice_counts_once() {
    let policy = careful();
    let now = T0 + LEASE + policy.settle_delay;
    let one = probe(&unknown(&policy), 100, Finding::NotApplied, &policy, now);
    for finding in [Finding::NotApplied, Finding::Inconclusive, Finding::Ambiguous] {
        let again = step(&one, &found(100, finding), &policy, now + policy.probe_interval);
        assert_eq!(again, Step::unchanged(Answer::State(State::Unknown)));
    }
    // That it was found after all is news.
    assert_eq!(moved(&one, &found(100, Finding::Applied), &policy, now).state, State::Committed);
    // The report that closed the question is answered again as well.
    let two = probe(&one, 101, Finding::NotApplied, &policy, now + policy.probe_interval);
    let again = step(&two, &found(101, Finding::NotApplied), &policy, now + DAY);
    assert_eq!(again, Step::unchanged(Answer::State(State::Retryable)));
    assert_eq!(refused(&two, &found(101, Finding::Applied), &policy, now + DAY), Code::IllegalMove);
}

#[test]
fn not_applied_asks_for_its_next_probe_no_sooner_than_it_counts() {
    let policy = careful();
    let settled = T0 + LEASE + policy.settle_delay;
    let report = |next_probe| {
        Event::Resolve(Resolve {
            caller: caller(100),
            finding: Finding::NotApplied,
            resource_id: None,
            next_probe,
            random: 0.0,
        })
    };
    let busy = probed(&policy, T0 + LEASE);
    let long = Some(500 * SECOND);
    assert_eq!(moved(&busy, &report(Some(SECOND)), &policy, T0 + LEASE).due_at, Some(settled));
    assert_eq!(moved(&busy, &report(long), &policy, T0 + LEASE).due_at, Some(T0 + LEASE + 500 * SECOND));
    let busy = probed(&policy, settled);
    assert_eq!(
        moved(&busy, &report(Some(SECOND)), &policy, settled).due_at,
        Some(settled + policy.probe_interval)
    );
    assert_eq!(moved(&busy, &report(long), &policy, settled).due_at, Some(settled + 500 * SECOND));
}

#[test]
fn not_applied_fails_what_must_not_be_tried_again() {
    let now = T0 + LEASE + 60 * SECOND;
    for policy in [
        Policy { probes_required: 1, max_attempts: 1, ..careful() },
        Policy { probes_required: 1, ..policy(Class::Irreversible) },
    ] {
        let row = probe(&unknown(&policy), 100, Finding::NotApplied, &policy, now);
        assert_eq!((row.state, row.expires_at), (State::Failed, Some(now + policy.ttl)));
        let again = step(&row, &found(100, Finding::NotApplied), &policy, now);
        assert_eq!(again, Step::unchanged(Answer::State(State::Failed)));
    }
    let policy = Policy { probes_required: 1, ..policy(Class::Reversible) };
    assert_eq!(probe(&unknown(&policy), 100, Finding::NotApplied, &policy, now).state, State::Retryable);
}

#[test]
fn a_disproof_closes_what_a_restore_left_open() {
    let policy = Policy { probes_required: 1, ..careful() };
    let restored = flagged(unknown(&policy), |flags| flags.restored = true);
    let row = probe(&restored, 100, Finding::NotApplied, &policy, T0 + LEASE + policy.settle_delay);
    assert!(!row.flags.restored);
    assert_eq!(told(&row, ask(2), &policy, T0 + DAY).0, Decision::Execute);
}

#[test]
fn inconclusive_probes_back_off() {
    let policy = careful();
    let mut action = unknown(&policy);
    let mut waits = Vec::new();
    for n in 0..5 {
        let now = action.due_at.unwrap();
        action = probe(&action, 100 + n, Finding::Inconclusive, &policy, now);
        waits.push((action.due_at.unwrap() - now) / SECOND);
    }
    // Three quarters at a jitter of one half: 60, 120, 240 s, and then the cap of 300 s.
    assert_eq!(waits, [45, 90, 180, 225, 225]);
    assert_eq!((action.state, action.probes, action.probe_tries), (State::Unknown, 0, 5));

    let told_when = Event::Resolve(Resolve {
        caller: caller(100),
        finding: Finding::Inconclusive,
        resource_id: None,
        next_probe: Some(7),
        random: 0.9,
    });
    let row = moved(&probed(&policy, T0 + LEASE), &told_when, &policy, T0 + LEASE);
    assert_eq!(row.due_at, Some(T0 + LEASE + 7));
}

#[test]
fn ambiguous_goes_to_a_person() {
    let policy = careful();
    let step = step(&probed(&policy, T0 + LEASE), &found(100, Finding::Ambiguous), &policy, T0 + LEASE);
    let row = step.next.unwrap();
    assert_eq!((row.state, row.flags.escalated), (State::Unknown, true));
    assert_eq!(row.reconcile_lease_expires_at, None);
    assert_eq!(told(&row, prober(101), &policy, T0 + 9 * LEASE).0, Decision::Review);
}

#[test]
fn only_the_present_reconciling_attempt_resolves() {
    let policy = careful();
    let busy = probed(&policy, T0 + LEASE);
    let next = moved(&busy, &Event::Reserve(prober(101)), &policy, T0 + 2 * LEASE);
    let lost = Event::Resolve(Resolve {
        caller: earlier(100),
        finding: Finding::Applied,
        resource_id: None,
        next_probe: None,
        random: 0.0,
    });
    assert_eq!(refused(&next, &lost, &policy, T0 + 2 * LEASE), Code::LostAttempt);
    assert_eq!(refused(&next, &found(900, Finding::Applied), &policy, T0 + 2 * LEASE), Code::LostAttempt);
    assert_eq!(refused(&next, &found(1, Finding::Applied), &policy, T0 + 2 * LEASE), Code::IllegalMove);
    assert_eq!(refused(&started(&policy), &found(1, Finding::Applied), &policy, T0), Code::IllegalMove);
}

#[test]
fn escalate_asks_a_person_about_an_unknown_action() {
    let policy = careful();
    let step = step(&probed(&policy, T0 + LEASE), &Event::Escalate, &policy, T0 + LEASE);
    assert_eq!((step.answer, step.events), (Answer::State(State::Unknown), vec!["escalated"]));
    assert_eq!((step.ended[0].attempt_id, step.ended[0].outcome), (token(100), "escalated"));
    let row = step.next.unwrap();
    assert_eq!((row.flags.escalated, row.reconcile_lease_expires_at), (true, None));
    let again = crate::common::step(&row, &Event::Escalate, &policy, T0 + LEASE);
    assert_eq!(again, Step::unchanged(Answer::State(State::Unknown)));
    for state in STATES.into_iter().filter(|state| *state != State::Unknown) {
        assert_eq!(refused(&in_state(state, &policy), &Event::Escalate, &policy, T0), Code::IllegalMove);
    }
}
