//! The one transition function: every move of an action's state goes through [`transition`].
//!
//! It takes what is stored, what happened, the policies and the time; it returns what must be stored and what
//! the caller is told. The database code applies what it returns and decides nothing itself.

use uuid::Uuid;

use crate::action::{Action, Span, State, Time};
use crate::error::{Code, Error, Result};
use crate::policy::Policies;
use crate::{approval, attempt, expiry, reconcile, reserve};

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event<'a> {
    /// A caller asks for the action.
    Reserve(Ask),
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
    /// A reconciling attempt reports what it found.
    Resolve(Resolve<'a>),
    /// The worker came by.
    Visit,
    /// Asks a person to look.
    Escalate,
    /// A person decides.
    Decide(Decide<'a>),
    /// A person gives a failed or rejected action another chance.
    Reopen,
    /// A person approves exactly this request under exactly this policy.
    Approve(Approve<'a>),
    /// A person refuses.
    Reject,
    /// The approval is withdrawn, or the action cancelled.
    Withdraw,
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
    /// The approver is the proposer, by the type's measure.
    pub same_person: bool,
}

/// What a caller of reserve is told to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Carry the action out. Granted.
    Execute,
    /// It is yours already: carry on. Granted.
    Resume,
    /// Find out what an earlier attempt did. Not a permission to repeat the effect.
    Reconcile,
    /// Somebody is at it, or it is too early.
    Pending,
    /// It was done: here is the answer.
    Replay,
    /// The key belongs to another request.
    Conflict,
    /// It needs approval first.
    AwaitingApproval,
    /// The outcome is not known; wait for its resolution.
    Unknown,
    /// A person has to decide.
    Review,
    /// It definitely did not happen and will not be tried again.
    Failed,
    /// It was refused before anything left.
    Rejected,
    /// The record is past its retention.
    Expired,
}

impl Decision {
    /// The word users see.
    pub const fn word(self) -> &'static str {
        match self {
            Decision::Execute => "execute",
            Decision::Resume => "resume",
            Decision::Reconcile => "reconcile",
            Decision::Pending => "pending",
            Decision::Replay => "replay",
            Decision::Conflict => "conflict",
            Decision::AwaitingApproval => "awaiting_approval",
            Decision::Unknown => "unknown",
            Decision::Review => "review",
            Decision::Failed => "failed",
            Decision::Rejected => "rejected",
            Decision::Expired => "expired",
        }
    }

    /// True where the effect may be carried out.
    pub const fn is_granted(self) -> bool {
        matches!(self, Decision::Execute | Decision::Resume)
    }

    /// True where the caller now owns an attempt.
    pub const fn owns(self) -> bool {
        self.is_granted() || matches!(self, Decision::Reconcile)
    }
}

/// What the caller is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// reserve's decision and, where waiting makes sense, for how long.
    Decided(Decision, Option<Span>),
    /// `committed`.
    Committed,
    /// `already_committed`.
    AlreadyCommitted,
    /// `superseded`: kept as evidence.
    Superseded,
    /// `discrepancy`: kept, visible, contradicts what is stored.
    Discrepancy,
    /// `recorded`: kept as evidence.
    Recorded,
    /// The state the action is in now.
    State(State),
    /// Until when the lease runs now.
    Lease(Time),
    /// `stopped`: nothing was dispatched and nothing will be.
    Stopped,
    /// `too_late`: something may have been dispatched.
    TooLate,
    /// Visited; nothing was due.
    Nothing,
    /// Visited; the row can be removed.
    Remove,
}

/// How an attempt ended, for the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Its number; a reconciling attempt carries the number of the attempt it looks after.
    pub attempt: i32,
    /// Its token.
    pub attempt_id: Uuid,
    /// Its fence, where it is still known.
    pub fence: i64,
    /// True for a reconciling attempt.
    pub reconciling: bool,
    /// committed, unknown, lapsed, superseded, retryable, failed, released, or a finding.
    pub outcome: &'static str,
}

/// What must be stored, and what the caller is told.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The row as it must stand from now on; `None` means unchanged.
    pub next: Option<Action>,
    /// What the caller is told.
    pub answer: Answer,
    /// Attempts that ended by this move, other than a first-try commit.
    pub ended: Vec<Ended>,
    /// Words for the history.
    pub events: Vec<&'static str>,
}

impl Step {
    /// Nothing changes.
    pub fn unchanged(answer: Answer) -> Step {
        Step { next: None, answer, ended: Vec::new(), events: Vec::new() }
    }

    /// The row becomes `next`.
    pub fn to(next: Action, answer: Answer) -> Step {
        Step { next: Some(next), answer, ended: Vec::new(), events: Vec::new() }
    }

    /// Adds a word to the history.
    pub fn event(mut self, word: &'static str) -> Step {
        self.events.push(word);
        self
    }

    /// Adds the end of an attempt to the history.
    pub fn ended(mut self, ended: Option<Ended>) -> Step {
        self.ended.extend(ended);
        self
    }
}

/// Judges `event` for what is stored.
///
/// `now` is the database's clock, read after the row's lock is held. Nothing is changed here: the caller stores
/// [`Step::next`] and the history, or nothing at all when an error comes back.
///
/// Errors: ID002 lost attempt, ID003 illegal move, ID004 no such action, ID005 not approved, ID006 too late,
/// ID007 discrepancy, ID008 held, 22023 for a value that the policy does not allow.
pub fn transition(action: Option<&Action>, event: &Event, policies: Policies, now: Time) -> Result<Step> {
    if let Event::Reserve(ask) = event {
        return reserve::reserve(action, ask, policies, now);
    }
    let action = action.ok_or_else(no_such_action)?;
    match event {
        Event::Reserve(ask) => reserve::reserve(Some(action), ask, policies, now),
        Event::Commit(commit) => attempt::commit(action, commit, policies, now),
        Event::MarkUnknown(caller) => attempt::mark_unknown(action, *caller, policies, now),
        Event::Fail(fail) => attempt::fail(action, fail, policies, now),
        Event::Renew(caller, lease) => attempt::renew(action, *caller, *lease, policies, now),
        Event::Release(caller) => attempt::release(action, *caller, policies, now),
        Event::Dispatch { caller, held } => attempt::dispatch(action, *caller, *held, policies, now),
        Event::Evidence(evidence) => reconcile::evidence(action, evidence),
        Event::Resolve(resolve) => reconcile::resolve(action, resolve, policies, now),
        Event::Escalate => reconcile::escalate(action),
        Event::Decide(decide) => reconcile::decide(action, decide, policies, now),
        Event::Reopen => approval::reopen(action, policies, now),
        Event::Approve(approve) => approval::approve(action, approve, policies, now),
        Event::Reject => approval::reject(action, policies, now),
        Event::Withdraw => approval::withdraw(action, policies, now),
        Event::Visit => expiry::visit(action, policies, now),
    }
}

/// The refusal for an action that is not in the ledger.
pub fn no_such_action() -> Error {
    Error::new(Code::NoSuchAction, "there is no such action")
        .detail("Either it was never reserved here, or its transaction has not committed or was rolled back.")
        .hint("Reserve the action and COMMIT before ending it from another session.")
}
