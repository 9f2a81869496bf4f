//! idem_sweep: what is due by the clock alone, in one bounded batch

use idem_rules::action::{DAY, SECOND, State, Time};
use idem_rules::compensation::is_open;
use idem_rules::error::{Code, Error, Result};
use idem_rules::expiry::{Open, Queue, REMOVE_AFTER, SCRUB_AFTER, open};
use idem_rules::inbox::pass;
use idem_rules::transition::{Answer, Event, transition};
use pgrx::pg_sys::Datum;
use uuid::Uuid;

use super::{Judged, leave_out};
use crate::server::{self, Call, Changed, Value};
use crate::settings;
use crate::store::apply::apply;
use crate::store::compensation;
use crate::store::cursor::Cursor;
use crate::store::history::{self, Report};
use crate::store::inbox::Inbox;
use crate::store::ledger::{Entry, Ledger, Outcome};
use crate::store::lineage;
use crate::store::open::OpenActions;
use crate::store::outbox::Outbox;

/// Rows a call visits unless told otherwise.
const DEFAULT_ROWS: i32 = 1000;

/// A clock that went back makes a cursor start again this much earlier.
const REWIND: Time = DAY;

/// A row that another transaction holds is looked at again after this time.
const BUSY_RETRY: Time = 5 * SECOND;

/// A record that is kept for others, or while retention rests, is looked at again after this time.
const KEPT_RETRY: Time = 3600 * SECOND;

/// Its name in the log.
const SWEEP: &str = "a sweep";

/// What a visit came to.
enum Visited {
    /// The row moved on, here or by somebody else.
    Moved,
    /// Nothing was due.
    NotDue,
    /// Something that belongs to it is still there; looked at again at this time.
    Kept(Time),
    /// Another transaction that has not ended holds the row.
    Busy,
}

/// The place of a record that outlives its retention because of others, until `again`.
fn kept(now: Time, again: Time) -> Open {
    Open { queue: Queue::Expiry, due_at: now, visit_at: Some(again) }
}

/// What a batch did.
#[derive(Default)]
struct Swept {
    visited: usize,
    unknown: usize,
    scrubbed: usize,
    removed: usize,
}

/// `idem_sweep(max_rows)`
pub fn idem_sweep(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_sweep()");
    sweep(call, true)
}

/// `idem_sweep_lapses(max_rows)`: a sweep that takes nothing away, for a clock that cannot be trusted.
pub fn idem_sweep_lapses(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_sweep_lapses()");
    sweep(call, false)
}

fn sweep(call: &Call, retention: bool) -> Result<Datum> {
    let max_rows = call.int(0).unwrap_or(DEFAULT_ROWS);
    if max_rows < 1 {
        let message = format!("max_rows is {max_rows}; it must be at least 1");
        return Err(Error::new(Code::InvalidParameter, message).hint("Leave it out for batches of 1000."));
    }
    // Looked at before this transaction takes an id of its own, which would count as running.
    let began = server::clock();
    let running = server::oldest_running();
    let mut sweep =
        Sweep { call, retention, began, running, left: max_rows as usize, swept: Swept::default() };
    // One sweep at a time: two could wait for what the other has noted.
    if Cursor::lock(call, "lease")?.is_none() {
        return sweep.swept.row(call);
    }
    // Dead attempts first: somebody may be waiting for them. The settled pass catches rows whose transaction
    // committed after the eager one had come by.
    sweep.follow("lease", 0, false)?;
    sweep.open_actions()?;
    sweep.follow("settled", 0, true)?;
    if retention {
        sweep.follow("scrub", SCRUB_AFTER, true)?;
        sweep.follow("remove", REMOVE_AFTER, true)?;
        sweep.inbox()?;
    }
    sweep.swept.row(call)
}

impl Swept {
    fn row(&self, call: &Call) -> Result<Datum> {
        let counts = [self.visited, self.unknown, self.scrubbed, self.removed];
        call.row(counts.map(|count| Value::Big(count as i64)))
    }
}

struct Sweep<'a> {
    call: &'a Call,
    /// False: what is past its retention stays, as if something that belongs to it had not ended.
    retention: bool,
    began: Time,
    running: (u64, u64),
    left: usize,
    swept: Swept,
}

impl Sweep<'_> {
    /// Follows the ledger's `visit_at` with the cursor of `purpose`, staying `behind` the clock.
    fn follow(&mut self, purpose: &str, behind: Time, settled: bool) -> Result<()> {
        if self.left == 0 {
            return Ok(());
        }
        let now = self.began;
        let Some(mut cursor) = Cursor::lock(self.call, purpose)? else { return Ok(()) };
        let horizon = if settled { cursor.horizon(now, self.running) } else { now };
        let up_to = horizon.saturating_sub(behind);
        let from = match cursor.visited_to > now.saturating_sub(behind) {
            true => now.saturating_sub(behind).saturating_sub(REWIND),
            false => cursor.visited_to,
        };
        let ledger = Ledger::open(self.call)?;
        let mut batch: Vec<(Time, Result<Entry>)> = Vec::new();
        let most = self.left;
        ledger.each_visit(from, up_to, |visit_at, entry| {
            // Rows of the same microsecond belong together: the cursor cannot stop between them.
            let full = batch.len() >= most && batch.last().is_none_or(|(last, _)| *last != visit_at);
            if !full {
                batch.push((visit_at, entry));
            }
            Ok(!full)
        })?;
        let visited_to = match batch.last() {
            Some((last, _)) if batch.len() >= most => *last,
            _ => up_to.max(from),
        };
        self.left = self.left.saturating_sub(batch.len());
        for (_, entry) in batch {
            let passed = entry.and_then(|entry| self.visit_passing(&ledger, &entry));
            leave_out(passed, SWEEP)?;
        }
        cursor.advance(visited_to)
    }

    /// Visits the open actions whose time has come.
    fn open_actions(&mut self) -> Result<()> {
        if self.left == 0 {
            return Ok(());
        }
        let open = OpenActions::open(self.call)?;
        let ledger = Ledger::open(self.call)?;
        let due = open.to_visit(server::clock(), self.left)?;
        self.left = self.left.saturating_sub(due.len());
        for action_id in due {
            let visited = match ledger.find(action_id) {
                Ok(Some(entry)) => self.visit_open(&ledger, &open, entry),
                Ok(None) => {
                    open.forget(action_id);
                    Ok(())
                }
                Err(error) => Err(error),
            };
            if matches!(&visited, Err(error) if error.code == Code::Corrupted) {
                open.put_off(action_id, self.began.saturating_add(DAY));
            }
            leave_out(visited, SWEEP)?;
        }
        Ok(())
    }

    /// Visits one row that has a place among the open actions, and mends the place if it was out of date.
    fn visit_open(&mut self, ledger: &Ledger, open_actions: &OpenActions, entry: Entry) -> Result<()> {
        let (action_id, now) = (entry.action_id, server::clock());
        let (tenant, action_type) = (entry.tenant(), entry.action_type_datum());
        let place = match self.visit(ledger, &entry)? {
            Visited::Moved => return Ok(()),
            Visited::NotDue => open(&entry.action, now),
            Visited::Kept(again) => Some(kept(now, again)),
            Visited::Busy => {
                let later = now.saturating_add(BUSY_RETRY);
                Some(Open { queue: Queue::Lease, due_at: now, visit_at: Some(later) })
            }
        };
        open_actions.mend(action_id, place, tenant, action_type);
        Ok(())
    }

    /// Visits one row that a cursor came to, and notes it if no cursor will meet it again in time.
    fn visit_passing(&mut self, ledger: &Ledger, entry: &Entry) -> Result<()> {
        let now = server::clock();
        let place = match self.visit(ledger, entry)? {
            Visited::Moved => None,
            Visited::NotDue => open(&entry.action, now),
            Visited::Kept(again) => Some(kept(now, again)),
            // Somebody is changing the row. If that comes to nothing the row is due still, and this cursor has
            // passed it: it gets a place of its own.
            Visited::Busy => Some(Open { queue: Queue::Lease, due_at: now, visit_at: Some(now) }),
        };
        if let Some(place) = place {
            let open = OpenActions::open(self.call)?;
            open.note(entry.action_id, place, entry.tenant(), entry.action_type_datum());
        }
        Ok(())
    }

    /// Forgets messages that consumers have seen long enough ago, on the next pages of the inbox.
    fn inbox(&mut self) -> Result<()> {
        if self.left == 0 {
            return Ok(());
        }
        let Some(cursor) = Cursor::lock(self.call, "inbox")? else { return Ok(()) };
        let retention = settings::inbox_retention();
        let Some(pass) = pass(cursor.visited_to, cursor.page(), retention, self.began) else { return Ok(()) };
        let forgotten = Inbox::open(self.call)?.forget(pass.up_to, pass.page, self.left);
        self.left -= forgotten.looked_at;
        self.swept.visited += forgotten.looked_at;
        self.swept.removed += forgotten.messages;
        cursor.turn(pass.began_for, forgotten.next)
    }

    fn visit(&mut self, ledger: &Ledger, entry: &Entry) -> Result<Visited> {
        server::serve_interrupts();
        self.swept.visited += 1;
        let now = server::clock();
        let judged = Judged::read(self.call, &entry.action, &entry.action_type()?)?;
        let kept = match entry.action.retention_over(now) {
            true => self.kept_until(ledger, entry, now)?,
            false => None,
        };
        let open_children = kept.is_some();
        let step = transition(Some(&entry.action), &Event::Visit { open_children }, judged.policies(), now)?;
        let changed = match step.answer {
            Answer::Nothing => return Ok(kept.map_or(Visited::NotDue, Visited::Kept)),
            Answer::Remove => ledger.remove(entry),
            // Somebody has its place, and a sweep waits for nobody.
            _ if OpenActions::open(self.call)?.hold(entry.action_id) != Changed::Done => Changed::Busy,
            _ => apply(self.call, ledger, entry, &step, Outcome::default(), Report::default(), now)?,
        };
        match changed {
            Changed::Done => self.count(entry.action_id, step.answer)?,
            Changed::Busy => return Ok(Visited::Busy),
            // Whoever changed it has also given it its place.
            Changed::Gone => {}
        }
        Ok(Visited::Moved)
    }

    /// When a record past its retention has to be looked at again; `None` when nothing keeps it.
    fn kept_until(&self, ledger: &Ledger, entry: &Entry, now: Time) -> Result<Option<Time>> {
        let soon = now.saturating_add(KEPT_RETRY);
        let action_id = entry.action_id;
        if !self.retention || self.has_open_children(ledger, action_id)? || self.has_a_message(action_id)? {
            return Ok(Some(soon));
        }
        // As long as the parent is there, it must be known that it has been compensated.
        let parent = match entry.action.state {
            State::Expired => self.parent(ledger, action_id)?,
            _ => None,
        };
        Ok(parent.map(|parent| parent.action.expires_at.map_or(soon, |ends| ends.max(soon))))
    }

    /// True while something that belongs to the action has not ended.
    fn has_open_children(&self, ledger: &Ledger, action_id: Uuid) -> Result<bool> {
        let Some(link) = compensation::live(self.call, action_id)? else { return Ok(false) };
        Ok(ledger.find(link.action_id)?.is_some_and(|child| is_open(child.action.state)))
    }

    /// True while a message that carries the action, or did when it ended, is not acknowledged: its relay will ask what
    /// became of it.
    fn has_a_message(&self, action_id: Uuid) -> Result<bool> {
        for (outbox, message_id) in lineage::carriers(self.call, action_id)? {
            if Outbox::may_have(self.call, outbox, message_id, action_id)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The action that `action_id` stands for the compensation of.
    fn parent(&self, ledger: &Ledger, action_id: Uuid) -> Result<Option<Entry>> {
        match compensation::of(self.call, action_id)? {
            Some(link) if link.is_live => ledger.find(link.parent_id),
            _ => Ok(None),
        }
    }

    fn count(&mut self, action_id: Uuid, answer: Answer) -> Result<()> {
        match answer {
            Answer::State(State::Unknown) => self.swept.unknown += 1,
            Answer::State(State::Expired) => {
                history::scrub(self.call, action_id)?;
                self.swept.scrubbed += 1;
            }
            Answer::Remove => {
                history::remove(self.call, action_id)?;
                compensation::remove(self.call, action_id)?;
                lineage::remove(self.call, action_id)?;
                OpenActions::open(self.call)?.forget(action_id);
                self.swept.removed += 1;
            }
            _ => {}
        }
        Ok(())
    }
}
