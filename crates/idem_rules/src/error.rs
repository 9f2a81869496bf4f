//! What a rule refuses, in the words a user sees.

use std::borrow::Cow;
use std::fmt;

/// The SQLSTATE a refusal is reported under.
///
/// Standard codes where they fit (PostgreSQL documentation, appendix A); the class `ID` is our own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// 00000: nothing is wrong; a line for the log.
    Success,
    /// 01000: a warning; the call goes on.
    Warning,
    /// 22004: NULL where a value is needed.
    NullValue,
    /// 22023: a value outside what the function takes.
    InvalidParameter,
    /// 22P02: text that does not read as what it should be.
    InvalidText,
    /// 22P05: a character that cannot be represented.
    UntranslatableCharacter,
    /// 0A000: a right request that this build or database cannot serve.
    Unsupported,
    /// 25001: not inside a transaction block.
    ActiveTransaction,
    /// 40001: a serialization failure; the whole transaction may be tried again.
    Serialization,
    /// 42501: not allowed for this role.
    NotAllowed,
    /// 42704: a name that does not exist.
    UndefinedObject,
    /// 42809: a name that means something of another kind.
    WrongObject,
    /// 55000: not possible in the present state of things.
    WrongState,
    /// ID002: the attempt no longer owns the action.
    LostAttempt,
    /// ID003: a move that the action's state does not allow.
    IllegalMove,
    /// ID004: no such action.
    NoSuchAction,
    /// ID005: not approved.
    NotApproved,
    /// ID006: too late for this call.
    TooLate,
    /// ID007: the reports about this action contradict each other.
    Discrepancy,
    /// ID008: held by an operator.
    Held,
    /// XX001: what is stored contradicts itself.
    Corrupted,
}

impl Code {
    /// The five characters of the SQLSTATE.
    pub const fn sqlstate(self) -> &'static str {
        match self {
            Code::Success => "00000",
            Code::Warning => "01000",
            Code::NullValue => "22004",
            Code::InvalidParameter => "22023",
            Code::InvalidText => "22P02",
            Code::UntranslatableCharacter => "22P05",
            Code::Unsupported => "0A000",
            Code::ActiveTransaction => "25001",
            Code::Serialization => "40001",
            Code::NotAllowed => "42501",
            Code::UndefinedObject => "42704",
            Code::WrongObject => "42809",
            Code::WrongState => "55000",
            Code::LostAttempt => "ID002",
            Code::IllegalMove => "ID003",
            Code::NoSuchAction => "ID004",
            Code::NotApproved => "ID005",
            Code::TooLate => "ID006",
            Code::Discrepancy => "ID007",
            Code::Held => "ID008",
            Code::Corrupted => "XX001",
        }
    }
}

impl Code {
    /// The SQLSTATE as PostgreSQL passes it around: six bits a character (MAKE_SQLSTATE in utils/elog.h).
    pub fn packed(self) -> i32 {
        self.sqlstate().bytes().rev().fold(0, |sum, byte| (sum << 6) | (i32::from(byte - b'0') & 0x3f))
    }
}

/// A refusal: what is wrong, with which value (never a secret or a payload), and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The SQLSTATE.
    pub code: Code,
    /// One line, lower case, no full stop: PostgreSQL's style for primary messages.
    pub message: Cow<'static, str>,
    /// Facts that help to find the cause.
    pub detail: Option<Cow<'static, str>>,
    /// What the caller can do.
    pub hint: Option<Cow<'static, str>>,
}

impl Error {
    /// A refusal with a message alone.
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Error { code, message: message.into(), detail: None, hint: None }
    }

    /// The refusal of NULL for what has no default.
    pub fn null(what: &str) -> Self {
        Error::new(Code::NullValue, format!("{what} must not be null"))
            .hint("Pass a value: NULL stands for a default elsewhere, but there is none here.")
    }

    /// Adds the DETAIL line.
    pub fn detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Adds the HINT line.
    pub fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.sqlstate(), self.message)
    }
}

impl std::error::Error for Error {}

/// What every rule returns.
pub type Result<T> = std::result::Result<T, Error>;

#[cfg(test)]
mod tests {
    use super::Code;

    #[test]
    fn sqlstates_are_packed_as_postgres_does() {
        // What a C compiler makes of MAKE_SQLSTATE for these.
        assert_eq!(Code::NullValue.packed(), 67_108_994);
        assert_eq!(Code::Serialization.packed(), 16_777_220);
        assert_eq!(Code::LostAttempt.packed(), 33_555_737);
    }
}
