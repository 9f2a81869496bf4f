//! pg_idem: idempotency where the data is.
//!
//! One way through the code: [`api`] takes a call apart and asks the rules (crate `idem_rules`), [`store`] writes
//! what they return. [`server`] is the only layer that knows PostgreSQL's internals.

#![deny(unsafe_code)]

mod api;
#[allow(unsafe_code, reason = "the one place for it")]
mod server;
mod session;
mod settings;
mod store;
mod worker;

#[allow(unsafe_code, reason = "the magic block is a C symbol")]
mod magic {
    pgrx::pg_module_magic!();
}

/// Called by the server when it loads the library.
#[allow(unsafe_code, reason = "a C symbol")]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn _PG_init() {
    settings::define();
    server::guard_drops();
    session::watch_transactions();
    worker::register();
}

/// Declares an SQL function: the C symbol that CREATE FUNCTION names, the record that tells its calling convention,
/// and the names of its parameters for messages.
#[macro_export]
macro_rules! sql_function {
    ($name:ident, $finfo:ident, $body:path, $parameters:expr) => {
        #[allow(unsafe_code, reason = "a C symbol")]
        #[unsafe(no_mangle)]
        #[doc = concat!("`", stringify!($name), "` in SQL; see its COMMENT.")]
        pub unsafe extern "C-unwind" fn $name(fcinfo: pgrx::pg_sys::FunctionCallInfo) -> pgrx::pg_sys::Datum {
            const NAMES: &[&str] = &$parameters;
            const BODY: $crate::server::Body = $body;
            // SAFETY: PostgreSQL calls a version-1 function with a valid call record.
            unsafe { $crate::server::enter(fcinfo, NAMES, BODY) }
        }

        #[allow(unsafe_code, reason = "a C symbol")]
        #[unsafe(no_mangle)]
        #[doc(hidden)]
        pub extern "C" fn $finfo() -> &'static pgrx::pg_sys::Pg_finfo_record {
            $crate::server::finfo()
        }
    };
}

/// The functions by their names in SQL.
mod functions {
    use super::api::{
        approval, attempt, bind, cache, claim, compensate, decide, dispatch, due, fingerprint, hold,
        identity, inbox, library, metrics, outbox, reconcile, reconcile_next, relay, reserve, restore,
        status, sweep,
    };

    sql_function!(idem_reserve, pg_finfo_idem_reserve, reserve::idem_reserve, reserve::NAMES);
    sql_function!(
        idem_commit,
        pg_finfo_idem_commit,
        attempt::idem_commit,
        ["action_id", "attempt_id", "response", "resource_id", "external_request_id", "on_lost"]
    );
    sql_function!(
        idem_mark_unknown,
        pg_finfo_idem_mark_unknown,
        attempt::idem_mark_unknown,
        ["action_id", "attempt_id", "reason", "external_request_id"]
    );
    sql_function!(
        idem_fail,
        pg_finfo_idem_fail,
        attempt::idem_fail,
        ["action_id", "attempt_id", "proof", "error", "retryable", "retry_after_seconds", "new_provider_key"]
    );
    sql_function!(
        idem_renew,
        pg_finfo_idem_renew,
        attempt::idem_renew,
        ["action_id", "attempt_id", "lease_seconds"]
    );
    sql_function!(
        idem_dispatch,
        pg_finfo_idem_dispatch,
        dispatch::idem_dispatch,
        ["action_id", "attempt_id"]
    );
    sql_function!(idem_release, pg_finfo_idem_release, attempt::idem_release, ["action_id", "attempt_id"]);
    sql_function!(
        idem_add_evidence,
        pg_finfo_idem_add_evidence,
        reconcile::idem_add_evidence,
        ["action_id", "attempt_id", "finding", "response", "resource_id", "external_request_id", "note"]
    );
    sql_function!(
        idem_resolve,
        pg_finfo_idem_resolve,
        reconcile::idem_resolve,
        [
            "action_id",
            "attempt_id",
            "finding",
            "response",
            "resource_id",
            "external_request_id",
            "evidence",
            "candidates",
            "next_probe_seconds"
        ]
    );
    sql_function!(
        idem_reconcile_next,
        pg_finfo_idem_reconcile_next,
        reconcile_next::idem_reconcile_next,
        ["max", "lease_seconds", "action_type", "tenant", "worker"]
    );
    sql_function!(idem_live_counts, pg_finfo_idem_live_counts, metrics::idem_live_counts, []);
    sql_function!(idem_recent_conflicts, pg_finfo_idem_recent_conflicts, metrics::idem_recent_conflicts, []);
    sql_function!(
        idem_due,
        pg_finfo_idem_due,
        due::idem_due,
        ["max", "lease_seconds", "action_type", "tenant", "worker"]
    );
    sql_function!(
        idem_compensate,
        pg_finfo_idem_compensate,
        compensate::idem_compensate,
        [
            "parent",
            "key",
            "request",
            "action_type",
            "tenant",
            "actor",
            "target",
            "fingerprint",
            "attempt_id",
            "lease_seconds",
            "ttl_seconds",
            "wait_seconds",
            "can_reconcile",
            "worker",
            "workflow_id",
            "session_id",
            "payload_version",
            "policy_version",
            "store_request"
        ]
    );
    sql_function!(idem_escalate, pg_finfo_idem_escalate, decide::idem_escalate, ["action_id", "note"]);
    sql_function!(
        idem_decide,
        pg_finfo_idem_decide,
        decide::idem_decide,
        ["action_id", "finding", "note", "response", "resource_id"]
    );
    sql_function!(idem_reopen, pg_finfo_idem_reopen, decide::idem_reopen, ["action_id", "note"]);
    sql_function!(
        idem_propose,
        pg_finfo_idem_propose,
        approval::idem_propose,
        [
            "key",
            "request",
            "tenant",
            "action_type",
            "actor",
            "target",
            "proposer",
            "fingerprint",
            "ttl_seconds",
            "workflow_id",
            "session_id",
            "payload_version",
            "policy_version",
            "store_request"
        ]
    );
    sql_function!(
        idem_approve,
        pg_finfo_idem_approve,
        approval::idem_approve,
        ["action_id", "fingerprint", "approver", "valid_seconds", "policy_version", "note"]
    );
    sql_function!(
        idem_reject,
        pg_finfo_idem_reject,
        approval::idem_reject,
        ["action_id", "approver", "note"]
    );
    sql_function!(
        idem_withdraw,
        pg_finfo_idem_withdraw,
        approval::idem_withdraw,
        ["action_id", "approver", "note"]
    );
    sql_function!(idem_cancel, pg_finfo_idem_cancel, approval::idem_cancel, ["action_id", "note"]);
    sql_function!(idem_status, pg_finfo_idem_status, status::idem_status, ["key", "tenant"]);
    sql_function!(idem_status_by_id, pg_finfo_idem_status_by_id, status::idem_status_by_id, ["action_id"]);
    sql_function!(idem_action_id, pg_finfo_idem_action_id, identity::idem_action_id, ["key", "tenant"]);
    sql_function!(idem_key, pg_finfo_idem_key, identity::idem_key, ["parts"]);
    sql_function!(idem_canonical, pg_finfo_idem_canonical, fingerprint::idem_canonical, ["request"]);
    sql_function!(idem_fingerprint, pg_finfo_idem_fingerprint, fingerprint::idem_fingerprint, ["request"]);
    sql_function!(
        idem_fingerprint_text,
        pg_finfo_idem_fingerprint_text,
        fingerprint::idem_fingerprint_text,
        ["document"]
    );
    sql_function!(
        idem_action_fingerprint,
        pg_finfo_idem_action_fingerprint,
        fingerprint::idem_action_fingerprint,
        ["request_fingerprint", "action_type", "tenant", "actor", "target"]
    );
    sql_function!(idem_bind_tenant, pg_finfo_idem_bind_tenant, bind::idem_bind_tenant, ["role", "tenant"]);
    sql_function!(
        idem_unbind_tenant,
        pg_finfo_idem_unbind_tenant,
        bind::idem_unbind_tenant,
        ["role", "tenant"]
    );
    sql_function!(idem_sees_tenant, pg_finfo_idem_sees_tenant, bind::idem_sees_tenant, ["tenant"]);
    sql_function!(
        idem_after_restore,
        pg_finfo_idem_after_restore,
        restore::idem_after_restore,
        ["note", "as_copy"]
    );
    sql_function!(idem_hold, pg_finfo_idem_hold, hold::idem_hold, ["scope", "value", "note"]);
    sql_function!(idem_unhold, pg_finfo_idem_unhold, hold::idem_unhold, ["scope", "value"]);
    sql_function!(idem_library_version, pg_finfo_idem_library_version, library::idem_library_version, []);
    sql_function!(idem_sweep, pg_finfo_idem_sweep, sweep::idem_sweep, ["max_rows"]);
    sql_function!(idem_sweep_lapses, pg_finfo_idem_sweep_lapses, sweep::idem_sweep_lapses, ["max_rows"]);
    sql_function!(
        idem_register_outbox,
        pg_finfo_idem_register_outbox,
        outbox::idem_register_outbox,
        ["outbox", "ordered", "max_attempts", "keep_delivered", "notify_channel"]
    );
    sql_function!(
        idem_outbox_put,
        pg_finfo_idem_outbox_put,
        outbox::idem_outbox_put,
        ["outbox", "type", "aggregatetype", "aggregateid", "payload", "headers", "action_id", "available_at"]
    );
    sql_function!(
        idem_outbox_put_many,
        pg_finfo_idem_outbox_put_many,
        outbox::idem_outbox_put_many,
        ["outbox", "messages"]
    );
    sql_function!(
        idem_outbox_claim,
        pg_finfo_idem_outbox_claim,
        claim::idem_outbox_claim,
        ["outbox", "max", "lease_seconds", "relay"]
    );
    sql_function!(
        idem_outbox_ack,
        pg_finfo_idem_outbox_ack,
        relay::idem_outbox_ack,
        ["outbox", "id", "claim_id", "response", "resource_id", "external_request_id"]
    );
    sql_function!(
        idem_outbox_ack_many,
        pg_finfo_idem_outbox_ack_many,
        relay::idem_outbox_ack_many,
        ["outbox", "claim_id", "ids"]
    );
    sql_function!(
        idem_outbox_nack,
        pg_finfo_idem_outbox_nack,
        relay::idem_outbox_nack,
        ["outbox", "id", "claim_id", "error", "proof", "delay_seconds"]
    );
    sql_function!(
        idem_outbox_renew,
        pg_finfo_idem_outbox_renew,
        relay::idem_outbox_renew,
        ["outbox", "claim_id", "lease_seconds"]
    );
    sql_function!(
        idem_outbox_redrive,
        pg_finfo_idem_outbox_redrive,
        relay::idem_outbox_redrive,
        ["outbox", "ids", "skip"]
    );
    sql_function!(
        idem_inbox_accept,
        pg_finfo_idem_inbox_accept,
        inbox::idem_inbox_accept,
        ["consumer", "message_id", "payload", "tenant"]
    );
    sql_function!(
        idem_inbox_accept_many,
        pg_finfo_idem_inbox_accept_many,
        inbox::idem_inbox_accept_many,
        ["consumer", "message_ids", "payloads", "tenant"]
    );
    sql_function!(idem_cache_changed, pg_finfo_idem_cache_changed, cache::idem_cache_changed, []);
}
