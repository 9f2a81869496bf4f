//! Messages that a consumer has seen.

use crate::action::{Span, Time};

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

/// How many passes over the inbox there are in the time that it remembers a message.
const PASSES: Span = 32;

/// A pass over the inbox, page by page, which forgets what it finds to be old.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    /// What was first seen by then is forgotten when the pass is over.
    pub began_for: Time,
    /// What was first seen by then is forgotten now.
    pub up_to: Time,
    /// The page it goes on with.
    pub page: u32,
}

/// The pass that is under way at `page`, or the next one if it is time: a message is forgotten within a thirty-second of
/// `retention`, in microseconds, after that is over. `began_for` is that of the last pass.
pub fn pass(began_for: Time, page: Option<u32>, retention: Span, now: Time) -> Option<Pass> {
    let up_to = now.saturating_sub(retention);
    match page {
        Some(page) => Some(Pass { began_for, up_to, page }),
        // Later than that: the clock was put back since, or the retention made longer.
        None if began_for > up_to || up_to.saturating_sub(began_for) >= retention / PASSES => {
            Some(Pass { began_for: up_to, up_to, page: 0 })
        }
        None => None,
    }
}
