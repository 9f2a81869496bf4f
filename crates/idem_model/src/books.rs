//! The world's own books: what the contract's words make of what happened, kept without a look at the row's flags.

use idem_rules::action::{Action, Span, State, Time};
use idem_rules::policy::{Policies, Policy};
use idem_rules::transition::{Answer, Ask, Caller, Decision, Event, Finding, Step, Verdict};
use uuid::Uuid;

use crate::promise::Promise;
use crate::world::attempt_token;

/// The books.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Books {
    /// Every attempt that was granted, in order.
    attempts: Vec<Attempt>,
    /// Until when a reconciling attempt may be presumed alive, and whose it is.
    reconciling: Option<(Uuid, Time)>,
    /// The last fence that was handed out.
    fence: i64,
    /// First grant of each provider key.
    first_grants: Vec<(i32, Time)>,
    /// Looks that found nothing and were reported, since the latest attempt.
    looks: Vec<Time>,
    /// Until when the outcome that is open has to be resolved.
    deadline: Option<Time>,
    /// Whose commit counted, and what it made.
    committed: Option<(Option<Uuid>, Option<String>)>,
    /// Somebody said that it happened, and no person has decided since.
    positive: bool,
    /// Until when the approval holds, and of which version of the type it is.
    approved: Option<(Time, i32)>,
    /// It was withdrawn, and not reopened since.
    withdrawn: bool,
    /// Somebody was told `stopped`.
    stopped: bool,
    /// Chances that a person gave, by deciding or reopening.
    pub persons: u8,
    /// A definite failure met an outcome that was open.
    pub sticky: bool,
    /// Unknown was left by probes that found nothing.
    pub disproved: bool,
    /// Promises that were broken, one bit each.
    broken: u16,
}

/// An attempt, by the contract's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Attempt {
    lease_end: Time,
    generation: i32,
    /// It must mark its dispatch.
    marks: bool,
    settle_delay: Span,
    /// Its effect may have left the building.
    dispatched: bool,
    /// The latest of dispatch and mark.
    marked_at: Option<Time>,
    /// Its outcome is open, or it is running.
    open: bool,
    /// Nobody works for it any more, whatever its lease says.
    ended: bool,
}

/// A move, with what it was judged by.
pub struct Move<'a> {
    /// What happened.
    pub event: &'a Event<'a>,
    /// What the rules made of it.
    pub step: &'a Step,
    /// The row before.
    pub before: Option<&'a Action>,
    /// The row after.
    pub after: &'a Action,
    /// The policies it was judged by.
    pub policies: Policies<'a>,
    /// When.
    pub now: Time,
}

impl Books {
    /// How many attempts were granted.
    pub fn attempts(&self) -> u8 {
        self.attempts.len() as u8
    }

    /// True when the attempt must mark its dispatch.
    pub fn marks(&self, attempt: u8) -> bool {
        self.attempts[usize::from(attempt)].marks
    }

    /// Until when a request of this attempt, sent before the end of the lease that its worker knows, can take effect.
    pub fn takes_effect_before(&self, attempt: u8, lease_end: Time) -> Time {
        lease_end + self.attempts[usize::from(attempt)].settle_delay
    }

    /// Until when an unknown outcome has to be resolved, where one is open.
    pub fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    /// Notes that a promise was broken.
    fn broken(&mut self, promise: Promise) {
        self.broken |= 1 << promise as u16;
    }

    /// True while a promise has been kept.
    pub fn kept(&self, promise: Promise) -> bool {
        self.broken & (1 << promise as u16) == 0
    }

    /// A reconciler reported that it saw nothing, and when it looked.
    pub fn saw_nothing(&mut self, at: Time) {
        self.looks.push(at);
        self.looks.sort_unstable();
    }

    /// An effect took place, the one with this number.
    pub fn effect(&mut self, number: u8, counts: bool) {
        if counts && number > 1 + self.persons {
            self.broken(Promise::OneEffect);
        }
        if self.stopped {
            self.broken(Promise::Stopped);
        }
    }

    /// Enters a move, and notes what it broke.
    pub fn enter(&mut self, made: &Move, effects: u8) {
        match (made.event, made.step.answer) {
            (Event::Reserve(ask), Answer::Decided(decision, _)) => self.asked(ask, decision, made),
            (Event::Commit(commit), Answer::Committed) => self.commits(commit.caller, made),
            (Event::Commit(_), Answer::Superseded) => self.positive = true,
            (Event::MarkUnknown(caller), _) if made.step.next.is_some() => {
                let attempt = self.attempt(*caller);
                attempt.dispatched = true;
                attempt.marked_at = Some(made.now);
                attempt.ended = true;
            }
            (Event::Fail(fail), _) if made.step.next.is_some() => self.gives_up(fail.caller, made),
            (Event::Release(caller), _) if made.step.next.is_some() => self.gives_up(*caller, made),
            (Event::Renew(caller, _), Answer::Lease(until)) => match &mut self.reconciling {
                Some((token, end)) if *token == caller.attempt_id => *end = until,
                _ => self.attempt(*caller).lease_end = until,
            },
            (Event::Dispatch { caller, .. }, _) => {
                self.check_approval(made);
                let attempt = self.attempt(*caller);
                attempt.dispatched = true;
                attempt.marked_at = Some(made.now);
                if made.now >= attempt.lease_end {
                    self.broken(Promise::OneLease);
                }
            }
            (Event::Evidence(evidence), _) if evidence.finding.is_positive() => {
                self.positive = true;
                self.attempt(evidence.caller).dispatched = true;
            }
            (Event::Escalate, _) => self.reconciling = None,
            (Event::Resolve(resolve), _) => self.resolves(resolve.finding, made),
            (Event::Approve(_), _) => {
                self.approved =
                    made.after.approval_expires_at.map(|end| (end, made.policies.current.version));
            }
            (Event::Withdraw, answer) => {
                self.withdrawn = true;
                self.stopped |= answer == Answer::Stopped;
                if answer == Answer::Stopped && effects > self.persons {
                    self.broken(Promise::Stopped);
                }
            }
            (Event::Decide(decide), _) => {
                self.person();
                self.positive = false;
                let running = [State::Started, State::Unknown, State::Retryable];
                if decide.verdict == Verdict::Retry
                    && !made.before.is_some_and(|row| running.contains(&row.state))
                {
                    (self.withdrawn, self.approved) = (false, None);
                }
                self.committed = committed(made.after);
            }
            (Event::Reopen, _) => {
                self.person();
                (self.withdrawn, self.approved) = (false, None);
            }
            _ => {}
        }
        self.compare(made, effects);
    }

    fn attempt(&mut self, caller: Caller) -> &mut Attempt {
        let n = (0..self.attempts.len()).find(|n| attempt_token(*n as u8) == caller.attempt_id);
        &mut self.attempts[n.expect("who reports was granted an attempt")]
    }

    /// A person answers for what comes now.
    fn person(&mut self) {
        self.persons += 1;
        self.stopped = false;
        self.close();
    }

    /// No outcome is open any more, and nobody is at it.
    fn close(&mut self) {
        for attempt in &mut self.attempts {
            (attempt.open, attempt.ended) = (false, true);
        }
        self.reconciling = None;
        self.deadline = None;
        self.looks.clear();
    }

    /// Who may be presumed alive.
    fn living(&self, now: Time) -> Option<Uuid> {
        let attempt = self.attempts.iter().rposition(|attempt| !attempt.ended && now < attempt.lease_end);
        let reconciler = self.reconciling.filter(|(_, end)| now < *end);
        attempt.map(|n| attempt_token(n as u8)).or(reconciler.map(|(token, _)| token))
    }

    fn asked(&mut self, ask: &Ask, decision: Decision, made: &Move) {
        if !decision.owns() {
            return;
        }
        if decision == Decision::Resume {
            self.check_approval(made);
            return;
        }
        if self.living(made.now).is_some() {
            self.broken(Promise::OneLease);
        }
        if made.after.fence <= self.fence {
            self.broken(Promise::Fence);
        }
        self.fence = made.after.fence;
        if decision == Decision::Reconcile {
            let end = made.after.reconcile_lease_expires_at.expect("a reconciling attempt has a lease");
            self.reconciling = Some((ask.attempt_id, end));
            return;
        }
        let lease_end = made.after.lease_expires_at.expect("an attempt has a lease");
        self.check_approval(made);
        self.check_repeat(lease_end, made);
        if self.positive {
            self.broken(Promise::Overruled);
        }
        if self.stopped {
            self.broken(Promise::Stopped);
        }
        let generation = made.after.generation;
        if !self.first_grants.iter().any(|(known, _)| *known == generation) {
            self.first_grants.push((generation, made.now));
        }
        let policy = made.policies.current;
        let attempt = Attempt {
            lease_end,
            generation,
            marks: policy.marks_dispatch,
            settle_delay: policy.settle_delay,
            dispatched: !policy.marks_dispatch,
            marked_at: None,
            open: true,
            ended: false,
        };
        self.attempts.push(attempt);
        self.reconciling = None;
        self.looks.clear();
        if self.attempts.iter().filter(|attempt| attempt.open).count() == 1 {
            self.deadline = None;
        }
    }

    /// No effect starts while an open outcome forbids it: neither the class nor the provider's window allows it.
    fn check_repeat(&mut self, lease_end: Time, made: &Move) {
        let Policies { granted, current } = made.policies;
        let free = granted.class.repeats_freely() && current.class.repeats_freely();
        let window = granted.provider_key_window.min(current.provider_key_window);
        let first =
            |attempt: &Attempt| self.first_grants.iter().find(|(known, _)| *known == attempt.generation);
        let harm = self.attempts.iter().filter(|attempt| attempt.open && attempt.dispatched).any(|attempt| {
            let end = first(attempt).map_or(0, |(_, at)| at + window);
            window == 0 || attempt.generation != made.after.generation || lease_end > end
        });
        if !free && harm {
            self.broken(Promise::Evidence);
        }
    }

    fn check_approval(&mut self, made: &Move) {
        let Policies { granted, current } = made.policies;
        let needed = granted.requires_approval || current.requires_approval;
        let under = match made.step.answer {
            Answer::Decided(Decision::Execute, _) => current,
            _ => granted,
        };
        let valid = self.approved.is_some_and(|(end, version)| made.now < end && version == under.version);
        if self.withdrawn || (needed && !valid) {
            self.broken(Promise::Approval);
        }
    }

    fn commits(&mut self, caller: Caller, made: &Move) {
        if self.living(made.now).is_some_and(|owner| owner != caller.attempt_id) {
            self.broken(Promise::Owner);
        }
        self.close();
        self.committed = committed(made.after);
    }

    /// An attempt definitely had no effect. While another one's outcome is open, that is no news of the action.
    fn gives_up(&mut self, caller: Caller, made: &Move) {
        let attempt = self.attempt(caller);
        (attempt.open, attempt.ended) = (false, true);
        let open = self.attempts.iter().any(|attempt| attempt.open);
        self.sticky |= open;
        if made.after.state == State::Unknown {
            return;
        }
        if open {
            self.broken(Promise::Evidence);
        }
        self.close();
    }

    fn resolves(&mut self, finding: Finding, made: &Move) {
        self.reconciling = None;
        match made.after.state {
            State::Committed => {
                self.close();
                self.committed = self.committed.take().or(committed(made.after));
            }
            State::Retryable | State::Failed
                if made.before.is_some_and(|row| row.state == State::Unknown) =>
            {
                if finding != Finding::NotApplied || !self.is_disproved(made.policies.granted) {
                    self.broken(Promise::Evidence);
                }
                self.disproved = true;
                self.close();
            }
            _ => {}
        }
    }

    /// True when enough looks found nothing, far enough apart, after every effect had time to show.
    fn is_disproved(&self, granted: &Policy) -> bool {
        let open = self.attempts.iter().filter(|attempt| attempt.open);
        let shown_by = open.map(|attempt| {
            attempt.settle_delay + attempt.marked_at.map_or(attempt.lease_end, |at| at.max(attempt.lease_end))
        });
        let settled_at = shown_by.max().unwrap_or(0);
        let (mut agreeing, mut last) = (0, None);
        for look in self.looks.iter().filter(|look| **look >= settled_at) {
            if last.is_none_or(|last| look - last >= granted.probe_interval) {
                (agreeing, last) = (agreeing + 1, Some(*look));
            }
        }
        agreeing >= granted.probes_required
    }

    /// Compares the row after a move with the books.
    fn compare(&mut self, made: &Move, effects: u8) {
        let row = made.after;
        if self.committed.is_some() && self.committed != committed(row) {
            self.broken(Promise::Committed);
        }
        match row.state {
            State::Unknown => {
                let ended_at = match made.before {
                    Some(before) if before.state == State::Started => before.lease_expires_at,
                    _ => None,
                };
                let ended_at = ended_at.map_or(made.now, |end| end.min(made.now));
                self.deadline.get_or_insert(ended_at + made.policies.granted.resolve_deadline);
            }
            State::Failed | State::Rejected | State::Retryable if !row.flags.discrepancy => {
                if self.positive {
                    self.broken(Promise::Overruled);
                }
                if effects > 0 && self.persons == 0 {
                    self.broken(Promise::Denied);
                }
            }
            _ => {}
        }
        // What goes back to its approver must have left nothing behind.
        if row.state == State::Proposed
            && self.attempts.iter().any(|attempt| attempt.open && attempt.dispatched)
        {
            self.broken(Promise::Evidence);
        }
        if row.state.is_terminal() || row.state == State::Proposed {
            self.close();
        }
    }
}

fn committed(row: &Action) -> Option<(Option<Uuid>, Option<String>)> {
    (row.state == State::Committed).then(|| (row.attempt_id, row.resource_id.clone()))
}
