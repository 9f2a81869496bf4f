//! Retention: how long a record is kept, when its tombstone goes, and when the worker has to come by.

use crate::action::{Action, DAY, Flags, Span, State, Time};
use crate::error::Result;
use crate::lease::{ever_dispatched, lapse};
use crate::policy::{Policies, Policy};
use crate::reserve::rejected;
use crate::transition::{Answer, Step};

/// The scrubbing cursor passes a row this long after its `visit_at`.
pub const SCRUB_AFTER: Span = 30 * DAY;

/// The removing cursor passes a row this long after its `visit_at`.
pub const REMOVE_AFTER: Span = 120 * DAY;

/// A cursor that comes by this much late is early enough; a row due sooner is kept track of by itself.
const SLACK: Span = DAY;

/// The same for a tombstone, which holds nothing that would have to go in time.
const TOMBSTONE_SLACK: Span = 31 * DAY;

/// The action in a terminal state, with its retention counted from `now`.
pub(crate) fn end(action: &Action, state: State, granted: &Policy, now: Time) -> Action {
    let ttl = action.ttl.map_or(granted.ttl, |ttl| ttl.max(granted.ttl));
    Action {
        state,
        ended_at: Some(now),
        expires_at: Some(now.saturating_add(ttl)),
        // Of no meaning any more. But the ledger keeps it in front of what a commit changes, and only what comes after
        // the first difference is written to the log again.
        lease_expires_at: action.lease_expires_at.filter(|_| state == State::Committed),
        due_at: None,
        deadline_at: None,
        reconcile_lease_expires_at: None,
        flags: Flags { escalated: false, carried: false, ..action.flags },
        ..action.clone()
    }
}

/// The worker came by: whatever is due by the clock alone.
///
/// started past its lease → unknown; proposed or approved past its time → rejected; unknown past its deadline →
/// escalated; terminal past its retention → expired; a tombstone past its time → [`Answer::Remove`]. A record
/// with open children, or that a person has to decide on, stays.
pub(crate) fn visit(action: &Action, open_children: bool, policies: Policies, now: Time) -> Result<Step> {
    let granted = policies.granted;
    match action.state {
        State::Started
            if !action.lease_alive(now) && action.flags.withdrawn && !ever_dispatched(action, granted) =>
        {
            let step = rejected(action, policies, now, "withdrawn");
            Ok(Step { answer: Answer::State(State::Rejected), ..step })
        }
        State::Started if !action.lease_alive(now) => {
            let (next, ended) = lapse(action, policies, now);
            Ok(Step::to(next, Answer::State(State::Unknown)).ended(ended).event("lapsed"))
        }
        State::Proposed | State::Approved if lapsed(action, now) => {
            let next = end(action, State::Rejected, granted, now);
            Ok(Step::to(next, Answer::State(State::Rejected)).event("lapsed"))
        }
        State::Unknown if action.needs_review(now) && !action.flags.escalated => {
            let flags = Flags { escalated: true, ..action.flags };
            let next = Action { flags, ..action.clone() };
            Ok(Step::to(next, Answer::State(State::Unknown)).event("escalated"))
        }
        _ if open_children || action.undecided() => Ok(Step::unchanged(Answer::Nothing)),
        State::Expired if action.retention_over(now) => Ok(Step::unchanged(Answer::Remove)),
        State::Committed | State::Failed | State::Rejected if action.retention_over(now) => {
            // Expiry is judged at read time, so the tombstone's time began when retention ended, however late
            // the worker is.
            let retention_end = action.expires_at.unwrap_or(now);
            let tombstone = Action {
                state: State::Expired,
                expires_at: Some(retention_end.saturating_add(granted.tombstone_ttl)),
                lease_expires_at: None,
                resource_id: None,
                ..action.clone()
            };
            Ok(Step::to(tombstone, Answer::State(State::Expired)))
        }
        _ => Ok(Step::unchanged(Answer::Nothing)),
    }
}

fn lapsed(action: &Action, now: Time) -> bool {
    action.approval_expires_at.is_some_and(|lapses| lapses <= now)
}

/// What an action off the hot path is waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// An approver.
    Approval,
    /// Somebody to carry it out.
    Execution,
    /// Its client: nobody else has its request.
    Client,
    /// The end of its lease.
    Lease,
    /// A reconciler.
    Reconciliation,
    /// A person.
    Review,
    /// The end of its retention, or of its tombstone.
    Expiry,
}

/// Every queue.
pub const QUEUES: [Queue; 7] = [
    Queue::Approval,
    Queue::Execution,
    Queue::Client,
    Queue::Lease,
    Queue::Reconciliation,
    Queue::Review,
    Queue::Expiry,
];

impl Queue {
    /// The word in the table.
    pub const fn word(self) -> &'static str {
        match self {
            Queue::Approval => "approval",
            Queue::Execution => "execution",
            Queue::Client => "client",
            Queue::Lease => "lease",
            Queue::Reconciliation => "reconciliation",
            Queue::Review => "review",
            Queue::Expiry => "expiry",
        }
    }
}

/// A place in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Open {
    /// What it waits for.
    pub queue: Queue,
    /// When it is due there.
    pub due_at: Time,
    /// When the worker has to look at it, whoever else comes before.
    pub visit_at: Option<Time>,
}

/// The place that an action has in the table of open actions at `now`; `None` when it needs none.
///
/// A first attempt needs none: the worker comes by at its `visit_at`. An ended action needs none either when the
/// retention cursors come by in time.
pub fn open(action: &Action, now: Time) -> Option<Open> {
    let at = |queue, due_at: Option<Time>, visit_at| Open { queue, due_at: due_at.unwrap_or(now), visit_at };
    if action.flags.discrepancy {
        let visit_at = match action.state {
            State::Started => Some(action.lease_expires_at),
            State::Unknown if !action.flags.escalated => Some(action.deadline_at),
            State::Proposed | State::Approved | State::Expired => None,
            _ => Some(None),
        };
        if let Some(visit_at) = visit_at {
            let lease = action.lease_expires_at.filter(|_| action.state == State::Started);
            return Some(at(Queue::Review, lease.or(action.due_at), visit_at));
        }
    }
    if action.state == State::Committed && action.flags.needs_compensation {
        return Some(at(Queue::Review, action.ended_at, action.expires_at));
    }
    match action.state {
        State::Proposed => Some(at(Queue::Approval, Some(action.created_at), action.approval_expires_at)),
        State::Approved => Some(at(Queue::Execution, Some(now), action.approval_expires_at)),
        // Not where the visit comes later than the lease ends: after a proposal it may be an hour away.
        State::Started if action.lease_expires_at == Some(action.visit_at) => None,
        State::Started => Some(at(Queue::Lease, action.lease_expires_at, action.lease_expires_at)),
        State::Unknown if action.flags.escalated => Some(at(Queue::Review, action.due_at, None)),
        // Not due again before whoever is at it has had his time.
        State::Unknown => {
            let due_at = action.due_at.max(action.reconcile_lease_expires_at);
            Some(at(Queue::Reconciliation, due_at, action.deadline_at))
        }
        // Nobody but the message's relay can start it, and the message stands in a queue of its own.
        State::Retryable if action.flags.carried => None,
        State::Retryable => Some(at(Queue::Execution, action.due_at, None)),
        State::Committed | State::Failed | State::Rejected | State::Expired => {
            let (passes, slack) = match action.state {
                State::Expired => (action.visit_at.saturating_add(REMOVE_AFTER), TOMBSTONE_SLACK),
                _ => (action.visit_at.saturating_add(SCRUB_AFTER), SLACK),
            };
            let due_at = action.expires_at?;
            // The first visit, at visit_at, comes whatever else happens; until then nothing has to be noted.
            let visited = now >= action.visit_at;
            let in_time = due_at <= passes && passes <= due_at.saturating_add(slack) && now < passes;
            (visited && !in_time).then_some(Open { queue: Queue::Expiry, due_at, visit_at: Some(due_at) })
        }
    }
}
