//! idem_action_id, idem_key

use std::borrow::Cow;

use idem_rules::error::Result;
use idem_rules::identity::{action_id, check_key, check_tenant, make_key};
use pgrx::pg_sys::Datum;

use crate::server::{Call, Value};

/// `idem_action_id(key, tenant)`
pub fn idem_action_id(call: &Call) -> Result<Datum> {
    let (key, tenant) = (call.text(0)?, call.text(1)?);
    let id = action_id(check_tenant(tenant.as_deref())?, check_key(key.as_deref())?);
    Ok(call.value(Value::Uuid(id)))
}

/// `idem_key(VARIADIC parts)`
pub fn idem_key(call: &Call) -> Result<Datum> {
    let parts = call.texts(0)?;
    let parts: Vec<Option<&str>> = parts.iter().map(Option::as_deref).collect();
    Ok(call.value(Value::Text(Cow::Owned(make_key(&parts)?))))
}
