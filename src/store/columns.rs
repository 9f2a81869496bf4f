//! The ledger's columns: what the library expects of `idem_action`, and their places by name.

use crate::server::{Column, Index, Spec, Type};

/// `idem_action` as the library expects it.
pub(super) const SPEC: Spec = Spec {
    place: 0,
    name: c"idem_action",
    columns: &[
        Column("action_id", Type::Uuid),
        Column("created_at", Type::Time),
        Column("visit_at", Type::Time),
        Column("fence", Type::Big),
        Column("lease_expires_at", Type::Time),
        Column("attempt_id", Type::Uuid),
        Column("attempt", Type::Int),
        Column("policy_version", Type::Int),
        Column("scheme", Type::Small),
        Column("tenant", Type::Text),
        Column("key", Type::Text),
        Column("action_type", Type::Text),
        Column("fingerprint", Type::Bytes),
        Column("actor", Type::Text),
        Column("target", Type::Text),
        Column("worker", Type::Text),
        Column("workflow_id", Type::Text),
        Column("session_id", Type::Text),
        Column("payload_version", Type::Text),
        Column("ttl", Type::Big),
        Column("request", Type::Jsonb),
        Column("generation", Type::Int),
        Column("generation_granted_at", Type::Time),
        Column("dispatched_at", Type::Time),
        Column("due_at", Type::Time),
        Column("deadline_at", Type::Time),
        Column("settle_from", Type::Time),
        Column("probes", Type::Int),
        Column("probe_tries", Type::Int),
        Column("probed_at", Type::Time),
        Column("reconcile_id", Type::Uuid),
        Column("reconcile_lease_expires_at", Type::Time),
        Column("approval_expires_at", Type::Time),
        Column("approval_policy_version", Type::Int),
        Column("forgiven", Type::Int),
        Column("flags", Type::Int),
        Column("state", Type::Letter),
        Column("ended_at", Type::Time),
        Column("expires_at", Type::Time),
        Column("resource_id", Type::Text),
        Column("external_request_id", Type::Text),
        Column("reason", Type::Text),
        Column("error", Type::Jsonb),
        Column("response", Type::Jsonb),
    ],
    indexes: &[
        Index::unique(c"idem_action_pkey", &["action_id"]),
        Index::plain(c"idem_action_visit_at", &["visit_at"]),
    ],
};

/// Columns by name, in the order of [`SPEC`].
pub(super) mod at {
    pub const ACTION_ID: usize = 0;
    pub const CREATED_AT: usize = 1;
    pub const VISIT_AT: usize = 2;
    pub const FENCE: usize = 3;
    pub const LEASE_EXPIRES_AT: usize = 4;
    pub const ATTEMPT_ID: usize = 5;
    pub const ATTEMPT: usize = 6;
    pub const POLICY_VERSION: usize = 7;
    pub const SCHEME: usize = 8;
    pub const TENANT: usize = 9;
    pub const KEY: usize = 10;
    pub const ACTION_TYPE: usize = 11;
    pub const FINGERPRINT: usize = 12;
    pub const ACTOR: usize = 13;
    pub const TARGET: usize = 14;
    pub const WORKER: usize = 15;
    pub const WORKFLOW_ID: usize = 16;
    pub const SESSION_ID: usize = 17;
    pub const PAYLOAD_VERSION: usize = 18;
    pub const TTL: usize = 19;
    pub const REQUEST: usize = 20;
    pub const GENERATION: usize = 21;
    pub const GENERATION_GRANTED_AT: usize = 22;
    pub const DISPATCHED_AT: usize = 23;
    pub const DUE_AT: usize = 24;
    pub const DEADLINE_AT: usize = 25;
    pub const SETTLE_FROM: usize = 26;
    pub const PROBES: usize = 27;
    pub const PROBE_TRIES: usize = 28;
    pub const PROBED_AT: usize = 29;
    pub const RECONCILE_ID: usize = 30;
    pub const RECONCILE_LEASE_EXPIRES_AT: usize = 31;
    pub const APPROVAL_EXPIRES_AT: usize = 32;
    pub const APPROVAL_POLICY_VERSION: usize = 33;
    pub const FORGIVEN: usize = 34;
    pub const FLAGS: usize = 35;
    pub const STATE: usize = 36;
    pub const ENDED_AT: usize = 37;
    pub const EXPIRES_AT: usize = 38;
    pub const RESOURCE_ID: usize = 39;
    pub const EXTERNAL_REQUEST_ID: usize = 40;
    pub const REASON: usize = 41;
    pub const ERROR: usize = 42;
    pub const RESPONSE: usize = 43;
}
