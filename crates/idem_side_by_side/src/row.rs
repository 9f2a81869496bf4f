//! What is stored, as the rules see it.

use idem_rules::action::{Action, Flags, State};
use idem_rules::policy::{Class, Distinct, Effect, Policy};
use postgres::{Client, Error, Row};
use uuid::Uuid;

const TIMES: [&str; 11] = [
    "created_at",
    "visit_at",
    "lease_expires_at",
    "generation_granted_at",
    "dispatched_at",
    "due_at",
    "deadline_at",
    "settle_from",
    "probed_at",
    "reconcile_lease_expires_at",
    "approval_expires_at",
];

fn micros(column: &str) -> String {
    format!("(extract(epoch FROM {column}) * 1000000)::bigint AS {column}")
}

/// The ledger's row of an action, read by a superuser.
pub fn action(client: &mut Client, action_id: Uuid) -> Result<Option<Action>, Error> {
    let times =
        TIMES.into_iter().chain(["ended_at", "expires_at"]).map(micros).collect::<Vec<_>>().join(", ");
    let text = format!(
        "SELECT fingerprint, scheme, policy_version, state::text AS letter, attempt, attempt_id, fence, ttl,
            coalesce(generation, 0) AS generation, coalesce(probes, 0) AS probes,
            coalesce(probe_tries, 0) AS probe_tries, reconcile_id, coalesce(forgiven, 0) AS forgiven,
            coalesce(flags, 0) AS flags, resource_id, approval_policy_version, {times}
        FROM idem_action WHERE action_id = $1"
    );
    Ok(client.query_opt(&text, &[&action_id])?.map(|row| read(&row)))
}

fn read(row: &Row) -> Action {
    let letter: String = row.get("letter");
    let fingerprint: Vec<u8> = row.get("fingerprint");
    Action {
        fingerprint: fingerprint.try_into().expect("a fingerprint has 32 bytes"),
        scheme: row.get("scheme"),
        created_at: row.get("created_at"),
        visit_at: row.get("visit_at"),
        policy_version: row.get("policy_version"),
        state: State::from_code(letter.as_bytes()[0]).expect("a known letter"),
        attempt: row.get("attempt"),
        attempt_id: row.get("attempt_id"),
        fence: row.get("fence"),
        lease_expires_at: row.get("lease_expires_at"),
        ttl: row.get("ttl"),
        generation: row.get("generation"),
        generation_granted_at: row.get("generation_granted_at"),
        dispatched_at: row.get("dispatched_at"),
        due_at: row.get("due_at"),
        deadline_at: row.get("deadline_at"),
        settle_from: row.get("settle_from"),
        probes: row.get("probes"),
        probe_tries: row.get("probe_tries"),
        probed_at: row.get("probed_at"),
        reconcile_id: row.get("reconcile_id"),
        reconcile_lease_expires_at: row.get("reconcile_lease_expires_at"),
        approval_expires_at: row.get("approval_expires_at"),
        approval_policy_version: row.get("approval_policy_version"),
        forgiven: row.get("forgiven"),
        flags: Flags::from_bits(row.get("flags")),
        resource_id: row.get("resource_id"),
        ended_at: row.get("ended_at"),
        expires_at: row.get("expires_at"),
    }
}

/// A type's policy as it was in `version`; `None` takes the one in force.
pub fn policy(client: &mut Client, name: &str, version: Option<i32>) -> Result<Policy, Error> {
    let row = client.query_one(
        "SELECT * FROM idem_action_type WHERE name = $1 AND policy_version = coalesce($2, policy_version)
         ORDER BY policy_version DESC LIMIT 1",
        &[&name, &version],
    )?;
    let effect: String = row.get("effect");
    Ok(Policy {
        version: row.get("policy_version"),
        class: Class::from_word(row.get("class")).expect("a known class"),
        effect: if effect == "local" { Effect::Local } else { Effect::External },
        lease: row.get("lease"),
        max_lease: row.get("max_lease"),
        ttl: row.get("ttl"),
        tombstone_ttl: row.get("tombstone_ttl"),
        max_attempts: row.get("max_attempts"),
        backoff_base: row.get("backoff_base"),
        backoff_cap: row.get("backoff_cap"),
        requires_approval: row.get("requires_approval"),
        approval_ttl: row.get("approval_ttl"),
        distinct_approver: Distinct::from_word(row.get("distinct_approver")),
        marks_dispatch: row.get("marks_dispatch"),
        provider_key_window: row.get("provider_key_window"),
        settle_delay: row.get("settle_delay"),
        probe_interval: row.get("probe_interval"),
        probes_required: row.get("probes_required"),
        resolve_deadline: row.get("resolve_deadline"),
    })
}

/// Has time pass for one action: everything stored about it moves into the past by `seconds`.
pub fn passes(client: &mut Client, action_id: Uuid, seconds: f64) -> Result<(), Error> {
    let moved = |names: &[&str]| {
        let moved = names.iter().map(|name| format!("{name} = {name} - make_interval(secs => $2)"));
        moved.collect::<Vec<_>>().join(", ")
    };
    let times = [TIMES.as_slice(), &["ended_at", "expires_at"]].concat();
    let text = format!(
        "UPDATE idem_action SET {}, fence = fence - ($2 * 1000000)::bigint WHERE action_id = $1",
        moved(&times)
    );
    client.execute(&text, &[&action_id, &seconds])?;
    let text = format!("UPDATE idem_open SET {} WHERE action_id = $1", moved(&["due_at", "visit_at"]));
    client.execute(&text, &[&action_id, &seconds])?;
    // The sweep's cursors have passed nothing that this brought behind them.
    client.execute("UPDATE idem_cursor SET visited_to = '-infinity'", &[])?;
    Ok(())
}
