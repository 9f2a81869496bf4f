//! Messages: what becomes of one when a relay claims it, delivers it, fails, or is not heard of again.

use sha2::{Digest, Sha256};
use uuid::{Builder, Uuid};

use crate::action::{SECOND, Span, State, Time};
use crate::error::{Code, Error, Result};
use crate::transition::Decision;

/// Most messages of one claim.
pub const MAX_CLAIM: i32 = 10_000;

/// Longest lease of a claim.
pub const MAX_LEASE: Span = 86_400 * SECOND;

/// First step of the back-off after a failed delivery.
const BACKOFF_BASE: Span = SECOND;

/// Longest back-off.
const BACKOFF_CAP: Span = 300 * SECOND;

/// A message that failed rests at least this long, whatever is asked for: nothing runs hot.
pub const SHORTEST_REST: Span = SECOND / 10;

/// What the rules see of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Message {
    /// Claims so far.
    pub attempts: i32,
    /// Until when the last claim holds; `None` when there is none, or its relay has given it back.
    pub lease_expires_at: Option<Time>,
    /// It is delivered.
    pub delivered: bool,
    /// It was given up.
    pub dead: bool,
}

/// What a relay that comes by gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// The message, for a lease: one more attempt.
    Take,
    /// Nothing: its last attempt is over, and there are no more. It becomes a dead letter.
    Bury,
    /// Nothing.
    Leave,
}

/// Judges a relay's coming by at `now`. An attempt counts from its claim, so a relay that dies has used it up.
pub fn claim(message: &Message, max_attempts: i32, now: Time) -> Claim {
    let held = message.lease_expires_at.is_some_and(|end| now < end);
    match message.delivered || message.dead || held {
        true => Claim::Leave,
        false if message.attempts >= max_attempts => Claim::Bury,
        false => Claim::Take,
    }
}

/// What becomes of a message that carries an action, by what its relay was told when it asked for the action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carried {
    /// The relay owns the next attempt: the message is claimed.
    Granted,
    /// The action is not to be had yet; nothing was attempted. Look again then.
    Wait(Time),
    /// The effect has happened already: there is nothing left to deliver.
    Done,
    /// The effect will never be carried out: a dead letter.
    Dead,
    /// Whether the effect happened is not on record any more: a dead letter for a person to look at.
    Forgotten,
}

/// What becomes of a message whose action has ended; `None` while it has not. The record counts also past its retention:
/// as long as the message is not acknowledged, it stays for its sake.
pub fn ended(state: State) -> Option<Carried> {
    match state {
        State::Committed => Some(Carried::Done),
        State::Failed | State::Rejected => Some(Carried::Dead),
        State::Expired => Some(Carried::Forgotten),
        _ => None,
    }
}

/// What `decision` about an action that has not ended means for a message put at `created_at`. `wait` is how long the
/// decision says to wait.
pub fn carried(decision: Decision, wait: Option<Span>, created_at: Time, now: Time) -> Carried {
    match decision {
        Decision::Execute => Carried::Granted,
        Decision::Failed | Decision::Rejected | Decision::Conflict => Carried::Dead,
        _ => Carried::Wait(look_again(wait, created_at, now)),
    }
}

/// When to look again at a message that waits for somebody else: after `wait` where that is known, at most a minute;
/// else after a quarter of the time that it has waited already, 1 second to 60.
pub fn look_again(wait: Option<Span>, created_at: Time, now: Time) -> Time {
    let rest = match wait {
        Some(wait) if wait > 0 => wait.min(60 * SECOND),
        _ => (now.saturating_sub(created_at) / 4).clamp(SECOND, 60 * SECOND),
    };
    now.saturating_add(rest)
}

/// What becomes of a message whose delivery failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failed {
    /// It is tried again from then.
    Retry(Time),
    /// It was the last attempt: a dead letter.
    Dead,
}

/// Judges a failed delivery. `delay` is what the relay asks for, `random` jitter in 0..1.
pub fn fail(message: &Message, max_attempts: i32, delay: Option<Span>, random: f64, now: Time) -> Failed {
    if message.attempts >= max_attempts {
        return Failed::Dead;
    }
    let rest = delay.unwrap_or_else(|| backoff(message.attempts, random)).max(SHORTEST_REST);
    Failed::Retry(now.saturating_add(rest))
}

/// How long to wait after `failures` failed deliveries: exponential, capped, full jitter.
pub fn backoff(failures: i32, random: f64) -> Span {
    let doublings = failures.saturating_sub(1).clamp(0, 30) as u32;
    let full = (BACKOFF_BASE << doublings).min(BACKOFF_CAP);
    ((full as f64 * random) as Span).clamp(SHORTEST_REST, BACKOFF_CAP)
}

/// How a report about a claim stands to the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The claim is the last one: the report counts, also after its lease, since nobody has taken over.
    Current,
    /// The last claim's report has come before.
    Repeated,
    /// A later claim has taken over, or it never was a claim of this message.
    Lost,
}

/// How a report of `claim_id` stands to a message whose last claim is `last`.
pub fn standing(message: &Message, last: Option<Uuid>, claim_id: Uuid) -> Standing {
    match last == Some(claim_id) {
        false => Standing::Lost,
        true if message.delivered => Standing::Repeated,
        true => Standing::Current,
    }
}

/// A claim's token: random, and it says in which part of the table the claim's messages stand, so that renewing finds
/// them without an index that each claim would have to keep up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimId(pub Uuid);

/// Greatest place that a token can name: six bytes.
const PLACE_MAX: i64 = (1 << 48) - 1;
/// Greatest distance that a token can name, which stands for any: three bytes.
const SPAN_MAX: i64 = (1 << 24) - 1;

impl ClaimId {
    /// A token for messages from place `first` to place `last`. `random` fills the rest: 50 bits of a version 8 uuid.
    pub fn new(first: i64, last: i64, random: [u8; 16]) -> ClaimId {
        let fits = (1..=PLACE_MAX).contains(&first);
        let place = if fits { first } else { 0 };
        let span = if fits { last.saturating_sub(first).clamp(0, SPAN_MAX) } else { SPAN_MAX };
        let mut bytes = random;
        bytes[..6].copy_from_slice(&place.to_be_bytes()[2..]);
        bytes[9..12].copy_from_slice(&span.to_be_bytes()[5..]);
        ClaimId(Builder::from_custom_bytes(bytes).into_uuid())
    }

    /// The first and the last place that the claim's messages can have.
    pub fn places(self) -> (i64, i64) {
        let bytes = self.0.as_bytes();
        let number = |bytes: &[u8]| bytes.iter().fold(0i64, |number, byte| (number << 8) | i64::from(*byte));
        let (place, span) = (number(&bytes[..6]), number(&bytes[9..12]));
        let first = if place == 0 { i64::MIN } else { place };
        (first, if span == SPAN_MAX { i64::MAX } else { place.saturating_add(span) })
    }
}

/// The lock under which messages of one aggregate are put, one transaction after the other.
pub fn order_lock(outbox: u32, aggregateid: &str) -> i64 {
    let mut hash = Sha256::new_with_prefix("pg_idem/outbox/1");
    hash.update(outbox.to_be_bytes());
    hash.update(aggregateid);
    let digest: [u8; 32] = hash.finalize().into();
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    i64::from_be_bytes(first)
}

/// How many of `max` messages of a claim may be ones that failed before, so that failing ones never starve the others:
/// half, and of an odd one every second time, by `turn`.
pub fn retried_share(max: i64, turn: u64) -> i64 {
    max / 2 + if max % 2 == 1 { (turn % 2) as i64 } else { 0 }
}

/// Checks how many messages a claim asks for. Errors: 22023.
pub fn check_max(max: i32) -> Result<i64> {
    match max {
        1..=MAX_CLAIM => Ok(i64::from(max)),
        _ => {
            Err(Error::new(Code::InvalidParameter, format!("max is {max}; it must be from 1 to {MAX_CLAIM}"))
                .hint("Claim less at a time, and more often."))
        }
    }
}

/// Checks the lease of a claim. Errors: 22023.
pub fn check_lease(lease: Span) -> Result<Span> {
    match lease {
        1..=MAX_LEASE => Ok(lease),
        _ => Err(Error::new(
            Code::InvalidParameter,
            "lease_seconds must be greater than zero and at most one day",
        )
        .hint("Ask for the time that a delivery takes, and renew it with idem_outbox_renew.")),
    }
}
