//! The rules of messages: who gets one, when it comes back, when it is given up; and what a consumer has seen.

use idem_rules::action::{DAY, SECOND, State, Time};
use idem_rules::inbox::{Accepted, Pass, pass, seen_before};
use idem_rules::outbox::*;
use idem_rules::transition::Decision;
use proptest::prelude::*;
use uuid::Uuid;

const NOW: Time = 1_700_000_000 * SECOND;

#[test]
fn a_claim_takes_what_nobody_holds() {
    let new = Message::default();
    assert_eq!(claim(&new, 1, NOW), Claim::Take);
    let held = Message { attempts: 1, lease_expires_at: Some(NOW + 1), ..new };
    assert_eq!(claim(&held, 5, NOW), Claim::Leave);
    assert_eq!(claim(&held, 5, NOW + 1), Claim::Take, "its lease is over at its end");
    assert_eq!(claim(&held, 1, NOW + 1), Claim::Bury, "that was its last attempt");
    assert_eq!(claim(&Message { attempts: 2, ..new }, 2, NOW), Claim::Bury);
    for over in [Message { delivered: true, ..new }, Message { dead: true, attempts: 9, ..new }] {
        assert_eq!(claim(&over, 5, NOW), Claim::Leave);
    }
}

#[test]
fn a_failure_rests_or_is_the_last() {
    let message = Message { attempts: 2, ..Message::default() };
    assert_eq!(fail(&message, 2, Some(SECOND), 0.5, NOW), Failed::Dead);
    assert_eq!(fail(&message, 3, Some(SECOND), 0.5, NOW), Failed::Retry(NOW + SECOND));
    for least in [Some(0), Some(1)] {
        assert_eq!(fail(&message, 3, least, 0.5, NOW), Failed::Retry(NOW + SHORTEST_REST));
    }
    assert_eq!(fail(&message, 3, None, 0.5, NOW), Failed::Retry(NOW + SECOND), "half of two seconds");
}

#[test]
fn the_back_off_doubles_up_to_its_cap() {
    let steps: Vec<_> =
        [0, 1, 2, 3, 9, 10, 11, i32::MAX].map(|n| backoff(n, 0.999_999) / (SECOND / 10)).into();
    assert_eq!(steps, [9, 9, 19, 39, 2559, 2999, 2999, 2999]);
    assert_eq!(backoff(5, 0.0), SHORTEST_REST);
}

#[test]
fn a_report_counts_while_no_later_claim_has_the_message() {
    let (mine, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let message = Message::default();
    assert_eq!(standing(&message, Some(mine), mine), Standing::Current);
    assert_eq!(standing(&message, Some(other), mine), Standing::Lost);
    assert_eq!(standing(&message, None, mine), Standing::Lost);
    let delivered = Message { delivered: true, ..message };
    assert_eq!(standing(&delivered, Some(mine), mine), Standing::Repeated);
    assert_eq!(standing(&delivered, Some(other), mine), Standing::Lost);
}

#[test]
fn what_becomes_of_a_message_follows_its_action() {
    let put = NOW - 8 * SECOND;
    let told = |decision| carried(decision, None, put, NOW);
    assert_eq!(told(Decision::Execute), Carried::Granted);
    for over in [Decision::Failed, Decision::Rejected] {
        assert_eq!(told(over), Carried::Dead);
    }
    use Decision::{AwaitingApproval, Pending, Reconcile, Resume, Review, Unknown};
    for later in [Pending, AwaitingApproval, Unknown, Review, Resume, Reconcile] {
        assert_eq!(told(later), Carried::Wait(NOW + 2 * SECOND), "a quarter of the time it has waited");
    }
    assert_eq!(carried(Pending, Some(5 * SECOND), put, NOW), Carried::Wait(NOW + 5 * SECOND));
}

#[test]
fn what_becomes_of_the_message_of_an_action_that_has_ended() {
    assert_eq!(ended(State::Committed), Some(Carried::Done));
    for without_effect in [State::Failed, State::Rejected] {
        assert_eq!(ended(without_effect), Some(Carried::Dead));
    }
    assert_eq!(ended(State::Expired), Some(Carried::Forgotten), "it may have been committed");
    for open in [State::Proposed, State::Approved, State::Started, State::Unknown, State::Retryable] {
        assert_eq!(ended(open), None);
    }
}

#[test]
fn nobody_looks_again_at_once_nor_too_late() {
    let again = |wait, created_at| (look_again(wait, created_at, NOW) - NOW) / SECOND;
    assert_eq!(again(None, NOW), 1);
    assert_eq!(again(Some(0), NOW), 1);
    assert_eq!(again(None, NOW - 100_000 * SECOND), 60);
    assert_eq!(again(None, NOW + 100 * SECOND), 1, "the clock went back");
    assert_eq!(again(Some(7200 * SECOND), NOW), 60);
}

#[test]
fn failing_messages_get_at_most_half() {
    assert_eq!([10, 3, 2, 1].map(|max| retried_share(max, 0)), [5, 1, 1, 0]);
    assert_eq!([10, 3, 2, 1].map(|max| retried_share(max, 1)), [5, 2, 1, 1]);
}

#[test]
fn claims_have_limits() {
    assert_eq!(check_max(1).unwrap(), 1);
    assert_eq!(check_max(MAX_CLAIM).unwrap(), i64::from(MAX_CLAIM));
    assert!([0, -1, MAX_CLAIM + 1].iter().all(|max| check_max(*max).is_err()));
    assert_eq!(check_lease(MAX_LEASE).unwrap(), MAX_LEASE);
    assert!([0, -1, MAX_LEASE + 1].iter().all(|lease| check_lease(*lease).is_err()));
}

#[test]
fn order_locks_differ_by_outbox_and_aggregate() {
    let one = order_lock(1, "a");
    assert_eq!(one, order_lock(1, "a"));
    assert!(![order_lock(2, "a"), order_lock(1, "b"), order_lock(1, "")].contains(&one));
}

#[test]
fn a_payload_is_compared_when_both_are_known() {
    let (a, b) = (Some([1].as_slice()), Some([2].as_slice()));
    assert_eq!(seen_before(a, a), Accepted::Duplicate);
    assert_eq!(seen_before(a, b), Accepted::Conflict);
    assert_eq!([seen_before(a, None), seen_before(None, b)], [Accepted::Duplicate; 2]);
}

proptest! {
    #[test]
    fn a_claims_token_covers_its_messages(first in any::<i64>(), span in 0..i64::MAX, random in any::<[u8; 16]>()) {
        let last = first.saturating_add(span);
        let id = ClaimId::new(first, last, random);
        prop_assert_eq!(id.0.get_version_num(), 8);
        let (from, to) = id.places();
        prop_assert!(from <= first && last <= to);
    }

    #[test]
    fn a_short_claims_token_names_its_messages_exactly(first in 1..1i64 << 48, span in 0..(1i64 << 24) - 1, random in any::<[u8; 16]>()) {
        prop_assert_eq!(ClaimId::new(first, first + span, random).places(), (first, first + span));
    }

    #[test]
    fn two_claims_of_the_same_messages_have_different_tokens(a in any::<[u8; 16]>(), b in any::<[u8; 16]>()) {
        // Four bytes are filled with nothing else.
        prop_assume!(a[12..] != b[12..]);
        prop_assert_ne!(ClaimId::new(1, 2, a), ClaimId::new(1, 2, b));
    }
}

#[test]
fn the_inbox_is_passed_over_once_in_a_while() {
    let retention = 32 * DAY;
    let began_for = NOW - retention;
    let first = Pass { began_for, up_to: began_for, page: 0 };
    assert_eq!(pass(Time::MIN, None, retention, NOW), Some(first));
    assert_eq!(pass(began_for, None, retention, NOW + DAY - 1), None);
    let next = Pass { began_for: began_for + DAY, up_to: began_for + DAY, page: 0 };
    assert_eq!(pass(began_for, None, retention, NOW + DAY), Some(next));
    let later = Pass { began_for, up_to: began_for + 2 * DAY, page: 7 };
    assert_eq!(pass(began_for, Some(7), retention, NOW + 2 * DAY), Some(later), "it goes on where it was");
    assert_eq!(
        pass(began_for, None, retention / 2, NOW),
        Some(Pass { began_for: NOW - 16 * DAY, up_to: NOW - 16 * DAY, page: 0 })
    );
    let longer = Pass { began_for: NOW - 64 * DAY, up_to: NOW - 64 * DAY, page: 0 };
    assert_eq!(pass(began_for, None, 2 * retention, NOW), Some(longer), "no pass rests until the future");
    assert_eq!(pass(NOW, None, 0, NOW), Some(Pass { began_for: NOW, up_to: NOW, page: 0 }));
}

proptest! {
    /// Whatever sweeps come when, a message is forgotten by the end of the first pass that begins a thirty-second of the
    /// retention after its time is over, and never before its time.
    #[test]
    fn a_message_is_forgotten_neither_early_nor_much_too_late(
        retention in 0..400 * DAY,
        seen in 0..400 * DAY,
        steps in prop::collection::vec((1..20 * DAY, 1..4_i64), 1..200),
    ) {
        let (mut now, mut began_for, mut page, mut left) = (seen, Time::MIN, None, 0);
        let mut there = true;
        for (step, pages) in steps {
            now += step;
            let Some(found) = pass(began_for, page, retention, now) else {
                prop_assert!(!there || now - seen < retention + retention / 32);
                continue;
            };
            prop_assert_eq!(found.up_to, now - retention);
            if found.page == 0 {
                left = pages;
            }
            // The message is on the first page; others may make the pass longer than one sweep.
            if found.page == 0 && seen <= found.up_to {
                there = false;
            }
            left -= 1;
            (began_for, page) = (found.began_for, (left > 0).then_some(found.page + 1));
            prop_assert!(!there || seen > found.began_for);
        }
    }
}
