//! idem_live_counts, idem_recent_conflicts: what stands in shared memory

use std::borrow::Cow;

use idem_rules::error::Result;
use pgrx::pg_sys::Datum;

use super::bind::find_own;
use crate::server::{self, Call, Rows, Value};
use crate::store::bound;
use crate::store::ledger::Ledger;

/// `idem_live_counts()`
pub fn idem_live_counts(call: &Call) -> Result<Datum> {
    // Counted over all tenants: no rows for whom some are hidden from.
    let shown = bound::sees(call, None)?;
    let mut rows = Rows::begin(call)?;
    if let Some((counter, counts)) = server::counted().filter(|_| shown) {
        for (name, count) in counts {
            rows.add([Value::Text(Cow::Borrowed(name)), Value::Big(count as i64), Value::Big(counter)])?;
        }
    }
    Ok(rows.end())
}

/// `idem_recent_conflicts()`
pub fn idem_recent_conflicts(call: &Call) -> Result<Datum> {
    let all = bound::sees(call, None)?;
    let ledger = Ledger::open(call)?;
    let mut rows = Rows::begin(call)?;
    for (action_id, action_type, at) in server::remembered_conflicts() {
        if !all && find_own(call, &ledger, action_id)?.is_none() {
            continue;
        }
        rows.add([Value::Uuid(action_id), Value::Text(Cow::Owned(action_type)), Value::Time(at)])?;
    }
    Ok(rows.end())
}
