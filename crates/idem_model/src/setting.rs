//! Settings: which type, who is there, and how far the story goes.
//!
//! Time runs in ticks. In every setting the lease, the settle delay, the probe interval, the window and the deadline
//! have lengths that no two of them share where it matters, so that none is mistaken for another.

use idem_rules::action::{Span, Time};
use idem_rules::policy::{Class, Policy};

/// One step of the clock. Fences that rise within a tick never reach the next one.
pub const TICK: Span = 1000;

/// Who is there besides callers, workers, the provider, reconcilers and the sweep.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cast {
    /// A caller who lost the answer asks again with the same token.
    pub forgetful: bool,
    /// Workers renew their leases.
    pub renewing: bool,
    /// The provider also says no.
    pub refusing: bool,
    /// Workers hand over what they know as evidence, or have a lost commit recorded.
    pub witnesses: bool,
    /// Reconcilers also find things that say nothing.
    pub vague: bool,
    /// A person escalates, decides, reopens.
    pub operator: bool,
    /// A person approves, rejects, withdraws.
    pub approver: bool,
}

/// A small world.
#[derive(Debug, Clone)]
pub struct Setting {
    /// What the report calls it.
    pub name: &'static str,
    /// The type's versions, the first in force at the beginning.
    pub policies: Vec<Policy>,
    /// Ticks until the story ends.
    pub horizon: i64,
    /// Attempts that are asked for.
    pub attempts: usize,
    /// Reconciling attempts that are asked for.
    pub reconcilers: usize,
    /// Times that a person gives another chance or decides.
    pub decisions: u8,
    /// Who is there.
    pub cast: Cast,
    /// What must be possible, so that the promises are not kept by an empty stage.
    pub reaches: &'static [&'static str],
}

impl Setting {
    /// When the story ends.
    pub fn end(&self) -> Time {
        TICK * (1 + self.horizon)
    }

    /// The type as it was in `version`.
    pub fn policy(&self, version: i32) -> &Policy {
        &self.policies[version as usize - 1]
    }

    /// For how long the provider really knows a repeated key.
    pub fn provider_window(&self) -> Span {
        self.policies[0].provider_key_window
    }

    /// True when a second effect is harm under every version of the type.
    pub fn counts_effects(&self) -> bool {
        self.policies.iter().all(|policy| !policy.class.repeats_freely())
    }
}

fn policy(class: Class) -> Policy {
    Policy {
        version: 1,
        class,
        lease: TICK,
        max_lease: 3 * TICK,
        max_attempts: 3,
        approval_ttl: 3 * TICK,
        settle_delay: 2 * TICK,
        probe_interval: TICK,
        probes_required: 2,
        resolve_deadline: 4 * TICK,
        ..Policy::UNREGISTERED
    }
}

/// How far the stories go.
#[derive(Debug, Clone, Copy)]
pub enum Size {
    /// For every run of the tests.
    Small,
    /// A tick more, for a run of its own.
    Large,
}

/// Every setting.
pub fn settings(size: Size) -> Vec<Setting> {
    let more: i64 = match size {
        Size::Small => 0,
        Size::Large => 1,
    };
    let setting = |name, policies, horizon: i64, attempts, reconcilers, cast, reaches| Setting {
        name,
        policies,
        horizon: horizon + more,
        decisions: 1,
        attempts,
        reconcilers,
        cast,
        reaches,
    };
    let creation = policy(Class::DeduplicatedCreation);
    let once = Policy { probes_required: 1, ..creation.clone() };
    let slow = Policy { lease: 2 * TICK, settle_delay: TICK, ..once.clone() };
    let windowed = Policy { provider_key_window: 3 * TICK, settle_delay: TICK, ..once.clone() };
    let marking = Policy { marks_dispatch: true, ..slow.clone() };
    let approving = Policy { requires_approval: true, class: Class::Irreversible, ..marking.clone() };
    let none = Cast::default();
    vec![
        setting(
            "creation",
            vec![creation.clone()],
            6,
            2,
            3,
            Cast { refusing: true, ..none },
            &["committed", "committed late", "second attempt", "disproved", "escalated"],
        ),
        setting(
            "creation, one probe",
            vec![once.clone()],
            5,
            2,
            2,
            Cast { refusing: true, vague: true, ..none },
            &["committed", "second attempt", "disproved"],
        ),
        setting(
            "creation, witnesses",
            vec![slow.clone()],
            6,
            2,
            2,
            Cast { witnesses: true, renewing: true, ..none },
            &["committed", "disproved"],
        ),
        setting(
            "key window",
            vec![windowed.clone()],
            5,
            2,
            2,
            Cast { refusing: true, ..none },
            &["committed", "second attempt", "sticky"],
        ),
        setting(
            "key window, resumed and renewed",
            vec![Policy { provider_key_window: 4 * TICK, lease: 2 * TICK, ..windowed.clone() }],
            4,
            2,
            1,
            Cast { forgetful: true, renewing: true, ..none },
            &["committed", "second attempt"],
        ),
        setting(
            "dispatch marks",
            vec![marking.clone()],
            6,
            2,
            1,
            Cast { refusing: true, forgetful: true, ..none },
            &["committed", "second attempt", "disproved"],
        ),
        setting(
            "operator",
            vec![once.clone()],
            4,
            2,
            1,
            Cast { operator: true, witnesses: true, ..none },
            &["committed", "second attempt", "escalated", "discrepancy"],
        ),
        setting(
            "approval",
            vec![approving.clone()],
            4,
            2,
            1,
            Cast { approver: true, refusing: true, ..none },
            &["committed", "rejected"],
        ),
        setting(
            "approval, type changed",
            vec![approving.clone(), Policy { version: 2, settle_delay: 2 * TICK, ..approving }],
            3,
            2,
            1,
            Cast { approver: true, ..none },
            &["committed", "rejected"],
        ),
        setting(
            "type changed to a shorter settle delay",
            vec![
                Policy { settle_delay: 3 * TICK, ..windowed.clone() },
                Policy { version: 2, ..windowed.clone() },
            ],
            5,
            2,
            1,
            none,
            &["committed", "second attempt"],
        ),
        setting(
            "type changed to free repeats",
            vec![once.clone(), Policy { version: 2, ..policy(Class::IdempotentMutation) }],
            5,
            2,
            2,
            none,
            &["committed", "second attempt"],
        ),
        setting(
            "free repeats, type changed to a creation",
            vec![policy(Class::IdempotentMutation), Policy { version: 2, ..once.clone() }],
            5,
            2,
            2,
            none,
            &["committed", "second attempt"],
        ),
        setting(
            "reversible",
            vec![Policy {
                probe_interval: 2 * TICK,
                resolve_deadline: 6 * TICK,
                ..policy(Class::Reversible)
            }],
            6,
            1,
            2,
            Cast { renewing: true, vague: true, ..none },
            &["committed", "disproved"],
        ),
    ]
}
