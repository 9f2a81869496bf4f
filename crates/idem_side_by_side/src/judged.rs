//! What the rules make of a call whose moment is known only within bounds.

use idem_rules::action::{Action, Time};
use idem_rules::error::Result;
use idem_rules::policy::Policies;
use idem_rules::transition::{Event, Step, transition};

/// What the rules say at the earliest and at the latest moment of a call.
pub struct Judged {
    earliest: Result<Step>,
    latest: Result<Step>,
}

/// Asks the rules. `event` gets the random value, which lengthens what it has a part in.
pub fn judge<'a>(
    before: Option<&Action>,
    event: impl Fn(f64) -> Event<'a>,
    policies: Policies,
    (earliest, latest): (Time, Time),
) -> Judged {
    Judged {
        earliest: transition(before, &event(0.0), policies, earliest),
        latest: transition(before, &event(0.999_999_999), policies, latest),
    }
}

impl Judged {
    /// What the rules say, if they say the same at both moments; `None` when a boundary lies between them.
    pub fn step(&self) -> Option<&Result<Step>> {
        let alike = match (&self.earliest, &self.latest) {
            (Ok(one), Ok(other)) => {
                let words = |step: &Step| {
                    (step.events.clone(), step.ended.iter().map(|e| e.outcome).collect::<Vec<_>>())
                };
                let answers = std::mem::discriminant(&one.answer) == std::mem::discriminant(&other.answer);
                let rows = match (&one.next, &other.next) {
                    (Some(one), Some(other)) => timeless(one) == timeless(other),
                    (None, None) => true,
                    _ => false,
                };
                answers && rows && words(one) == words(other)
            }
            (Err(one), Err(other)) => one.code == other.code,
            _ => false,
        };
        alike.then_some(&self.earliest)
    }

    /// What is wrong with the row that is stored; `None` when the rules would have stored it.
    pub fn difference(&self, before: Option<&Action>, stored: Option<&Action>) -> Option<String> {
        let (Ok(earliest), Ok(latest)) = (&self.earliest, &self.latest) else {
            return (before != stored).then(|| format!("refused, but stored {stored:?}"));
        };
        let (Some(from), Some(to)) = (earliest.next.as_ref().or(before), latest.next.as_ref().or(before))
        else {
            return stored.map(|row| format!("nothing to store, but stored {row:?}"));
        };
        let Some(row) = stored else { return Some(format!("nothing stored, expected {from:?}")) };
        if timeless(row) != timeless(from) {
            return Some(format!("stored {row:?}\nexpected {from:?}"));
        }
        let outside = times(row).into_iter().zip(times(from).into_iter().zip(times(to))).position(
            |(stored, (from, to))| match (stored, from, to) {
                (None, None, None) => false,
                (Some(stored), Some(from), Some(to)) => stored < from || to < stored,
                _ => true,
            },
        );
        outside.map(|n| format!("time {n} of {row:?}\nlies outside of {from:?}\nand {to:?}"))
    }
}

fn times(row: &Action) -> [Option<Time>; 14] {
    [
        Some(row.created_at),
        Some(row.visit_at),
        Some(row.fence),
        row.lease_expires_at,
        row.generation_granted_at,
        row.dispatched_at,
        row.due_at,
        row.deadline_at,
        row.settle_from,
        row.probed_at,
        row.reconcile_lease_expires_at,
        row.approval_expires_at,
        row.ended_at,
        row.expires_at,
    ]
}

/// The row without its times.
fn timeless(row: &Action) -> Action {
    Action {
        created_at: 0,
        visit_at: 0,
        fence: 0,
        lease_expires_at: None,
        generation_granted_at: None,
        dispatched_at: None,
        due_at: None,
        deadline_at: None,
        settle_from: None,
        probed_at: None,
        reconcile_lease_expires_at: None,
        approval_expires_at: None,
        ended_at: None,
        expires_at: None,
        ..row.clone()
    }
}
