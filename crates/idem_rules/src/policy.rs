//! The policy of an action type: what may be repeated, for how long a lease runs, how often to try.

use crate::action::{DAY, SECOND, Span};
use crate::error::{Code, Error, Result};

/// What a repeated effect would do (seed: classify tool calls before production).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Changes nothing.
    ReadOnly,
    /// Sets an explicit final state; repeating adds nothing.
    IdempotentMutation,
    /// Creates something; the provider recognises a repeated key for a while.
    DeduplicatedCreation,
    /// Can be undone by another action.
    Reversible,
    /// Cannot be undone.
    Irreversible,
}

const CLASSES: [Class; 5] = [
    Class::ReadOnly,
    Class::IdempotentMutation,
    Class::DeduplicatedCreation,
    Class::Reversible,
    Class::Irreversible,
];

impl Class {
    /// The word in SQL.
    pub const fn word(self) -> &'static str {
        match self {
            Class::ReadOnly => "read_only",
            Class::IdempotentMutation => "idempotent_mutation",
            Class::DeduplicatedCreation => "deduplicated_creation",
            Class::Reversible => "reversible",
            Class::Irreversible => "irreversible",
        }
    }

    /// The class behind a word.
    pub fn from_word(word: &str) -> Option<Class> {
        CLASSES.into_iter().find(|class| class.word() == word)
    }

    /// True where a second effect is no harm at any time.
    pub const fn repeats_freely(self) -> bool {
        matches!(self, Class::ReadOnly | Class::IdempotentMutation)
    }

    /// True where a reservation that could be rolled back after the effect is never acceptable.
    pub const fn needs_two_transactions(self) -> bool {
        matches!(self, Class::Reversible | Class::Irreversible)
    }
}

/// Where the effect takes place, as far as the type says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// In this database, in the transaction that reserved it.
    Local,
    /// Somewhere else: reserve and COMMIT before the call.
    External,
    /// The type is not registered; nothing is checked.
    Unsaid,
}

/// How proposer and approver have to be apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distinct {
    /// By role: neither the role that called nor the one that logged in is the same.
    Role,
    /// By the names given for them.
    Name,
    /// They need not be.
    None,
}

impl Distinct {
    /// What stands behind a word; anything but the known words is the strictest.
    pub fn from_word(word: &str) -> Distinct {
        match word {
            "name" => Distinct::Name,
            "none" => Distinct::None,
            _ => Distinct::Role,
        }
    }
}

/// The policy of one version of one action type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Rises with every change; 0 for a type that is not registered.
    pub version: i32,
    /// What a repeated effect would do.
    pub class: Class,
    /// Where the effect takes place.
    pub effect: Effect,
    /// Lease of an attempt that names none.
    pub lease: Span,
    /// Longest lease that can be asked for.
    pub max_lease: Span,
    /// How long an ended action is kept.
    pub ttl: Span,
    /// How long its tombstone stays.
    pub tombstone_ttl: Span,
    /// Attempts before the action fails.
    pub max_attempts: i32,
    /// First step of the exponential back-off.
    pub backoff_base: Span,
    /// Longest back-off.
    pub backoff_cap: Span,
    /// An action of this type starts only when approved.
    pub requires_approval: bool,
    /// How long a proposal or an approval holds.
    pub approval_ttl: Span,
    /// How proposer and approver have to be apart.
    pub distinct_approver: Distinct,
    /// An attempt marks the moment before its effect may leave the building.
    pub marks_dispatch: bool,
    /// For how long the provider recognises a repeated key.
    pub provider_key_window: Span,
    /// How long nothing found means nothing yet.
    pub settle_delay: Span,
    /// Distance of two probes that both count.
    pub probe_interval: Span,
    /// Agreeing probes that disprove an effect.
    pub probes_required: i32,
    /// How long an outcome may stay unknown before a person has to look.
    pub resolve_deadline: Span,
}

impl Policy {
    /// How a name behaves that nobody registered: as a creation that always reconciles.
    pub const UNREGISTERED: Policy = Policy {
        version: 0,
        class: Class::DeduplicatedCreation,
        effect: Effect::Unsaid,
        lease: 60 * SECOND,
        max_lease: 3600 * SECOND,
        ttl: 30 * DAY,
        tombstone_ttl: 90 * DAY,
        max_attempts: 5,
        backoff_base: SECOND,
        backoff_cap: 300 * SECOND,
        requires_approval: false,
        approval_ttl: 3600 * SECOND,
        distinct_approver: Distinct::Role,
        marks_dispatch: false,
        provider_key_window: 0,
        settle_delay: 60 * SECOND,
        probe_interval: 60 * SECOND,
        probes_required: 2,
        resolve_deadline: DAY,
    };

    /// Refuses a lease that nobody can have. Errors: 22023 when it is not positive.
    pub fn check_lease(asked: Option<Span>) -> Result<()> {
        match asked {
            Some(lease) if lease <= 0 => {
                Err(Error::new(Code::InvalidParameter, "lease_seconds must be greater than zero"))
            }
            _ => Ok(()),
        }
    }

    /// The lease an attempt gets that asked for `asked`.
    ///
    /// Errors: 22023 when it is not positive or longer than the type's `max_lease`.
    pub fn lease_for(&self, asked: Option<Span>) -> Result<Span> {
        Policy::check_lease(asked)?;
        match asked {
            None => Ok(self.lease),
            Some(lease) if lease > self.max_lease => Err(Error::new(
                Code::InvalidParameter,
                format!("lease_seconds is longer than the action type allows ({} s)", self.max_lease / SECOND),
            )
            .hint("Ask for a shorter lease and call idem_renew, or raise max_lease with idem_register_action_type.")),
            Some(lease) => Ok(lease),
        }
    }

    /// How long to wait after `failures` failed tries: exponential, capped, full jitter, saturating.
    ///
    /// `random` lies in 0..1. The result lies in 1 ms..=cap, so that a retry never comes at once.
    pub fn backoff(&self, failures: i32, random: f64) -> Span {
        let doublings = failures.saturating_sub(1).clamp(0, 62) as u32;
        let full = self.backoff_base.saturating_mul(1i64 << doublings).min(self.backoff_cap);
        ((full as f64 * random) as Span).clamp(1_000.min(self.backoff_cap), self.backoff_cap)
    }
}

/// The two policies that a move is judged by.
#[derive(Debug, Clone, Copy)]
pub struct Policies<'a> {
    /// The one the last attempt was granted under.
    pub granted: &'a Policy,
    /// The type's present one, which a new attempt is granted under.
    pub current: &'a Policy,
}

impl<'a> Policies<'a> {
    /// One policy for both, where nothing has changed.
    pub const fn same(policy: &'a Policy) -> Policies<'a> {
        Policies { granted: policy, current: policy }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn classes_round_trip() {
        for class in CLASSES {
            assert_eq!(Class::from_word(class.word()), Some(class));
        }
        assert_eq!(Class::from_word("Read_Only"), None);
    }

    #[test]
    fn lease_has_limits() {
        let policy = Policy::UNREGISTERED;
        assert_eq!(policy.lease_for(None).unwrap(), 60 * SECOND);
        assert_eq!(policy.lease_for(Some(1)).unwrap(), 1);
        assert_eq!(policy.lease_for(Some(3600 * SECOND)).unwrap(), 3600 * SECOND);
        assert!(policy.lease_for(Some(0)).is_err());
        assert!(policy.lease_for(Some(3600 * SECOND + 1)).is_err());
    }

    proptest! {
        #[test]
        fn backoff_stays_within_its_cap(failures in any::<i32>(), random in 0.0f64..1.0, base in 1i64..=i64::MAX / 4) {
            let policy = Policy { backoff_base: base, backoff_cap: base.saturating_mul(3), ..Policy::UNREGISTERED };
            let wait = policy.backoff(failures, random);
            prop_assert!(wait >= 1 && wait <= policy.backoff_cap);
        }
    }

    #[test]
    fn backoff_doubles_until_the_cap() {
        let policy = Policy { backoff_base: SECOND, backoff_cap: 10 * SECOND, ..Policy::UNREGISTERED };
        let steps: Vec<i64> = (1..=6).map(|n| policy.backoff(n, 0.999_999) / 100_000).collect();
        assert_eq!(steps, [9, 19, 39, 79, 99, 99]);
    }
}
