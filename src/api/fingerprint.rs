//! idem_canonical, idem_fingerprint, idem_fingerprint_text, idem_action_fingerprint

use std::cell::RefCell;

use idem_rules::document::canonical_from_text;
use idem_rules::error::{Code, Error, Result};
use idem_rules::fingerprint::{action_fingerprint, request_fingerprint};
use idem_rules::identity::{check_action_type, check_tenant, check_text};
use idem_rules::jsonb::append_canonical;
use pgrx::pg_sys::Datum;

use crate::server::{self, Call, Jsonb, Value};

/// A canonical text larger than this does not stay in memory between calls.
const KEPT_BUFFER: usize = 1 << 16;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Runs `read` over the canonical text of `document`.
fn with_canonical<T>(document: Jsonb, read: impl FnOnce(&[u8]) -> T) -> Result<T> {
    BUFFER.with_borrow_mut(|buffer| {
        buffer.clear();
        append_canonical(buffer, document.bytes, server::encoding())?;
        let result = read(buffer);
        if buffer.capacity() > KEPT_BUFFER {
            *buffer = Vec::new();
        }
        Ok(result)
    })
}

/// The digest of a document alone.
pub fn digest(document: Jsonb) -> Result<[u8; 32]> {
    with_canonical(document, request_fingerprint)
}

/// A digest passed as an argument. Errors: 22023 unless it has 32 bytes.
pub fn digest_argument(call: &Call, n: usize) -> Result<Option<[u8; 32]>> {
    let Some(bytes) = call.bytes(n) else { return Ok(None) };
    let digest = bytes.try_into().map_err(|_| {
        Error::new(
            Code::InvalidParameter,
            format!("{} has {} bytes; a fingerprint has 32", call.name(n), bytes.len()),
        )
        .hint("Pass what idem_fingerprint returns, or the SHA-256 of the document's RFC 8785 text.")
    })?;
    Ok(Some(digest))
}

/// `idem_canonical(request)`
pub fn idem_canonical(call: &Call) -> Result<Datum> {
    let Some(request) = call.jsonb(0) else { return Ok(call.value(Value::Null)) };
    with_canonical(request, |text| call.value(Value::Text(String::from_utf8_lossy(text))))
}

/// `idem_fingerprint(request)`
pub fn idem_fingerprint(call: &Call) -> Result<Datum> {
    let Some(request) = call.jsonb(0) else { return Ok(call.value(Value::Null)) };
    Ok(call.value(Value::Bytes(&digest(request)?)))
}

/// `idem_fingerprint_text(document)`
pub fn idem_fingerprint_text(call: &Call) -> Result<Datum> {
    let Some(document) = call.text(0)? else { return Ok(call.value(Value::Null)) };
    let canonical = canonical_from_text(&document)?;
    Ok(call.value(Value::Bytes(&request_fingerprint(&canonical))))
}

/// `idem_action_fingerprint(request_fingerprint, action_type, tenant, actor, target)`
pub fn idem_action_fingerprint(call: &Call) -> Result<Datum> {
    let request = digest_argument(call, 0)?.ok_or_else(|| call.null(0))?;
    let (action_type, tenant) = (call.text(1)?, call.text(2)?);
    let (actor, target) = (call.text(3)?, call.text(4)?);
    let digest = action_fingerprint(
        &request,
        check_action_type(action_type.as_deref())?,
        check_tenant(tenant.as_deref())?,
        check_text(call.name(3), actor.as_deref())?,
        check_text(call.name(4), target.as_deref())?,
    );
    Ok(call.value(Value::Bytes(&digest)))
}
