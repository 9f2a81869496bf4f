//! The one transition function: every move of an action's state goes through [`transition`].
//!
//! It takes what is stored, what happened, the policies and the time; it returns what must be stored and what
//! the caller is told. The database code applies what it returns and decides nothing itself.

use uuid::Uuid;

use crate::action::{Action, Span, State, Time};
use crate::error::{Code, Error, Result};
pub use crate::event::{
    Approve, Ask, Caller, Commit, Decide, Event, Evidence, Fail, Finding, Person, Proof, Resolve, Standing,
    Verdict,
};
use crate::policy::Policies;
use crate::{approval, attempt, carry, expiry, reconcile, reserve, restore};

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
    match event {
        Event::Reserve(ask) => return reserve::reserve(action, ask, policies, now),
        Event::Propose(ask) => return reserve::propose(action, ask, policies, now),
        _ => {}
    }
    let action = action.ok_or_else(no_such_action)?;
    match event {
        Event::Reserve(ask) => reserve::reserve(Some(action), ask, policies, now),
        Event::Propose(ask) => reserve::propose(Some(action), ask, policies, now),
        Event::Commit(commit) => attempt::commit(action, commit, policies, now),
        Event::MarkUnknown(caller) => attempt::mark_unknown(action, *caller, policies, now),
        Event::Fail(fail) => attempt::fail(action, fail, policies, now),
        Event::Renew(caller, lease) => attempt::renew(action, *caller, *lease, policies, now),
        Event::Release(caller) => attempt::release(action, *caller, policies, now),
        Event::Dispatch { caller, held } => attempt::dispatch(action, *caller, *held, policies, now),
        Event::Evidence(evidence) => reconcile::evidence(action, evidence),
        Event::Reconcile(ask) => reserve::take_over(action, ask, policies, now),
        Event::Resolve(resolve) => reconcile::resolve(action, resolve, policies, now),
        Event::Restore => Ok(restore::restore(action, policies, now)),
        Event::Escalate => reconcile::escalate(action),
        Event::Decide(decide) => reconcile::decide(action, decide, policies, now),
        Event::Carry { here } => carry::carry(action, *here, policies, now),
        Event::LetGo => Ok(carry::let_go(action)),
        Event::Reopen => approval::reopen(action, policies, now),
        Event::Approve(approve) => approval::approve(action, approve, policies, now),
        Event::Reject => approval::reject(action, policies, now),
        Event::Withdraw => approval::withdraw(action, "withdrawn", policies, now),
        Event::Cancel => approval::withdraw(action, "cancelled", policies, now),
        Event::Visit { open_children } => expiry::visit(action, *open_children, policies, now),
    }
}

/// The refusal for an action that is not in the ledger.
pub fn no_such_action() -> Error {
    Error::new(Code::NoSuchAction, "there is no such action")
        .detail("Either it was never reserved here, or its transaction has not committed or was rolled back.")
        .hint("Reserve the action and COMMIT before ending it from another session.")
}
