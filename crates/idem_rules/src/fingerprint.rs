//! Fingerprints: which request was made, and within which scope.

use sha2::{Digest, Sha256};

use crate::canonical::push_string;

/// The scheme of the fingerprints made here, stored beside each. What a scheme means never changes.
pub const SCHEME: i16 = 1;

/// The fingerprint of a request: SHA-256 over its canonical text (RFC 8785, numbers exact).
///
/// `canonical` is what [`crate::jsonb`] or [`crate::document`] returned. Any JCS library and SHA-256 give
/// the same digest for numbers that are doubles.
pub fn request_fingerprint(canonical: &[u8]) -> [u8; 32] {
    Sha256::digest(canonical).into()
}

/// The fingerprint that an action stores: the request and what it applies to.
///
/// It is the digest of the canonical object with the members `action_type`, `actor`, `arguments_sha256`
/// (`request_fingerprint` as lower-case hexadecimal), `target` and `tenant`; an absent actor or target is
/// null, which an empty one is not.
pub fn action_fingerprint(
    request_fingerprint: &[u8; 32],
    action_type: &str,
    tenant: &str,
    actor: Option<&str>,
    target: Option<&str>,
) -> [u8; 32] {
    // The names stand in canonical order already, so the text is written as it has to be.
    let mut text = Vec::with_capacity(512);
    text.extend_from_slice(b"{\"action_type\":");
    push_string(&mut text, action_type.as_bytes());
    text.extend_from_slice(b",\"actor\":");
    push_optional(&mut text, actor);
    text.extend_from_slice(b",\"arguments_sha256\":\"");
    push_hex(&mut text, request_fingerprint);
    text.extend_from_slice(b"\",\"target\":");
    push_optional(&mut text, target);
    text.extend_from_slice(b",\"tenant\":");
    push_string(&mut text, tenant.as_bytes());
    text.push(b'}');
    Sha256::digest(&text).into()
}

fn push_optional(out: &mut Vec<u8>, text: Option<&str>) {
    match text {
        Some(text) => push_string(out, text.as_bytes()),
        None => out.extend_from_slice(b"null"),
    }
}

/// Appends lower-case hexadecimal digits.
pub(crate) fn push_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    let digits = b"0123456789abcdef";
    for byte in bytes {
        out.extend_from_slice(&[digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    // The expected digests were computed with Python's json and hashlib.
    #[test]
    fn action_fingerprints_are_as_published() {
        let request = request_fingerprint(b"{}");
        assert_eq!(hex(&request), "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
        let fingerprint = action_fingerprint(&request, "default", "", None, None);
        assert_eq!(hex(&fingerprint), "e4808e300da351bc2caf12336678eeb0ab4c810b493cc6f82acac83eaae86a75");
        let target = Some("order \"4821\"\n");
        let fingerprint = action_fingerprint(&request, "refund", "acme", Some("user:7"), target);
        assert_eq!(hex(&fingerprint), "a1d808dbfe3fdbbe997bec0cce8b1ac59dba1c2c4bd13962df011a8353763f6a");
        let fingerprint = action_fingerprint(&request, "default", "", Some(""), None);
        assert_eq!(hex(&fingerprint), "6874c6bcc1c2769a5173c3b90f046111128284ff4644ec37a381ef43e6e36fad");
    }

    #[test]
    fn each_part_of_the_scope_counts() {
        let scopes = [
            ([0; 32], "a", "b", Some("c"), Some("d")),
            ([1; 32], "a", "b", Some("c"), Some("d")),
            ([0; 32], "b", "a", Some("c"), Some("d")),
            ([0; 32], "a", "b", Some("d"), Some("c")),
            ([0; 32], "a", "b", None, Some("c")),
            ([0; 32], "a", "b", Some("c"), None),
            ([0; 32], "a", "b", None, None),
            ([0; 32], "a", "b", Some(""), None),
            ([0; 32], "a", "b", None, Some("")),
            ([0; 32], "a", "b", Some("null"), Some("null")),
        ];
        let mut digests = scopes.map(|(request, kind, tenant, actor, target)| {
            action_fingerprint(&request, kind, tenant, actor, target)
        });
        digests.sort_unstable();
        assert!(digests.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
