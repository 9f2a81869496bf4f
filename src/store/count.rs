//! Exact counts: `idem_counted`, rows whose sum counts. Whatever counts adds a row in its own transaction, so that
//! what is rolled back is not counted and nobody waits for another; the worker adds rows up.

use idem_rules::action::{Action, SECOND, Span, State, Time};
use idem_rules::error::Result;
use uuid::Uuid;

use super::history;
use crate::server::{self, Call, Column, Count, Spec, Table, Type, Values};

const SPEC: Spec = Spec {
    place: 11,
    name: c"idem_counted",
    columns: &[
        Column("name", Type::Text),
        Column("up_to", Type::Big),
        Column("value", Type::Big),
        Column("counter", Type::Big),
    ],
    indexes: &[],
};

/// Upper bounds of the distribution of the time to a resolution.
const UP_TO: [Span; 8] = [
    SECOND,
    10 * SECOND,
    60 * SECOND,
    300 * SECOND,
    900 * SECOND,
    3600 * SECOND,
    6 * 3600 * SECOND,
    24 * 3600 * SECOND,
];

/// Counts a grant: of an action's first attempt, the action too.
pub fn grant(action: &Action) {
    server::count(Count::AttemptsSent);
    if action.attempt == 1 {
        server::count(Count::ActionsStarted);
    }
}

/// Adds `value` to the count `name`.
pub fn add(call: &Call, name: &str, value: i64) -> Result<()> {
    add_up_to(&Table::open(call, &SPEC)?, name, None, value);
    Ok(())
}

fn add_up_to(table: &Table, name: &str, up_to: Option<Span>, value: i64) {
    let mut values = Values::new();
    values.set_text(0, Some(name));
    values.set_big(1, up_to);
    values.set_big(2, Some(value));
    table.insert(&values);
}

/// Counts outcomes that became unknown, and unknown ones that were resolved, with the time that took.
pub fn outcome(call: &Call, action_id: Uuid, before: &Action, after: &Action, now: Time) -> Result<()> {
    let known = matches!(after.state, State::Committed | State::Failed | State::Retryable | State::Rejected);
    match before.state {
        State::Unknown if known => {
            let table = Table::open(call, &SPEC)?;
            add_up_to(&table, "reconciliations.resolved", None, 1);
            if let Some(since) = history::unknown_since(call, action_id)? {
                let time = now.saturating_sub(since).max(0);
                let up_to = UP_TO.into_iter().find(|up_to| time <= *up_to).unwrap_or(Span::MAX);
                add_up_to(&table, "time_to_resolution", Some(up_to), 1);
                add_up_to(&table, "time_to_resolution.sum", None, time);
            }
            Ok(())
        }
        State::Unknown => Ok(()),
        _ if after.state == State::Unknown => add(call, "actions.unknown", 1),
        _ => Ok(()),
    }
}
