//! Applying a step: the row, its place among the open actions, its history; nothing else is decided here.

use idem_rules::action::Time;
use idem_rules::error::Result;
use idem_rules::expiry::open;
use idem_rules::transition::Step;

use super::count;
use super::history::{self, Report};
use super::ledger::{Entry, Ledger, Outcome};
use super::open::OpenActions;
use crate::server::{Call, Changed};

/// Holds an action's row and its place, without waiting: what is decided after that need not wait to be stored.
pub fn hold(call: &Call, ledger: &Ledger, entry: &Entry) -> Result<Changed> {
    Ok(match ledger.lock(entry, false) {
        Changed::Done => OpenActions::open(call)?.hold(entry.action_id),
        other => other,
    })
}

/// Stores what `step` says about `entry`. Without [`Changed::Done`] nothing was stored, and all has to be decided again.
pub fn apply(
    call: &Call,
    ledger: &Ledger,
    entry: &Entry,
    step: &Step,
    outcome: Outcome,
    report: Report,
    now: Time,
) -> Result<Changed> {
    let before = &entry.action;
    let after = step.next.as_ref().unwrap_or(before);
    let changed = ledger.update(entry, after, outcome);
    if changed != Changed::Done {
        return Ok(changed);
    }
    let place = open(after, now);
    // An ended action may hold a place for its retention, whatever the clock says by now.
    if place.is_some() || open(before, now).is_some() || before.state.is_terminal() {
        let open_actions = OpenActions::open(call)?;
        let set = |place| open_actions.set(entry.action_id, place, entry.tenant(), entry.action_type_datum());
        if !set(place)? {
            // No decision survives a wait: a lease could be over by now. From here on the place is this transaction's.
            ledger.put_back(entry)?;
            set(open(before, now))?;
            return Ok(Changed::Busy);
        }
    }
    if after.attempt > before.attempt {
        count::grant(after);
    }
    count::outcome(call, entry.action_id, before, after, now)?;
    history::add_attempts(call, entry.action_id, &step.ended, now)?;
    history::add_events(call, entry.action_id, after.attempt, &step.events, report, now)?;
    Ok(Changed::Done)
}
