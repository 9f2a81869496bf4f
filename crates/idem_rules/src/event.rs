//! What can happen to an action, and who says so: the input of [`crate::transition::transition`].

use uuid::Uuid;

use crate::action::{Action, Span};
use crate::error::{Code, Error, Result};

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event<'a> {
    /// A caller asks for the action.
    Reserve(Ask),
    /// A caller puts the action forward for approval and does not want to start it.
    Propose(Ask),
    /// The effect happened.
    Commit(Commit<'a>),
    /// The caller cannot tell whether the effect happened. `counts_as_mark`: the fact that it was sent.
    MarkUnknown(Caller),
    /// The effect definitely did not happen.
    Fail(Fail),
    /// The attempt needs more time; `lease` is asked for, `None` takes the type's.
    Renew(Caller, Option<Span>),
    /// The attempt gives up before the effect.
    Release(Caller),
    /// The effect may leave the building from now on. `held`: an operator stopped new effects.
    Dispatch {
        /// Who says so.
        caller: Caller,
        /// An operator's hold covers the action.
        held: bool,
    },
    /// Somebody reports what he saw, outside a reconciling attempt.
    Evidence(Evidence<'a>),
    /// A reconciler asks for the action, to find out what became of it. Never grants the effect.
    Reconcile(Ask),
    /// A reconciling attempt reports what it found.
    Resolve(Resolve<'a>),
    /// The worker came by.
    Visit {
        /// A compensation or a message that belongs to the action has not ended: the record stays.
        open_children: bool,
    },
    /// The database was restored, failed over or copied: it may be older than the world.
    Restore,
    /// Asks a person to look.
    Escalate,
    /// A person decides.
    Decide(Decide<'a>),
    /// A message that carries the action is put. `here`: its attempt was granted in the same transaction.
    Carry {
        /// The running attempt is the transaction's own, which gives it up to the message.
        here: bool,
    },
    /// The message that carries the action is gone without having been delivered.
    LetGo,
    /// A person gives a failed or rejected action another chance.
    Reopen,
    /// A person approves exactly this request under exactly this policy.
    Approve(Approve<'a>),
    /// A person refuses.
    Reject,
    /// The approval is withdrawn.
    Withdraw,
    /// The action is cancelled by those who asked for it.
    Cancel,
}

impl Event<'_> {
    /// True where the answer permits something until a lease ends: nobody may wait between deciding and giving it.
    pub const fn permits(&self) -> bool {
        matches!(self, Event::Renew(..) | Event::Dispatch { .. })
    }
}

/// A caller asking for an action.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ask {
    /// Digest of what is asked for, in scope.
    pub fingerprint: [u8; 32],
    /// Scheme of the digest.
    pub scheme: i16,
    /// The token a grant would carry: the caller's own or a fresh one.
    pub attempt_id: Uuid,
    /// True when the action has had an attempt with that token before.
    pub attempt_id_used: bool,
    /// Lease asked for.
    pub lease: Option<Span>,
    /// Retention asked for.
    pub ttl: Option<Span>,
    /// The caller can find out what an earlier attempt did.
    pub can_reconcile: bool,
    /// An open outbox message carries the action.
    pub carried: bool,
    /// An operator's hold covers the action.
    pub held: bool,
}

/// Who ends an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// The token shown.
    pub attempt_id: Uuid,
    /// The history knows it as an earlier attempt of this action.
    pub earlier: bool,
}

/// How a caller stands to an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Its token is the last attempt's.
    Current,
    /// Its token is the last reconciling attempt's.
    Reconciler,
    /// It was an attempt of this action.
    Earlier,
    /// It never was.
    Stranger,
}

impl Caller {
    /// How the caller stands to `action`.
    pub fn standing(self, action: &Action) -> Standing {
        if action.attempt_id == Some(self.attempt_id) {
            Standing::Current
        } else if action.reconcile_id == Some(self.attempt_id) {
            Standing::Reconciler
        } else if self.earlier {
            Standing::Earlier
        } else {
            Standing::Stranger
        }
    }
}

/// The effect happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Commit<'a> {
    /// Who says so.
    pub caller: Caller,
    /// What the provider made.
    pub resource_id: Option<&'a str>,
    /// Keep the result as evidence where it cannot be committed any more, rather than raise.
    pub record_when_lost: bool,
}

/// What makes a failure definite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// The request never left.
    NotSent,
    /// The provider refused it.
    Refused,
}

impl Proof {
    /// The proof behind a word. Errors: 22023 for any other word.
    pub fn from_word(word: &str) -> Result<Proof> {
        match word {
            "not_sent" => Ok(Proof::NotSent),
            "refused" => Ok(Proof::Refused),
            _ => Err(Error::new(Code::InvalidParameter, "proof must be not_sent or refused")
                .hint("A time-out, a reset or a 5xx proves nothing: use idem_mark_unknown.")),
        }
    }
}

/// The effect definitely did not happen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fail {
    /// Who says so.
    pub caller: Caller,
    /// What makes it definite.
    pub proof: Proof,
    /// Another attempt makes sense.
    pub retryable: bool,
    /// When, if the caller knows.
    pub retry_after: Option<Span>,
    /// The next attempt needs a provider key of its own.
    pub new_provider_key: bool,
    /// Jitter in 0..1.
    pub random: f64,
}

/// What was found out about an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// It happened.
    Applied,
    /// Part of it happened.
    PartiallyApplied,
    /// It did not happen.
    NotApplied,
    /// Several things might be it.
    Ambiguous,
    /// Nothing can be said.
    Inconclusive,
}

const FINDINGS: [Finding; 5] = [
    Finding::Applied,
    Finding::PartiallyApplied,
    Finding::NotApplied,
    Finding::Ambiguous,
    Finding::Inconclusive,
];

impl Finding {
    /// The word in SQL.
    pub const fn word(self) -> &'static str {
        match self {
            Finding::Applied => "applied",
            Finding::PartiallyApplied => "partially_applied",
            Finding::NotApplied => "not_applied",
            Finding::Ambiguous => "ambiguous",
            Finding::Inconclusive => "inconclusive",
        }
    }

    /// The finding behind a word. Errors: 22023 for any other word.
    pub fn from_word(word: &str) -> Result<Finding> {
        FINDINGS.into_iter().find(|finding| finding.word() == word).ok_or_else(|| {
            Error::new(Code::InvalidParameter, "finding is not one of the known words")
                .hint("Use applied, partially_applied, not_applied, ambiguous or inconclusive.")
        })
    }

    /// True when it says that something happened.
    pub const fn is_positive(self) -> bool {
        matches!(self, Finding::Applied | Finding::PartiallyApplied)
    }
}

/// A report outside a reconciling attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence<'a> {
    /// Who reports.
    pub caller: Caller,
    /// What was seen.
    pub finding: Finding,
    /// What the provider made.
    pub resource_id: Option<&'a str>,
}

/// A reconciling attempt's report.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolve<'a> {
    /// Who reports.
    pub caller: Caller,
    /// What was found.
    pub finding: Finding,
    /// What the provider made.
    pub resource_id: Option<&'a str>,
    /// When to look again, if the caller knows.
    pub next_probe: Option<Span>,
    /// Jitter in 0..1.
    pub random: f64,
}

/// What a person decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It happened.
    Applied,
    /// It did not, and shall not be tried again.
    NotApplied,
    /// It did not, and shall be tried again.
    Retry,
}

/// A person's decision.
#[derive(Debug, Clone, PartialEq)]
pub struct Decide<'a> {
    /// What was decided.
    pub verdict: Verdict,
    /// What the provider made.
    pub resource_id: Option<&'a str>,
}

/// An approval.
#[derive(Debug, Clone, PartialEq)]
pub struct Approve<'a> {
    /// The digest the approver saw.
    pub fingerprint: &'a [u8],
    /// The policy version the approver saw; `None` takes the present one.
    pub policy_version: Option<i32>,
    /// How long it holds; `None` takes the type's.
    pub valid: Option<Span>,
    /// Who proposed the action; `None` when nobody is on record.
    pub proposer: Option<Person<'a>>,
    /// Who approves it.
    pub approver: Person<'a>,
}

/// A person at the database's door.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Person<'a> {
    /// The role that called the outermost function.
    pub role: &'a str,
    /// The role that logged in.
    pub session_role: &'a str,
    /// The name given in the call.
    pub name: Option<&'a str>,
}
