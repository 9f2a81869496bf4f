//! idem_cache_changed: the trigger function of the tables that sessions keep in memory

use idem_rules::error::Result;
use pgrx::pg_sys::Datum;

use crate::server::Call;

/// `idem_cache_changed()`, after each statement that changes a table whose content sessions keep
pub fn idem_cache_changed(call: &Call) -> Result<Datum> {
    call.invalidate_trigger_table()
}
