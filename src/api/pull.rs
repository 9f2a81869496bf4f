//! What the functions have in common that hand out actions to whoever comes by: reconcilers and pull workers.

use std::time::{Duration, Instant};

use idem_rules::action::{Action, DAY, Span, State, Time};
use idem_rules::error::{Code, Error, Result};
use idem_rules::expiry::Queue;
use idem_rules::identity::{check_action_type, check_tenant, check_text};
use idem_rules::transition::{Answer, Ask, Decision, Event, Step, transition};
use pgrx::pg_sys::Datum;
use uuid::Uuid;

use super::Judged;
use super::bind::refuse_foreign;
use super::hold::{holding, refuse_when_off};
use crate::server::{self, Call, Changed};
use crate::session;
use crate::store::apply::{apply, hold};
use crate::store::bound;
use crate::store::cursor::Cursor;
use crate::store::history::Report;
use crate::store::ledger::{Entry, Ledger, Outcome};
use crate::store::open::{OpenActions, Place};

/// Actions a call hands out unless told otherwise.
const DEFAULT_ROWS: i32 = 10;

/// Most actions that a call hands out: whoever takes more than he can do in a lease keeps them from others.
const MOST_ROWS: i32 = 1000;

/// Rows of the ledger that a call looks at for dead attempts: so many at least, …
const LOOKS: usize = 100;

/// … and then on until it has spent this time on them.
const LOOKING: Duration = Duration::from_millis(1);

/// Dead attempts that a call turns into unknown outcomes.
const LAPSES: usize = 100;

/// One call, its arguments checked: `(max, lease_seconds, action_type, tenant, worker)`.
pub(super) struct Pull<'a> {
    call: &'a Call,
    ledger: Ledger,
    pub open: OpenActions,
    max: usize,
    lease: Option<Span>,
    action_type: Option<&'a [u8]>,
    tenant: Option<&'a [u8]>,
    worker: Option<Datum>,
}

/// An action that was handed out.
pub(super) struct Granted {
    /// Its row as it was before.
    pub entry: Entry,
    /// The action as it is now.
    pub action: Action,
    /// The token of the attempt.
    pub attempt_id: Uuid,
    /// The attempt is shown its provider key when it marks its dispatch, and not before.
    pub marks_dispatch: bool,
}

impl<'a> Pull<'a> {
    pub fn read(call: &'a Call) -> Result<Pull<'a>> {
        refuse_when_off()?;
        let max = call.int(0).unwrap_or(DEFAULT_ROWS);
        if !(1..=MOST_ROWS).contains(&max) {
            let message = format!("max is {max}; it must lie between 1 and {MOST_ROWS}");
            return Err(Error::new(Code::InvalidParameter, message)
                .hint("Ask for as many as can be done within one lease."));
        }
        let action_type = call.text(2)?;
        if action_type.is_some() {
            check_action_type(action_type.as_deref())?;
        }
        let tenant = call.text(3)?;
        if tenant.is_some() {
            check_tenant(tenant.as_deref())?;
            refuse_foreign(call, call.raw(3))?;
        }
        check_text(call.name(4), call.text(4)?.as_deref())?;
        let lease = call.seconds(1)?;
        if lease == Some(0) {
            return Err(Error::new(Code::InvalidParameter, "lease_seconds must be greater than zero")
                .hint("Leave it out for the lease of each action's type."));
        }
        let pull = Pull {
            call,
            ledger: Ledger::open(call)?,
            open: OpenActions::open(call)?,
            max: max as usize,
            lease,
            action_type: action_type.map(|_| call.raw(2)),
            tenant: tenant.map(|_| call.raw(3)),
            worker: call.stored(4),
        };
        pull.notice_dead_attempts()?;
        Ok(pull)
    }

    /// True when the caller asked for actions like the one at `place`.
    pub fn wants(&self, place: &Place) -> bool {
        self.action_type.is_none_or(|wanted| wanted == place.action_type())
            && self.tenant.is_none_or(|wanted| wanted == place.tenant())
    }

    /// True when as many have been handed out as were asked for.
    pub fn is_full(&self, granted: &[Granted]) -> bool {
        granted.len() >= self.max
    }

    /// Judges what `event` makes of the action of `entry`, and stores it. `None` when that grants nothing, or when
    /// another transaction has the row: whoever has it serves it.
    pub fn take(&self, entry: Entry, event: fn(Ask) -> Event<'static>) -> Result<Option<Granted>> {
        server::serve_interrupts();
        // First: asking takes in what others changed, policies too.
        let hold = holding(self.call, entry.raw_tenant(), entry.raw_action_type())?;
        let Some(judged) = self.judged(&entry)? else { return Ok(None) };
        let attempt_id = server::random_uuid();
        let event = event(Ask {
            fingerprint: entry.action.fingerprint,
            scheme: entry.action.scheme,
            attempt_id,
            attempt_id_used: false,
            // What one type allows is no reason to refuse actions of another.
            lease: self.lease.map(|lease| lease.min(judged.policies().current.max_lease)),
            ttl: None,
            can_reconcile: false,
            carried: entry.action.flags.carried,
            held: hold.is_some(),
        });
        let Some((step, now)) = self.judge(&entry, &event, &judged)? else { return Ok(None) };
        let decision = match step.answer {
            Answer::Decided(decision, _) if decision.owns() => Some(decision),
            _ => None,
        };
        // Who carries it out stands in the ledger, who finds out in the history.
        let outcome = Outcome {
            worker: self.worker.filter(|_| decision == Some(Decision::Execute)),
            ..Outcome::default()
        };
        let report = Report {
            note: self.worker.filter(|_| decision == Some(Decision::Reconcile)),
            ..Report::default()
        };
        let changed = apply(self.call, &self.ledger, &entry, &step, outcome, report, now)?;
        if changed != Changed::Done || decision.is_none() {
            return Ok(None);
        }
        session::granted(entry.action_id, attempt_id);
        let marks_dispatch = judged.policies().current.marks_dispatch;
        Ok(step.next.map(|action| Granted { entry, action, attempt_id, marks_dispatch }))
    }

    /// The step that `event` leads to and its time; `None` when it changes nothing. Decided again once this transaction
    /// has an id, which is not taken in vain: a caller that finds nothing comes again and again, and has the row
    /// and its place; what others have is theirs.
    fn judge(&self, entry: &Entry, event: &Event, judged: &Judged) -> Result<Option<(Step, Time)>> {
        let at = |now| match transition(Some(&entry.action), event, judged.policies(), now) {
            Err(error) if error.code == Code::Held => Ok(None),
            Err(error) => Err(error),
            Ok(step) => Ok(step.next.is_some().then_some((step, now))),
        };
        if at(server::clock())?.is_none() {
            return Ok(None);
        }
        server::assign_transaction_id();
        if hold(self.call, &self.ledger, entry)? != Changed::Done {
            return Ok(None);
        }
        at(server::clock())
    }

    /// The policies of an action; `None` where they cannot be read.
    fn judged(&self, entry: &Entry) -> Result<Option<Judged>> {
        let judged = entry.action_type().and_then(|name| Judged::read(self.call, &entry.action, &name));
        judgeable(judged.map(Some))
    }

    /// The ledger's row behind a place; `None` where there is none that can be judged, or of a foreign tenant.
    pub fn entry(&self, place: &Place) -> Result<Option<Entry>> {
        if !bound::sees(self.call, Some(place.tenant()))? {
            return Ok(None);
        }
        judgeable(self.ledger.find(place.action_id()))
    }

    /// Turns attempts whose lease is over into unknown outcomes, as the sweep does: nobody waits for it.
    fn notice_dead_attempts(&self) -> Result<()> {
        let now = server::clock();
        let mut dead = Vec::new();
        self.open.each_due(Queue::Lease, now, |place| {
            dead.push(place.action_id());
            Ok(dead.len() < LAPSES)
        })?;
        for action_id in dead {
            if let Some(entry) = judgeable(self.ledger.find(action_id))? {
                self.lapse(&entry)?;
            }
        }
        self.notice_dead_first_attempts(now)
    }

    /// First attempts have no place in a queue; they lie where the sweep's cursor has not been yet.
    fn notice_dead_first_attempts(&self, now: Time) -> Result<()> {
        let visited_to = Cursor::peek(self.call, "lease")?;
        let from = if visited_to > now { now.saturating_sub(DAY) } else { visited_to };
        let (mut looks, mut reached, mut dead) = (0, from, Vec::new());
        let (mut all, began) = (true, Instant::now());
        self.ledger.each_visit(from, now, |visit_at, entry| {
            // Rows of the same microsecond belong together.
            let enough = (looks >= LOOKS && began.elapsed() > LOOKING) || dead.len() >= LAPSES;
            if enough && visit_at != reached {
                all = false;
                return Ok(false);
            }
            looks += 1;
            reached = visit_at;
            dead.extend(judgeable(entry.map(Some))?.filter(|entry: &Entry| {
                entry.action.state == State::Started && !entry.action.lease_alive(now)
            }));
            Ok(true)
        })?;
        let mut all_done = true;
        for entry in &dead {
            all_done &= self.lapse(entry)?;
        }
        // So that the next call goes on from here even where no sweep ever comes. What another transaction holds
        // is left to whoever comes next.
        if !all
            && all_done
            && let Some(cursor) =
                Cursor::lock(self.call, "lease")?.filter(|cursor| cursor.visited_to < reached)
        {
            cursor.advance(reached)?;
        }
        Ok(())
    }

    /// Takes notice of one dead attempt. False when another transaction has the row.
    fn lapse(&self, entry: &Entry) -> Result<bool> {
        server::serve_interrupts();
        let Some(judged) = self.judged(entry)? else { return Ok(true) };
        let visit = Event::Visit { open_children: false };
        let Some((step, now)) = self.judge(entry, &visit, &judged)? else { return Ok(true) };
        let changed =
            apply(self.call, &self.ledger, entry, &step, Outcome::default(), Report::default(), now)?;
        Ok(changed != Changed::Busy)
    }
}

/// A row that contradicts itself must not keep a caller from all the others; the sweep says so in the log.
fn judgeable<T>(found: Result<Option<T>>) -> Result<Option<T>> {
    match found {
        Err(error) if error.code == Code::Corrupted => Ok(None),
        other => other,
    }
}
