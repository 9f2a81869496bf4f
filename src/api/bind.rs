//! idem_bind_tenant, idem_unbind_tenant, idem_sees_tenant, and what a foreign tenant is told

use std::borrow::Cow;

use idem_rules::error::{Code, Error, Result};
use idem_rules::identity::check_tenant;
use pgrx::pg_sys::Datum;
use uuid::Uuid;

use crate::server::{self, Call, Role, Value};
use crate::store::bound;
use crate::store::ledger::{Entry, Ledger};

/// Refuses a tenant that the calling role is not bound to, while it is bound to others. Errors: 42501.
pub(super) fn refuse_foreign(call: &Call, tenant: &[u8]) -> Result<()> {
    if bound::sees(call, Some(tenant))? { Ok(()) } else { Err(bound::foreign()) }
}

/// Refuses a role that is bound to tenants what concerns all of them. Errors: 42501.
pub(super) fn refuse_bound(call: &Call) -> Result<()> {
    if bound::sees(call, None)? { Ok(()) } else { Err(bound::not_for_bound_roles()) }
}

/// The action `action_id` where the calling role sees its tenant. One of a foreign tenant looks like none, so that
/// nothing can be learned by trying ids.
pub(super) fn find_own(call: &Call, ledger: &Ledger, action_id: Uuid) -> Result<Option<Entry>> {
    match ledger.find(action_id)? {
        Some(entry) if !bound::sees(call, Some(entry.raw_tenant()))? => Ok(None),
        found => Ok(found),
    }
}

fn changed(call: &Call, role: Role, is_bound: bool, words: [&'static str; 2]) -> Result<Datum> {
    check_tenant(Some(&call.required_text(1)?))?;
    // Who could bind could unbind himself.
    refuse_bound(call)?;
    let stored = call.stored(1).ok_or_else(|| call.null(1))?;
    let written = bound::change(call, role, call.raw(1), stored, is_bound)?;
    server::force_sync_commit();
    let word = words[usize::from(!written)];
    Ok(call.value(Value::Text(Cow::Borrowed(word))))
}

/// `idem_bind_tenant(role, tenant)`
pub fn idem_bind_tenant(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_bind_tenant()");
    let role = call.role(0).ok_or_else(|| call.null(0))?;
    if !role.exists() {
        return Err(Error::new(Code::UndefinedObject, "there is no such role").hint("Create it first."));
    }
    if role.is_superuser() {
        return Err(Error::new(Code::InvalidParameter, "a superuser cannot be bound")
            .hint("It can do everything anyway. Bind the roles that applications log in with."));
    }
    changed(call, role, true, ["bound", "bound"])
}

/// `idem_unbind_tenant(role, tenant)`
pub fn idem_unbind_tenant(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_unbind_tenant()");
    let role = call.role(0).ok_or_else(|| call.null(0))?;
    changed(call, role, false, ["unbound", "not_bound"])
}

/// `idem_sees_tenant(tenant)`, for views; NULL asks whether all are seen
pub fn idem_sees_tenant(call: &Call) -> Result<Datum> {
    let tenant = call.stored(0).map(|_| call.raw(0));
    Ok(call.value(Value::Bool(bound::sees(call, tenant)?)))
}
