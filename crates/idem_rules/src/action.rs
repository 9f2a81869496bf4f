//! The action: what the ledger keeps of one logical intention, as the rules see it.

use uuid::Uuid;

/// Microseconds since the Unix epoch, read from the database's clock and passed in.
pub type Time = i64;

/// A length of time in microseconds.
pub type Span = i64;

/// One second as a [`Span`].
pub const SECOND: Span = 1_000_000;

/// One day as a [`Span`].
pub const DAY: Span = 86_400 * SECOND;

/// Where an action stands. The stored letter and the word that users see are given by [`State::code`] and
/// [`State::word`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Waits for approval.
    Proposed,
    /// May start until the approval lapses.
    Approved,
    /// An attempt has, or had, the lease.
    Started,
    /// An outcome is open and nobody is running.
    Unknown,
    /// The last attempt definitely had no effect; another is allowed from `due_at`.
    Retryable,
    /// The effect happened; the response is kept. Terminal.
    Committed,
    /// The effect definitely did not happen and will not be tried again. Terminal.
    Failed,
    /// Refused, withdrawn, cancelled or lapsed before anything was dispatched. Terminal.
    Rejected,
    /// A tombstone. Terminal.
    Expired,
}

/// Every state, in the order in which an action can pass through them.
pub const STATES: [State; 9] = [
    State::Proposed,
    State::Approved,
    State::Started,
    State::Unknown,
    State::Retryable,
    State::Committed,
    State::Failed,
    State::Rejected,
    State::Expired,
];

impl State {
    /// The letter that stands in the ledger.
    pub const fn code(self) -> u8 {
        match self {
            State::Proposed => b'p',
            State::Approved => b'a',
            State::Started => b's',
            State::Unknown => b'u',
            State::Retryable => b'r',
            State::Committed => b'c',
            State::Failed => b'f',
            State::Rejected => b'j',
            State::Expired => b'x',
        }
    }

    /// The state behind a stored letter; `None` for a letter that is no state.
    pub fn from_code(code: u8) -> Option<State> {
        STATES.into_iter().find(|state| state.code() == code)
    }

    /// The word users see.
    pub const fn word(self) -> &'static str {
        match self {
            State::Proposed => "proposed",
            State::Approved => "approved",
            State::Started => "started",
            State::Unknown => "unknown",
            State::Retryable => "retryable",
            State::Committed => "committed",
            State::Failed => "failed",
            State::Rejected => "rejected",
            State::Expired => "expired",
        }
    }

    /// True for the states that only retention, or a reopening by a person, may change.
    pub const fn is_terminal(self) -> bool {
        matches!(self, State::Committed | State::Failed | State::Rejected | State::Expired)
    }
}

/// What stands in the ledger about one action, without the texts and documents that no rule reads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Action {
    /// Digest of what was asked for, in scope.
    pub fingerprint: [u8; 32],
    /// Scheme that the digest was made under.
    pub scheme: i16,
    /// When the row was made.
    pub created_at: Time,
    /// When the worker has to look at this row for the first time; written at INSERT only.
    pub visit_at: Time,
    /// Version of the type's policy that the last attempt was granted under.
    pub policy_version: i32,
    /// Where the action stands.
    pub state: State,
    /// Number of the last attempt; 0 before the first.
    pub attempt: i32,
    /// Ownership token of the last attempt.
    pub attempt_id: Option<Uuid>,
    /// Strictly rising with every acquisition.
    pub fence: i64,
    /// End of the last attempt's lease; `None` when no attempt is started.
    pub lease_expires_at: Option<Time>,
    /// Retention asked for by a call, when longer than the type's.
    pub ttl: Option<Span>,
    /// Number of the provider key.
    pub generation: i32,
    /// First grant of this generation; `None` means creation for generation 0, and "not yet" after it.
    pub generation_granted_at: Option<Time>,
    /// When the last attempt marked its dispatch.
    pub dispatched_at: Option<Time>,
    /// retryable: another attempt is allowed from here; unknown: the next probe or repeat is.
    pub due_at: Option<Time>,
    /// Until when an unknown outcome has to be resolved.
    pub deadline_at: Option<Time>,
    /// The settle delay counts from here: the latest of lease end, dispatch and mark.
    pub settle_from: Option<Time>,
    /// Agreeing, counted probes that found nothing, since the latest attempt.
    pub probes: i32,
    /// Probes of any finding since the latest attempt; drives their back-off.
    pub probe_tries: i32,
    /// When the last counted probe was.
    pub probed_at: Option<Time>,
    /// Ownership token of the last reconciling attempt.
    pub reconcile_id: Option<Uuid>,
    /// End of the reconciling attempt's lease; `None` when nobody reconciles.
    pub reconcile_lease_expires_at: Option<Time>,
    /// proposed: when the proposal lapses; later: when the approval does.
    pub approval_expires_at: Option<Time>,
    /// Version of the type's policy that the approval is for; `None` before one was given.
    pub approval_policy_version: Option<i32>,
    /// Attempts that do not count: released ones, and all those before a reopening.
    pub forgiven: i32,
    /// What else is true of the action.
    pub flags: Flags,
    /// What the provider made, by its own name.
    pub resource_id: Option<String>,
    /// When the action reached a terminal state.
    pub ended_at: Option<Time>,
    /// Terminal: end of retention; expired: end of the tombstone.
    pub expires_at: Option<Time>,
}

/// What is true or false of an action. Stored as one integer, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags {
    /// An attempt before the last one has an open outcome.
    pub open_before: bool,
    /// The last attempt's own outcome was closed by its owner although an earlier one is open.
    pub own_closed: bool,
    /// Since the last disproof an ended attempt was dispatched.
    pub open_dispatched: bool,
    /// Some attempt was dispatched, disproved or not.
    pub ever_dispatched: bool,
    /// The open outcome comes from before a restore: outside every window.
    pub restored: bool,
    /// Somebody reported that the effect happened.
    pub positive_evidence: bool,
    /// Reports contradict each other; a person has to decide.
    pub discrepancy: bool,
    /// A person has to look at it.
    pub escalated: bool,
    /// The approval was withdrawn, or the action cancelled.
    pub withdrawn: bool,
    /// Only part of the effect happened.
    pub needs_compensation: bool,
    /// A message that has not left yet carries the action: only its relay starts it.
    pub carried: bool,
    /// The last attempt itself said that its outcome is unknown.
    pub said_unknown: bool,
}

impl Flags {
    const fn bits(self) -> [bool; 12] {
        [
            self.open_before,
            self.own_closed,
            self.open_dispatched,
            self.ever_dispatched,
            self.restored,
            self.positive_evidence,
            self.discrepancy,
            self.escalated,
            self.withdrawn,
            self.needs_compensation,
            self.carried,
            self.said_unknown,
        ]
    }

    /// The stored integer: bit 0 is the first field, and so on in the order of declaration.
    pub fn to_bits(self) -> i32 {
        self.bits().into_iter().rev().fold(0, |sum, bit| (sum << 1) | i32::from(bit))
    }

    /// The flags behind a stored integer; bits that are not defined are ignored.
    pub const fn from_bits(bits: i32) -> Flags {
        const fn bit(bits: i32, n: u32) -> bool {
            bits & (1 << n) != 0
        }
        Flags {
            open_before: bit(bits, 0),
            own_closed: bit(bits, 1),
            open_dispatched: bit(bits, 2),
            ever_dispatched: bit(bits, 3),
            restored: bit(bits, 4),
            positive_evidence: bit(bits, 5),
            discrepancy: bit(bits, 6),
            escalated: bit(bits, 7),
            withdrawn: bit(bits, 8),
            needs_compensation: bit(bits, 9),
            carried: bit(bits, 10),
            said_unknown: bit(bits, 11),
        }
    }
}

impl Action {
    /// A new row that no attempt has been granted for.
    pub fn new(fingerprint: [u8; 32], scheme: i16, policy_version: i32, now: Time) -> Action {
        Action {
            fingerprint,
            scheme,
            created_at: now,
            visit_at: now,
            policy_version,
            state: State::Proposed,
            attempt: 0,
            attempt_id: None,
            fence: 0,
            lease_expires_at: None,
            ttl: None,
            generation: 0,
            generation_granted_at: None,
            dispatched_at: None,
            due_at: None,
            deadline_at: None,
            settle_from: None,
            probes: 0,
            probe_tries: 0,
            probed_at: None,
            reconcile_id: None,
            reconcile_lease_expires_at: None,
            approval_expires_at: None,
            approval_policy_version: None,
            forgiven: 0,
            flags: Flags::default(),
            resource_id: None,
            ended_at: None,
            expires_at: None,
        }
    }

    /// True while the last attempt may be presumed alive.
    pub fn lease_alive(&self, now: Time) -> bool {
        self.state == State::Started && self.lease_expires_at.is_some_and(|end| now < end)
    }

    /// True while a reconciling attempt may be presumed alive.
    pub fn reconciler_alive(&self, now: Time) -> bool {
        self.state == State::Unknown && self.reconcile_lease_expires_at.is_some_and(|end| now < end)
    }

    /// True once `due_at` has come; nothing stored means due.
    pub fn is_due(&self, now: Time) -> bool {
        self.due_at.is_none_or(|due| due <= now)
    }

    /// True when the outcome has not been resolved in time or a person was asked to look.
    pub fn needs_review(&self, now: Time) -> bool {
        self.flags.escalated || self.deadline_at.is_some_and(|deadline| deadline <= now)
    }

    /// True when a terminal action's retention is over, whether or not a worker has been here.
    pub fn retention_over(&self, now: Time) -> bool {
        self.state.is_terminal() && self.expires_at.is_some_and(|end| end <= now)
    }

    /// True while reports that contradict each other keep the record: a person has to decide, however late it is.
    pub fn undecided(&self) -> bool {
        self.flags.discrepancy && self.state != State::Expired
    }

    /// The state as a reader has to see it at `now`.
    pub fn state_at(&self, now: Time) -> State {
        if self.retention_over(now) { State::Expired } else { self.state }
    }

    /// First grant of the present provider key, where there was one.
    pub fn window_start(&self) -> Option<Time> {
        match self.generation {
            0 => Some(self.generation_granted_at.unwrap_or(self.created_at)),
            _ => self.generation_granted_at,
        }
    }

    /// Attempts that count against the type's maximum.
    pub fn counted_attempts(&self) -> i32 {
        self.attempt.saturating_sub(self.forgiven)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_letters_are_distinct_and_round_trip() {
        for state in STATES {
            assert_eq!(State::from_code(state.code()), Some(state));
        }
        assert_eq!(State::from_code(b'?'), None);
    }

    #[test]
    fn flags_round_trip_bit_by_bit() {
        for n in 0..12 {
            assert_eq!(Flags::from_bits(1 << n).to_bits(), 1 << n);
        }
        assert_eq!(Flags::from_bits(0b1111_1111_1111).to_bits(), 0b1111_1111_1111);
        assert_eq!(Flags::from_bits(1 << 12), Flags::default());
    }
}
