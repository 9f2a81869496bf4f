//! idem_cache_changed: the trigger function of the tables that sessions keep in memory

use idem_rules::error::Result;
use pgrx::pg_sys::Datum;

use crate::server::Call;
use crate::store;

/// `idem_cache_changed()`, after each statement that changes a table whose content sessions keep
pub fn idem_cache_changed(call: &Call) -> Result<Datum> {
    store::policy::changed(call)?;
    store::installation::changed(call)?;
    store::hold::changed(call)?;
    store::bound::changed(call)?;
    store::outbox::changed(call)?;
    Ok(call.trigger_done())
}
