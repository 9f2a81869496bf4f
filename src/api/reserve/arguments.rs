//! The arguments of idem_reserve, checked.

use std::cell::Cell;
use std::time::Duration;

use idem_rules::error::{Code, Error, Result};
use idem_rules::fingerprint::{SCHEME, action_fingerprint, request_fingerprint};
use idem_rules::identity::{
    action_id, check_action_type, check_attempt_id, check_key, check_tenant, check_text,
};
use idem_rules::jsonb::is_container;
use idem_rules::policy::Policy;
use idem_rules::transition::Ask;
use pgrx::pg_sys::Datum;

use super::super::bind::refuse_foreign;
use super::super::fingerprint::{digest, digest_argument};
use super::{Patience, Reserve};
use crate::server::{self, Call, Tick};
use crate::settings;
use crate::store::ledger::Texts;
use crate::store::policy;

/// Parameters by place.
pub(super) mod at {
    pub const KEY: usize = 0;
    pub const REQUEST: usize = 1;
    pub const TENANT: usize = 2;
    pub const ACTION_TYPE: usize = 3;
    pub const ACTOR: usize = 4;
    pub const TARGET: usize = 5;
    pub const FINGERPRINT: usize = 6;
    pub const ATTEMPT_ID: usize = 7;
    pub const LEASE: usize = 8;
    pub const TTL: usize = 9;
    pub const WAIT: usize = 10;
    pub const CAN_RECONCILE: usize = 11;
    pub const WORKER: usize = 12;
    pub const WORKFLOW_ID: usize = 13;
    pub const SESSION_ID: usize = 14;
    pub const PAYLOAD_VERSION: usize = 15;
    pub const POLICY_VERSION: usize = 16;
    pub const STORE_REQUEST: usize = 17;
}

/// The parameters' names, also for whoever does idem_reserve's work with arguments of its own.
pub const NAMES: [&str; 18] = [
    "key",
    "request",
    "tenant",
    "action_type",
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
    "store_request",
];

impl<'a> Reserve<'a> {
    /// Checks a call's arguments.
    pub(super) fn read(call: &'a Call) -> Result<Reserve<'a>> {
        let key = call.text(at::KEY)?;
        let tenant = call.text(at::TENANT)?;
        let action_type = call.required_text(at::ACTION_TYPE)?;
        let key = check_key(key.as_deref())?;
        let tenant = check_tenant(tenant.as_deref())?;
        check_action_type(Some(&action_type))?;
        refuse_foreign(call, call.raw(at::TENANT))?;
        let actor = call.text(at::ACTOR)?;
        let target = call.text(at::TARGET)?;
        let actor = check_text(call.name(at::ACTOR), actor.as_deref())?;
        let target = check_text(call.name(at::TARGET), target.as_deref())?;
        for n in [at::WORKER, at::WORKFLOW_ID, at::SESSION_ID, at::PAYLOAD_VERSION] {
            check_text(call.name(n), call.text(n)?.as_deref())?;
        }
        let given = call.uuid(at::ATTEMPT_ID).map(check_attempt_id).transpose()?;
        let request = request_digest(call)?;
        let can_reconcile = call.bool(at::CAN_RECONCILE).unwrap_or(false);
        if can_reconcile && !call.may_execute(c"idem_resolve") {
            return Err(Error::new(Code::NotAllowed, "can_reconcile needs the capability reconcile")
                .hint("Have it granted with idem_grant(role, 'reconcile'), or leave can_reconcile out."));
        }
        let generation = server::generation();
        let current = policy::current(call, &action_type)?;
        if current.version == 0 && settings::require_action_type() {
            return Err(Error::new(Code::UndefinedObject, "the action type is not registered").hint(
                "Register it with idem_register_action_type, or turn pg_idem.require_action_type off.",
            ));
        }
        let wait = call.seconds(at::WAIT)?.unwrap_or(0);
        let wait = Duration::from_micros(wait.max(0) as u64).min(settings::max_wait());
        let store_request = call.bool(at::STORE_REQUEST);
        let (request_kept, request_until_decided) = kept_request(call, store_request, &current);
        let ask = Ask {
            fingerprint: action_fingerprint(&request, &action_type, tenant, actor, target),
            scheme: SCHEME,
            attempt_id: given.unwrap_or_default(),
            attempt_id_used: false,
            lease: call.seconds(at::LEASE)?,
            ttl: call.seconds(at::TTL)?,
            can_reconcile,
            carried: false,
            held: false,
        };
        Ok(Reserve {
            call,
            action_id: action_id(tenant, key),
            must_mark: current.marks_dispatch,
            proposes: false,
            proposer: None,
            store_request,
            current,
            generation,
            ask,
            attempt_id_given: given.is_some(),
            texts: Texts {
                tenant: call.stored(at::TENANT),
                key: call.stored(at::KEY),
                action_type: call.stored(at::ACTION_TYPE),
                actor: call.stored(at::ACTOR),
                target: call.stored(at::TARGET),
                worker: call.stored(at::WORKER),
                workflow_id: call.stored(at::WORKFLOW_ID),
                session_id: call.stored(at::SESSION_ID),
                payload_version: call.stored(at::PAYLOAD_VERSION),
                request: request_kept,
                request_until_decided,
            },
            patience: Patience {
                since: None,
                for_twin: if wait.is_zero() { settings::twin_wait() } else { wait },
                for_outcome: if server::repeatable_read() { Duration::ZERO } else { wait },
                pace: Tick::default(),
            },
            told: Cell::new(None),
            action_type,
        })
    }
}

/// The request as the new row keeps it, and whether only until somebody has decided. An approver has to see it,
/// whatever becomes of it afterwards.
pub(super) fn kept_request(
    call: &Call,
    store_request: Option<bool>,
    policy: &Policy,
) -> (Option<Datum>, bool) {
    let proposal = policy.requires_approval;
    let kept = call.stored(at::REQUEST).filter(|_| proposal || store_request == Some(true));
    (kept, proposal && store_request == Some(false))
}

/// The digest of what is asked for: of the request, or as passed; both given must agree.
fn request_digest(call: &Call) -> Result<[u8; 32]> {
    let passed = digest_argument(call, at::FINGERPRINT)?;
    let Some(request) = call.jsonb(at::REQUEST) else {
        return Ok(passed.unwrap_or_else(|| request_fingerprint(b"null")));
    };
    if !is_container(request.bytes)? {
        return Err(Error::new(Code::InvalidParameter, "request must be a JSON object or array").hint(
            "A string at the top is nearly always a document that was encoded twice: pass the object itself, \
             or cast the text with ::jsonb.",
        ));
    }
    let digest = digest(request)?;
    match passed {
        Some(passed) if passed != digest => {
            Err(Error::new(Code::InvalidParameter, "fingerprint is not the one of request")
                .hint("Pass one of the two, or make the fingerprint with idem_fingerprint(request)."))
        }
        _ => Ok(digest),
    }
}
