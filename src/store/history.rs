//! The history: `idem_attempt` and `idem_event`, keyed (action_id, n), written once.
//!
//! An attempt stands here when it ended in any way but a first-try commit. Whoever writes holds the ledger's row,
//! so that n is simply one more than the last.

use idem_rules::action::Time;
use idem_rules::canonical::json_string;
use idem_rules::error::Result;
use idem_rules::transition::Ended;
use pgrx::pg_sys::Datum;
use uuid::Uuid;

use crate::server::{self, Bound, Call, Column, Index, Key, Spec, Table, Type, Values};

const ATTEMPTS: Spec = Spec {
    place: 2,
    name: c"idem_attempt",
    columns: &[
        Column("action_id", Type::Uuid),
        Column("n", Type::Int),
        Column("attempt", Type::Int),
        Column("attempt_id", Type::Uuid),
        Column("fence", Type::Big),
        Column("reconciling", Type::Bool),
        Column("outcome", Type::Text),
        Column("ended_at", Type::Time),
    ],
    indexes: &[Index::unique(c"idem_attempt_pkey", &["action_id", "n"])],
};

const EVENTS: Spec = Spec {
    place: 3,
    name: c"idem_event",
    columns: &[
        Column("action_id", Type::Uuid),
        Column("n", Type::Int),
        Column("at", Type::Time),
        Column("attempt", Type::Int),
        Column("event", Type::Text),
        Column("role", Type::Text),
        Column("session_role", Type::Text),
        Column("finding", Type::Text),
        Column("resource_id", Type::Text),
        Column("external_request_id", Type::Text),
        Column("note", Type::Text),
        Column("response", Type::Jsonb),
        Column("evidence", Type::Jsonb),
        Column("candidates", Type::Jsonb),
        Column("name", Type::Text),
    ],
    indexes: &[Index::unique(c"idem_event_pkey", &["action_id", "n"])],
};

/// The event's word that stands for a proposal.
const PROPOSED: &str = "proposed";

/// Events that come of time alone, and name whoever happened to come by.
const BY_TIME: [&str; 2] = ["lapsed", "escalated"];

const ACTION_ID: usize = 0;
const N: usize = 1;

/// What a report says beyond its effect on the action's state.
#[derive(Default, Clone, Copy)]
pub struct Report {
    /// applied, not_applied, …
    pub finding: Option<&'static str>,
    /// What the provider made.
    pub resource_id: Option<Datum>,
    /// The provider's name for the request.
    pub external_request_id: Option<Datum>,
    /// A remark.
    pub note: Option<Datum>,
    /// What the provider answered.
    pub response: Option<Datum>,
    /// What the finding rests on.
    pub evidence: Option<Datum>,
    /// Several things that might be it.
    pub candidates: Option<Datum>,
    /// The name given for whoever says so.
    pub name: Option<Datum>,
}

fn of(action_id: Uuid) -> [Key; 1] {
    [Key(1, Bound::Uuid(action_id))]
}

fn next_n(table: &Table, action_id: Uuid) -> i32 {
    table.find_last(0, &of(action_id)).map_or(1, |row| row.values.count(N) + 1)
}

/// Which attempts a look-up in the history takes in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Those that carry the action out: only they can end it.
    Effect,
    /// Those and the reconciling ones.
    Any,
}

/// True when the history has an attempt of `action_id` with the token `attempt_id`.
pub fn has_attempt(call: &Call, action_id: Uuid, attempt_id: Uuid, kind: Kind) -> Result<bool> {
    let mut found = false;
    Table::open(call, &ATTEMPTS)?.each(0, &of(action_id), |row| {
        let taken_in = kind == Kind::Any || !row.values.flag(5);
        found = taken_in && row.values.uuid(3) == Some(attempt_id);
        Ok(!found)
    })?;
    Ok(found)
}

/// The token of the attempt of `action_id` that had `fence`.
pub fn attempt_with_fence(call: &Call, action_id: Uuid, fence: i64) -> Result<Option<Uuid>> {
    let mut token = None;
    Table::open(call, &ATTEMPTS)?.each(0, &of(action_id), |row| {
        let it = !row.values.flag(5) && row.values.big(4) == Some(fence);
        token = row.values.uuid(3).filter(|_| it);
        Ok(!it)
    })?;
    Ok(token)
}

/// When the last attempt that carried the action out ended.
pub fn unknown_since(call: &Call, action_id: Uuid) -> Result<Option<Time>> {
    let mut since = None;
    Table::open(call, &ATTEMPTS)?.each(0, &of(action_id), |row| {
        if !row.values.flag(5) {
            since = row.values.time(7);
        }
        Ok(true)
    })?;
    Ok(since)
}

/// Writes down how attempts ended.
pub fn add_attempts(call: &Call, action_id: Uuid, ended: &[Ended], now: Time) -> Result<()> {
    if ended.is_empty() {
        return Ok(());
    }
    let table = Table::open(call, &ATTEMPTS)?;
    for (n, ended) in (next_n(&table, action_id)..).zip(ended) {
        let mut values = Values::new();
        values.set_uuid(ACTION_ID, Some(action_id));
        values.set(N, Some(Datum::from(n)));
        values.set(2, Some(Datum::from(ended.attempt)));
        values.set_uuid(3, Some(ended.attempt_id));
        values.set_big(4, Some(ended.fence));
        values.set_flag(5, ended.reconciling);
        values.set_text(6, Some(ended.outcome));
        values.set_time(7, Some(now));
        table.insert(&values);
    }
    Ok(())
}

/// Writes down what happened, by whom, and what was reported with it.
pub fn add_events(
    call: &Call,
    action_id: Uuid,
    attempt: i32,
    events: &[&'static str],
    report: Report,
    now: Time,
) -> Result<()> {
    if events.is_empty() {
        return Ok(());
    }
    let table = Table::open(call, &EVENTS)?;
    let last = events.len() - 1;
    for (k, (n, event)) in (next_n(&table, action_id)..).zip(events).enumerate() {
        let mut values = Values::new();
        values.set_uuid(ACTION_ID, Some(action_id));
        values.set(N, Some(Datum::from(n)));
        values.set_time(2, Some(now));
        values.set(3, Some(Datum::from(attempt)));
        values.set_text(4, Some(event));
        values.set_text(5, Some(&call.recorded_as().name()));
        values.set_text(6, Some(&server::session_user_name()));
        // Several words can come from one report; its content stands once, with the last.
        if k == last {
            values.set_text(7, report.finding);
            values.set(8, report.resource_id);
            values.set(9, report.external_request_id);
            values.set(10, report.note);
            values.set(11, report.response);
            values.set(12, report.evidence);
            values.set(13, report.candidates);
            values.set(14, report.name);
        }
        table.insert(&values);
    }
    Ok(())
}

/// Who put an action forward.
pub struct Proposer {
    /// The role that called the outermost function.
    pub role: String,
    /// The role that logged in.
    pub session_role: String,
    /// The name given.
    pub name: Option<String>,
}

/// Who proposed `action_id`. Where it began without a proposal, whoever did something to it first stands for
/// that.
pub fn proposer(call: &Call, action_id: Uuid) -> Result<Option<Proposer>> {
    let mut found = None;
    Table::open(call, &EVENTS)?.each(0, &of(action_id), |row| {
        let text = |n| Ok::<_, idem_rules::error::Error>(row.values.text(n)?.map(|text| text.into_owned()));
        let event = text(4)?.unwrap_or_default();
        let proposed = event == PROPOSED;
        if proposed || (found.is_none() && !BY_TIME.contains(&&*event)) {
            let (role, session_role) = (text(5)?.unwrap_or_default(), text(6)?.unwrap_or_default());
            found = Some(Proposer { role, session_role, name: text(14)? });
        }
        Ok(!proposed)
    })?;
    Ok(found)
}

/// What has been found out about `action_id` so far, in order, as a JSON array; `None` for nothing.
pub fn findings(call: &Call, action_id: Uuid) -> Result<Option<String>> {
    let mut found = Vec::new();
    Table::open(call, &EVENTS)?.each(0, &of(action_id), |row| {
        let values = &row.values;
        if values.datum(7).is_none() && values.datum(8).is_none() {
            return Ok(true);
        }
        let mut members = vec![format!("\"attempt\":{}", values.count(3))];
        members.extend(values.time(2).map(|at| format!("\"at\":\"{}\"", server::json_time(at))));
        for (n, Column(name, r#type)) in EVENTS.columns.iter().enumerate() {
            let Some(datum) = values.datum(n) else { continue };
            let value = match r#type {
                Type::Jsonb => server::json_of(datum)?,
                Type::Text if !matches!(*name, "role" | "session_role") => {
                    json_string(&values.text(n)?.unwrap_or_default())
                }
                _ => continue,
            };
            members.push(format!("\"{name}\":{value}"));
        }
        found.push(format!("{{{}}}", members.join(",")));
        Ok(true)
    })?;
    Ok((!found.is_empty()).then(|| format!("[{}]", found.join(","))))
}

/// Empties what a tombstone's history does not keep.
pub fn scrub(call: &Call, action_id: Uuid) -> Result<()> {
    let table = Table::open(call, &EVENTS)?;
    table.each(0, &of(action_id), |row| {
        let content = 8..EVENTS.columns.len();
        if content.clone().any(|column| row.values.datum(column).is_some()) {
            let mut values = row.values.clone();
            content.for_each(|column| values.set(column, None));
            table.update(&row, &values);
        }
        Ok(true)
    })
}

/// Removes the history of an action that is removed itself.
pub fn remove(call: &Call, action_id: Uuid) -> Result<()> {
    for spec in [&ATTEMPTS, &EVENTS] {
        let table = Table::open(call, spec)?;
        table.each(0, &of(action_id), |row| {
            table.delete(&row);
            Ok(true)
        })?;
    }
    Ok(())
}
