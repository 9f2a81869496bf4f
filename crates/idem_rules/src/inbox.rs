//! Messages that a consumer has seen.

/// What a consumer is told about a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// Not seen before: handle it, in this transaction.
    New,
    /// Seen before: leave it.
    Duplicate,
    /// Seen before with another payload: one of the two is wrong.
    Conflict,
}

impl Accepted {
    /// The word users see.
    pub const fn word(self) -> &'static str {
        match self {
            Accepted::New => "new",
            Accepted::Duplicate => "duplicate",
            Accepted::Conflict => "conflict",
        }
    }
}

/// What a message that was seen before is. A payload that was not given, now or then, is not compared.
pub fn seen_before(stored: Option<&[u8]>, given: Option<&[u8]>) -> Accepted {
    match (stored, given) {
        (Some(stored), Some(given)) if stored != given => Accepted::Conflict,
        _ => Accepted::Duplicate,
    }
}
