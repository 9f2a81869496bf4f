//! What is said about an outbox's table.

use crate::server::Type;
use crate::server::query::{Parameter, Statement};

use super::message::{COLUMNS, GIVEN};
use super::registry::Options;

/// One outbox's statements, prepared at their first use.
pub(super) struct Statements {
    pub insert: Statement,
    pub explode: Statement,
    pub new: Statement,
    pub retried: Statement,
    pub first: Statement,
    pub take: Statement,
    pub take_carried: Statement,
    pub bury: Statement,
    pub rest: Statement,
    pub finish_plain: Statement,
    pub remove: Statement,
    pub keep: Statement,
    pub expire: Statement,
    pub find: Statement,
    pub fail: Statement,
    pub claimed: Statement,
    pub renew: Statement,
    pub redrive: Statement,
    pub undelivered: Statement,
    pub new_unlocked: Statement,
    pub retried_unlocked: Statement,
    pub chosen: Statement,
}

impl Statements {
    pub fn new(table: &str, options: &Options) -> Statements {
        use Parameter::{One, Places, Uuids};
        let (uuid, time, text, jsonb) = (One(Type::Uuid), One(Type::Time), One(Type::Text), One(Type::Jsonb));
        let (big, place) = (One(Type::Big), One(Type::Place));
        // The first of its aggregate that is not delivered, whatever keeps it.
        let first_of_its_own = match options.ordered {
            true => format!(
                "AND NOT EXISTS (SELECT FROM ONLY {table} AS e WHERE e.aggregateid = m.aggregateid AND e.seq < m.seq \
                 AND e.delivered_at IS NULL)"
            ),
            false => String::new(),
        };
        let free = "(m.lease_expires_at IS NULL OR m.lease_expires_at <= ";
        let insert = format!("INSERT INTO {table} ({})", COLUMNS[..GIVEN].join(", "));
        let columns = format!("{}, m.ctid", COLUMNS.map(|column| format!("m.{column}")).join(", "));
        // The update stays heap-only for a message that was never kept: its due_at stays NULL.
        let due = |until: &str| format!("due_at = CASE WHEN due_at IS NOT NULL THEN {until} END");
        // Said so that the planner does not take the index of undelivered messages by aggregate for a way to find others:
        // without statistics it looks small.
        let undelivered = "coalesce(delivered_at, 'infinity') = 'infinity'";
        let new = format!(
            "FROM ONLY {table} AS m WHERE m.seq >= $1 AND m.due_at IS NULL AND {free} $2) {first_of_its_own} \
             ORDER BY m.seq LIMIT $3"
        );
        let retried = format!(
            "FROM ONLY {table} AS m WHERE m.due_at <= $1 AND m.dead_at IS NULL AND {undelivered} AND {free} $1) \
             {first_of_its_own} ORDER BY m.due_at LIMIT $2"
        );
        let and_lock = "FOR UPDATE OF m SKIP LOCKED";
        let delivered = "delivered_at = $3, due_at = $4, lease_expires_at = NULL, dead_at = NULL";
        Statements {
            insert: Statement::new(
                format!(
                    "{insert} VALUES ($1, $2, $3, $4, $5, CASE WHEN $10 IS NULL THEN $6 ELSE \
                     jsonb_build_object('idempotency-key', $10) || coalesce($6, '{{}}') END, $7, $8, $9)"
                ),
                &[uuid, text, text, text, jsonb, jsonb, uuid, One(Type::Bool), time, text],
            ),
            explode: Statement::new(
                "SELECT m->>'type', m->>'aggregatetype', m->>'aggregateid', nullif(m->'payload', 'null'), \
                 nullif(m->'headers', 'null'), (m->>'action_id')::uuid, (m->>'available_at')::timestamptz, \
                 jsonb_typeof(m) = 'object', coalesce(nullif(jsonb_typeof(m->'headers'), 'null'), 'object') = 'object' FROM jsonb_array_elements($1) AS e (m)"
                    .to_owned(),
                &[jsonb],
            ),
            new: Statement::new(format!("SELECT {columns} {new} {and_lock}"), &[big, time, big]),
            new_unlocked: Statement::new(format!("SELECT m.id, m.action_id {new}"), &[big, time, big]),
            retried: Statement::new(format!("SELECT {columns} {retried} {and_lock}"), &[time, big]),
            retried_unlocked: Statement::new(format!("SELECT m.id, m.action_id {retried}"), &[time, big]),
            chosen: Statement::new(
                format!(
                    "SELECT {columns} FROM ONLY {table} AS m WHERE m.id = ANY ($1) AND coalesce(m.due_at, $2) <= $2 AND \
                     m.dead_at IS NULL AND {undelivered} AND {free} $2) {first_of_its_own} ORDER BY m.seq {and_lock}"
                ),
                &[Uuids, time],
            ),
            first: Statement::new(
                format!("SELECT seq FROM ONLY {table} WHERE seq >= $1 AND due_at IS NULL ORDER BY seq LIMIT 1"),
                &[big],
            ),
            take: Statement::new(
                format!(
                    "UPDATE ONLY {table} SET attempts = attempts + 1, claim_id = $2, lease_expires_at = $3, relay = $4, \
                     {} WHERE ctid = ANY ($1)",
                    due("$3")
                ),
                &[Places, uuid, time, text],
            ),
            take_carried: Statement::new(
                format!(
                    "UPDATE ONLY {table} SET attempts = attempts + 1, claim_id = $2, lease_expires_at = $3, relay = $4, \
                     fence = $5, {} WHERE ctid = $1",
                    due("$3")
                ),
                &[place, uuid, time, text, big],
            ),
            bury: Statement::new(
                format!(
                    "UPDATE ONLY {table} SET dead_at = $2, due_at = 'infinity', lease_expires_at = NULL, \
                     last_error = coalesce($3, last_error) WHERE ctid = $1"
                ),
                &[place, time, text],
            ),
            rest: Statement::new(
                format!("UPDATE ONLY {table} SET due_at = $2, lease_expires_at = NULL WHERE ctid = $1"),
                &[place, time],
            ),
            finish_plain: Statement::new(
                format!(
                    "{} WHERE id = ANY ($1) AND claim_id = $2 AND NOT carries AND {undelivered} RETURNING id",
                    match options.keep_delivered {
                        None => format!("DELETE FROM ONLY {table}"),
                        Some(_) => format!("UPDATE ONLY {table} SET {delivered}"),
                    }
                ),
                &[Uuids, uuid, time, time],
            ),
            remove: Statement::new(format!("DELETE FROM ONLY {table} WHERE ctid = $1"), &[place]),
            keep: Statement::new(
                format!("UPDATE ONLY {table} SET {delivered} WHERE ctid = $1"),
                &[place, uuid, time, time],
            ),
            expire: Statement::new(
                format!(
                    "DELETE FROM ONLY {table} WHERE ctid = ANY (ARRAY(SELECT ctid FROM ONLY {table} WHERE due_at <= $1 AND \
                     delivered_at IS NOT NULL ORDER BY due_at LIMIT $2 FOR UPDATE SKIP LOCKED))"
                ),
                &[time, big],
            ),
            find: Statement::new(
                format!("SELECT {columns} FROM ONLY {table} AS m WHERE m.id = ANY ($1) ORDER BY m.id FOR UPDATE"),
                &[Uuids],
            ),
            fail: Statement::new(
                format!(
                    "UPDATE ONLY {table} SET due_at = $2, lease_expires_at = NULL, last_error = coalesce($3, last_error) \
                     WHERE ctid = $1"
                ),
                &[place, time, text],
            ),
            claimed: Statement::new(
                format!(
                    "SELECT {columns} FROM ONLY {table} AS m WHERE m.seq >= $2 AND m.seq <= $3 AND m.claim_id = $1 AND \
                     m.lease_expires_at IS NOT NULL AND {undelivered} ORDER BY m.seq FOR UPDATE SKIP LOCKED"
                ),
                &[uuid, big, big],
            ),
            renew: Statement::new(
                format!("UPDATE ONLY {table} SET lease_expires_at = $2, {} WHERE ctid = $1", due("$2")),
                &[place, time],
            ),
            redrive: Statement::new(
                format!("UPDATE ONLY {table} SET dead_at = NULL, due_at = $2, attempts = 0 WHERE ctid = $1"),
                &[place, time],
            ),
            undelivered: Statement::new(
                format!(
                    "SELECT FROM ONLY {table} WHERE id = $1 AND action_id = $2 AND carries AND {undelivered}"
                ),
                &[uuid, uuid],
            ),
        }
    }
}
