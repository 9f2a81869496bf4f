//! idem_library_version

use std::borrow::Cow;

use idem_rules::error::Result;
use pgrx::pg_sys::Datum;

use crate::server::{Call, Value};

/// `idem_library_version()`: of the library that this session runs, whatever files have been installed since.
pub fn idem_library_version(call: &Call) -> Result<Datum> {
    Ok(call.value(Value::Text(Cow::Borrowed(env!("CARGO_PKG_VERSION")))))
}
