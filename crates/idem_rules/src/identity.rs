//! Identity: which action a call means, what the provider is told, and which names are allowed at all.

use sha2::{Digest, Sha256};
use uuid::{Builder, Uuid, Variant};

use crate::error::{Code, Error, Result};
use crate::fingerprint::push_hex;

/// The most characters of a key, a tenant and any text without a limit of its own.
pub const TEXT_MAX: usize = 255;
/// The most characters of an action type's name.
pub const ACTION_TYPE_MAX: usize = 100;

const ACTION_DOMAIN: &str = "pg_idem/action/1";
const KEY_DOMAIN: &str = "pg_idem/key/1";
const PROVIDER_DOMAIN: &str = "pg_idem/provider/1";

/// The identity of an action, computable by any client.
///
/// A version 8 uuid (RFC 9562, section 5.8) cut from SHA-256 over `pg_idem/action/1`, then tenant and key,
/// each as a 4-byte big-endian length and its UTF-8 bytes. Check the limits first.
pub fn action_id(tenant: &str, key: &str) -> Uuid {
    let mut hash = Sha256::new_with_prefix(ACTION_DOMAIN);
    update_part(&mut hash, tenant);
    update_part(&mut hash, key);
    cut_uuid(hash)
}

/// What a provider gets as its idempotency key: a version 8 uuid cut from SHA-256 over
/// `pg_idem/provider/1`, the 16 bytes of the installation's id, those of the action's, and the generation
/// as four big-endian bytes.
pub fn provider_key(installation_id: Uuid, action_id: Uuid, generation: i32) -> Uuid {
    let mut hash = Sha256::new_with_prefix(PROVIDER_DOMAIN);
    hash.update(installation_id.as_bytes());
    hash.update(action_id.as_bytes());
    hash.update(generation.to_be_bytes());
    cut_uuid(hash)
}

/// An opaque key made of parts that nobody has to glue: 64 lower-case hexadecimal digits.
///
/// SHA-256 over `pg_idem/key/1`, the number of parts as four big-endian bytes, and each part as a 4-byte
/// big-endian length and its UTF-8 bytes. Empty parts count.
///
/// # Errors
/// `InvalidParameter` without parts, `NullValue` if one of them is NULL.
pub fn make_key(parts: &[Option<&str>]) -> Result<String> {
    if parts.is_empty() {
        return Err(Error::new(Code::InvalidParameter, "a key needs at least one part")
            .hint("Pass what names the action: its workflow, its type, its target."));
    }
    let mut hash = Sha256::new_with_prefix(KEY_DOMAIN);
    hash.update((parts.len() as u32).to_be_bytes());
    for (at, part) in parts.iter().enumerate() {
        let Some(part) = part else {
            return Err(Error::null(&format!("part {} of the key", at + 1)));
        };
        update_part(&mut hash, part);
    }
    let mut key = Vec::with_capacity(64);
    push_hex(&mut key, &hash.finalize());
    Ok(key.into_iter().map(char::from).collect())
}

/// A part with its length before it, so that no two lists of parts are one string of bytes. PostgreSQL's
/// values are shorter than 2^30 bytes: the length fits.
fn update_part(hash: &mut Sha256, part: &str) {
    hash.update((part.len() as u32).to_be_bytes());
    hash.update(part);
}

fn cut_uuid(hash: Sha256) -> Uuid {
    let digest: [u8; 32] = hash.finalize().into();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    Builder::from_custom_bytes(bytes).into_uuid()
}

/// Checks a key: 1 to 255 characters, not white space alone, no control or format characters (Unicode
/// general categories Cc and Cf), which nobody sees.
///
/// # Errors
/// `NullValue` for NULL, `InvalidParameter` otherwise; neither shows the key.
pub fn check_key(key: Option<&str>) -> Result<&str> {
    let key = between("key", key, 1, TEXT_MAX)?;
    if let Some(at) = key.chars().position(|c| c.is_control() || is_format(c)) {
        let message = "key must not have control or format characters";
        let detail = format!("Character {} of {} is one.", at + 1, key.chars().count());
        return Err(Error::new(Code::InvalidParameter, message).detail(detail).hint(MAKE_A_KEY));
    }
    if key.chars().all(char::is_whitespace) {
        let message = "key must not be white space alone";
        return Err(Error::new(Code::InvalidParameter, message)
            .detail(long(key.chars().count()))
            .hint(MAKE_A_KEY));
    }
    Ok(key)
}

/// Checks a tenant: at most 255 characters, possibly none.
///
/// # Errors
/// `NullValue` for NULL: an undefined variable must not become somebody else's tenant. `InvalidParameter` for
/// a longer one.
pub fn check_tenant(tenant: Option<&str>) -> Result<&str> {
    between("tenant", tenant, 0, TEXT_MAX)
}

/// Checks the name of an action type: 1 to 100 characters.
///
/// # Errors
/// `NullValue` for NULL, `InvalidParameter` otherwise.
pub fn check_action_type(name: Option<&str>) -> Result<&str> {
    between("action_type", name, 1, ACTION_TYPE_MAX)
}

/// Checks any other text: at most 255 characters. NULL is an absent one and stays so.
///
/// # Errors
/// `InvalidParameter`, naming the parameter `name`.
pub fn check_text<'a>(name: &str, value: Option<&'a str>) -> Result<Option<&'a str>> {
    if value.is_none() { Ok(None) } else { between(name, value, 0, TEXT_MAX).map(Some) }
}

/// Checks an attempt's id that the caller chose: it is the token of ownership, so it has to be a uuid of a
/// version that is random (4, or 7; RFC 9562, sections 5.4 and 5.7).
///
/// # Errors
/// `InvalidParameter`; the id is not shown.
pub fn check_attempt_id(id: Uuid) -> Result<Uuid> {
    if id.get_variant() == Variant::RFC4122 && matches!(id.get_version_num(), 4 | 7) {
        return Ok(id);
    }
    Err(Error::new(Code::InvalidParameter, "attempt_id must be a uuid of version 4 or 7").hint(
        "Only its owner can know an attempt's id: take a new random one for each attempt, or leave it out.",
    ))
}

fn between<'a>(name: &str, value: Option<&'a str>, least: usize, most: usize) -> Result<&'a str> {
    let Some(value) = value else {
        return Err(Error::null(name));
    };
    // A character has at least one byte, which settles nearly all values without counting.
    let fits = value.len() >= least && (value.len() <= most || value.chars().count() <= most);
    if fits {
        return Ok(value);
    }
    let message = match least {
        0 => format!("{name} must have at most {most} characters"),
        _ => format!("{name} must have {least} to {most} characters"),
    };
    let hint = if name == "key" { MAKE_A_KEY } else { "Shorten it; keep the whole text elsewhere." };
    Err(Error::new(Code::InvalidParameter, message).detail(long(value.chars().count())).hint(hint))
}

const MAKE_A_KEY: &str = "Make the key with idem_key(part, ...) from the parts that name the action.";

fn long(characters: usize) -> String {
    format!("It is {characters} characters long.")
}

/// The characters of general category Cf, Unicode 15; each pair is a first and a last one.
const FORMAT: [(char, char); 21] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{180e}', '\u{180e}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{202a}', '\u{202e}'),
    ('\u{2060}', '\u{2064}'),
    ('\u{2066}', '\u{206f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{fff9}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0001}', '\u{e0001}'),
    ('\u{e0020}', '\u{e007f}'),
];

fn is_format(c: char) -> bool {
    c >= FORMAT[0].0 && FORMAT.iter().any(|&(first, last)| (first..=last).contains(&c))
}

#[cfg(test)]
mod tests {
    use super::*;

    // The expected values were computed with Python's hashlib, struct and uuid, not with this code.

    #[test]
    fn action_ids_are_as_published() {
        for (tenant, key, id) in [
            ("", "k", "9c97c593-aa18-8fb7-8a03-8d9e2ea47297"),
            ("", "refund-4821", "99741b82-1306-89a8-9983-df362a134cad"),
            ("acme", "refund-4821", "9f2a6092-cc95-894c-9664-b0c95c841024"),
            ("a", "b|c", "67baa307-14b1-8277-af96-6a821e3c2085"),
            ("a|b", "c", "64a8d527-eabe-81d9-a1bf-b6e17f9c99ed"),
            ("m\u{e9}tro", "cl\u{e9} \u{20ac}\u{1f602}", "4a5c5ccb-2593-8a4a-b3ce-b9f13300e0f7"),
            (&"x".repeat(255), &"y".repeat(255), "2f2dc51d-3058-8a55-8491-f383794df738"),
        ] {
            let computed = action_id(tenant, key);
            assert_eq!(computed.to_string(), id);
            assert_eq!((computed.get_version_num(), computed.get_variant()), (8, Variant::RFC4122));
        }
    }

    #[test]
    fn keys_of_parts_are_as_published() {
        let key = |parts: &[&str]| make_key(&parts.iter().copied().map(Some).collect::<Vec<_>>()).unwrap();
        for (parts, expected) in [
            (&["a"][..], "ccc1430fcad5c1ccc444da839bed39b517a49901a6c86010c4ad3598ecd71137"),
            (&[""], "e99b27d91b02c5237804fdcce7dbed436a6a013e0e54ebb3063d7b1a01834664"),
            (&["a", "b"], "046709ce2a400f790be82231209a6a90444d099e9625e0660dcf3c5c3eca269c"),
            (&["ab", ""], "11fc1017e64dd22da071d8fd0cc6683049d15fe71650c92435a53079620f7d61"),
            (&["", "ab"], "7b9d73fcd3f9e88c53865f5ade27509b6e899b0f938ddb14862ab6fc67e05fef"),
            (
                &["order", "4821", "\u{e9}"],
                "477f27c0151745e58c60159bc4febe723f4ca66f1de074fee0ae68fefb4b939f",
            ),
        ] {
            assert_eq!(key(parts), expected);
            assert_eq!(check_key(Some(expected)), Ok(expected));
        }
        assert_eq!(make_key(&[]).unwrap_err().code, Code::InvalidParameter);
        let error = make_key(&[Some("secret"), None]).unwrap_err();
        assert_eq!((error.code, &*error.message), (Code::NullValue, "part 2 of the key must not be null"));
    }

    #[test]
    fn provider_keys_are_as_published() {
        let installation = Uuid::from_u128(0x7f1c2b9e_3d4a_4e5f_8a6b_0c1d2e3f4a5b);
        let action = action_id("", "refund-4821");
        for (generation, key) in [
            (0, "d26a9aae-d390-8f8f-9e5a-6b863c74bf9f"),
            (1, "a498af59-b051-89f9-8765-62c5fce0cafb"),
            (i32::MAX, "93ab8990-4945-856e-a883-7bb735173f96"),
        ] {
            assert_eq!(provider_key(installation, action, generation).to_string(), key);
        }
    }

    #[test]
    fn keys_have_limits() {
        for good in ["k", " k ", "\u{e9}", &"\u{1f602}".repeat(255), "a\u{a0}b", "\u{300}"] {
            assert_eq!(check_key(Some(good)), Ok(good));
        }
        assert_eq!(check_key(None).unwrap_err().code, Code::NullValue);
        let long = "k".repeat(256);
        let odd = [
            "",
            " ",
            "\u{3000}\u{2028}",
            "a\tb",
            "a\0",
            "\u{7f}",
            "\u{85}",
            "a\u{200b}",
            "\u{e0041}x",
            "\u{ad}",
        ];
        for bad in odd.into_iter().chain([&*long]) {
            let error = check_key(Some(bad)).unwrap_err();
            assert_eq!(error.code, Code::InvalidParameter, "{bad:?}");
            assert!(error.message.starts_with("key must "));
        }
        let error = check_key(Some(&long)).unwrap_err();
        assert_eq!(error.message, "key must have 1 to 255 characters");
        assert_eq!(error.detail.as_deref(), Some("It is 256 characters long."));
        let error = check_key(Some("secret\u{200b}key")).unwrap_err();
        assert_eq!(error.detail.as_deref(), Some("Character 7 of 10 is one."));
    }

    #[test]
    fn other_texts_have_limits() {
        let long = |length| "\u{20ac}".repeat(length);
        assert_eq!(check_tenant(Some("")), Ok(""));
        assert!(check_tenant(Some(&long(255))).is_ok());
        assert_eq!(
            check_tenant(Some(&long(256))).unwrap_err().message,
            "tenant must have at most 255 characters"
        );
        assert_eq!(check_tenant(None).unwrap_err().code, Code::NullValue);
        assert!(check_action_type(Some(&long(100))).is_ok());
        for bad in ["", &long(101)] {
            assert_eq!(check_action_type(Some(bad)).unwrap_err().code, Code::InvalidParameter);
        }
        assert_eq!(check_action_type(None).unwrap_err().code, Code::NullValue);
        assert_eq!(check_text("worker", None), Ok(None));
        assert_eq!(check_text("worker", Some("")), Ok(Some("")));
        assert!(check_text("worker", Some(&long(255))).is_ok());
        let error = check_text("worker", Some(&long(256))).unwrap_err();
        assert_eq!(
            (error.code, &*error.message),
            (Code::InvalidParameter, "worker must have at most 255 characters")
        );
    }

    #[test]
    fn attempt_ids_are_random_uuids() {
        for (id, good) in [
            ("9c97c593-aa18-4fb7-8a03-8d9e2ea47297", true),
            ("9c97c593-aa18-7fb7-ba03-8d9e2ea47297", true),
            ("9c97c593-aa18-4fb7-ca03-8d9e2ea47297", false),
            ("9c97c593-aa18-4fb7-0a03-8d9e2ea47297", false),
            ("9c97c593-aa18-1fb7-8a03-8d9e2ea47297", false),
            ("9c97c593-aa18-8fb7-8a03-8d9e2ea47297", false),
            ("00000000-0000-0000-0000-000000000000", false),
            ("ffffffff-ffff-ffff-ffff-ffffffffffff", false),
        ] {
            let id: Uuid = id.parse().unwrap();
            let error = check_attempt_id(id).err().map(|error| error.code);
            assert_eq!(error, (!good).then_some(Code::InvalidParameter), "{id}");
        }
    }

    #[test]
    fn format_characters_are_those_of_unicode() {
        assert!(FORMAT.windows(2).all(|pair| pair[0].0 <= pair[0].1 && pair[0].1 < pair[1].0));
        // 163 in Unicode 14; version 15 added U+13439 to U+1343F.
        assert_eq!(('\0'..=char::MAX).filter(|&c| is_format(c)).count(), 170);
    }
}
