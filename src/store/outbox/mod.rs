//! Outboxes: tables that belong to users, and the options the extension keeps of them in `idem_outbox`.
//!
//! A message stands in one place from put to ack. Its first claim updates it heap-only: nothing that an index knows
//! changes (`due_at` stays NULL). What fails leaves that path by getting a `due_at`, under which a partial index finds
//! it again, so neither failing messages nor dead letters are passed by those who look for new ones.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use idem_rules::action::Time;
use idem_rules::error::{Code, Error, Result};
use pgrx::pg_sys::Datum;
use uuid::Uuid;

use crate::server::query::{self, Relation};
use crate::server::user_table::{self, Look, Privilege};
use crate::server::{self, Call, Values};

mod cursor;
mod message;
mod registry;
mod rows;
mod statements;

pub use cursor::Cursor;
pub use message::{Claiming, Content, Found, New};
use registry::options;
pub use registry::{Options, check_columns, register};
use rows::Rows;
use statements::Statements;

/// One outbox, as this session knows it.
pub struct Outbox {
    /// The table.
    pub table: Relation,
    name: String,
    /// Its options.
    pub options: Options,
    version: u64,
    generation: u64,
    /// Read under a snapshot that may be older than what has been said about the table.
    provisional: bool,
    /// Where looking for new messages starts.
    pub cursor: Cursor,
    statements: Statements,
    /// The rows themselves, where no statement is needed.
    rows: Option<Rows>,
}

thread_local! {
    static KNOWN: RefCell<HashMap<Relation, Rc<Outbox>>> = RefCell::default();
}

/// Moves the cursors that a transaction of this session's has moved; not those of one that was rolled back.
pub fn transaction_ended(committed: bool) {
    KNOWN.with_borrow(|known| {
        for cursor in known.values().map(|outbox| &outbox.cursor) {
            if let Some(place) = cursor.promised.take().filter(|_| committed) {
                cursor.low.set(place);
            }
        }
    });
}

impl Outbox {
    /// The outbox that a call's first argument names, with the caller's privileges checked.
    ///
    /// Errors: 22004; 42809 for a table that is no outbox. Raises 42P01, 42501.
    pub fn open(call: &Call, privilege: Privilege) -> Result<Rc<Outbox>> {
        Outbox::of(call, user_table::user_table(&call.required_text(0)?, privilege)?)
    }

    /// Whether `table` still has the message `id`, not acknowledged, as one that carries `action_id`. Waits for nobody: a
    /// table that is being changed, or does not fit any more, may have it.
    pub fn may_have(call: &Call, table: Relation, id: Uuid, action_id: Uuid) -> Result<bool> {
        match user_table::lock_for_a_look(table) {
            Look::Gone => return Ok(false),
            Look::Busy => return Ok(true),
            Look::Locked => {}
        }
        let outbox = match Outbox::of(call, table) {
            Err(error) if error.code == Code::WrongObject => return Ok(true),
            outbox => outbox?,
        };
        let arguments = [id, action_id].map(|id| Some(server::uuid_datum(id)));
        query::as_owner(table, || Ok(!outbox.statements.undelivered.run(&arguments).is_empty()))
    }

    /// The outbox `table`, which is locked. Errors: 42809 for a table that is no outbox.
    fn of(call: &Call, table: Relation) -> Result<Rc<Outbox>> {
        let (version, generation) = (user_table::version_of(table), server::generation());
        let repeatable = server::repeatable_read();
        let known = KNOWN.with_borrow(|known| known.get(&table).cloned()).filter(|known| {
            known.version == version && known.generation == generation && known.provisional <= repeatable
        });
        if let Some(known) = known {
            return Ok(known);
        }
        let name = user_table::qualified_name(table)?;
        let options = options(call, table)?.ok_or_else(|| {
            Error::new(Code::WrongObject, format!("{name} is not an outbox"))
                .hint("Make one with idem_create_outbox, which also takes a fitting table of yours as it is.")
        })?;
        check_columns(call, table, &name)?;
        let outbox = Rc::new(Outbox {
            table,
            statements: Statements::new(&name, &options),
            rows: Rows::of(table),
            name,
            options,
            version,
            // Reading the options may itself have been the session's first look at them.
            generation: server::generation(),
            provisional: repeatable,
            cursor: Cursor {
                low: Cell::new(i64::MIN),
                next: Cell::new(None),
                promised: Cell::new(None),
                claims: Cell::new(0),
                looked_from_start: Cell::new(server::clock()),
                looked_for_retries: Cell::new(Time::MIN),
            },
        });
        KNOWN.with_borrow_mut(|known| known.insert(table, Rc::clone(&outbox)));
        Ok(outbox)
    }

    /// The table's name, quoted.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The rows themselves, where they are to be reached without statements. Not under an older snapshot: what is to be
    /// told of a row that has changed since then is known to the executor.
    fn rows(&self) -> Option<&Rows> {
        self.rows.as_ref().filter(|_| !server::repeatable_read())
    }

    /// Adds messages.
    ///
    /// Errors: 55000 when the table did not take one.
    pub fn insert(&self, messages: &[(New, Content)]) -> Result<()> {
        let adds_nothing = |(_, content): &(New, Content)| content.key.is_none();
        if let Some(rows) = self.rows().filter(|_| messages.iter().all(adds_nothing)) {
            rows.insert(messages);
            return Ok(());
        }
        messages.iter().try_for_each(|(new, content)| {
            let mut arguments = content.given(new).to_vec();
            arguments.push(content.key);
            let added = self.statements.insert.change(&arguments);
            self.changed(added, 1)
        })
    }

    /// Refuses to go on where a trigger or a rule of the table's has kept a change from being made.
    fn changed(&self, done: u64, wanted: usize) -> Result<()> {
        if done == wanted as u64 {
            return Ok(());
        }
        Err(Error::new(
            Code::WrongState,
            format!(
                "{} took {done} of {wanted} changes: a trigger or a rule keeps the others out",
                self.name
            ),
        )
        .hint("Let the triggers and rules of an outbox pass what is put and claimed."))
    }

    /// The messages of an array, taken apart: type, aggregatetype, aggregateid, payload, headers, action_id,
    /// available_at, whether it is an object, and whether its headers are.
    pub fn explode(&self, messages: Datum) -> Vec<Values> {
        self.statements.explode.run(&[Some(messages)])
    }

    /// The place of the first message from `from` on that is not delivered and was never kept from it.
    fn first(&self, from: i64) -> Option<i64> {
        if let Some(rows) = self.rows() {
            return rows.first(from);
        }
        self.statements.first.run(&[Some(Datum::from(from))]).first().and_then(|row| row.big(0))
    }

    /// Up to `max` messages that were never kept from delivery, from place `from` on, and that nobody else is at. See
    /// [`Outbox::hold`] and [`Outbox::take`].
    pub fn new_ones(&self, from: i64, now: Time, max: i64) -> Vec<Found> {
        // The order of an aggregate's messages is a question for a statement.
        let found = match self.rows().filter(|_| !self.options.ordered) {
            Some(rows) => rows.new_ones(from, now, max),
            None => found(self.statements.new.run(&[
                Some(Datum::from(from)),
                Some(server::time_datum(now)),
                Some(Datum::from(max)),
            ])),
        };
        if let Some(first) = found.first() {
            self.cursor.lower(first.seq());
        }
        found
    }

    /// Makes sure of a message that was found: false when somebody else has got hold of it.
    pub fn hold(&self, message: &Found) -> bool {
        message.is_locked() || self.rows().is_some_and(|rows| rows.hold(message))
    }

    /// Locks up to `max` messages that were kept from delivery and are due again.
    pub fn retried_ones(&self, now: Time, max: i64) -> Vec<Found> {
        found(self.statements.retried.run(&[Some(server::time_datum(now)), Some(Datum::from(max))]))
    }

    /// As [`Outbox::new_ones`] and [`Outbox::retried_ones`] together, new ones first, for a relay that not all messages are
    /// for: `is_for` tells by the action that one names. The others are not locked, so nobody else is kept from them.
    pub fn some_ones(
        &self,
        from: i64,
        now: Time,
        max: i64,
        is_for: impl Fn(Option<Uuid>) -> Result<bool>,
    ) -> Result<Vec<Found>> {
        let (statements, now) = (&self.statements, Some(server::time_datum(now)));
        let mut chosen = choose(max, &is_for, |limit| {
            statements.new_unlocked.run(&[Some(Datum::from(from)), now, Some(Datum::from(limit))])
        })?;
        chosen.extend(choose(max - chosen.len() as i64, &is_for, |limit| {
            statements.retried_unlocked.run(&[now, Some(Datum::from(limit))])
        })?);
        let found = found(statements.chosen.run(&[Some(query::uuids_datum(&chosen)), now]));
        if let Some(first) = found.first() {
            self.cursor.lower(first.seq());
        }
        Ok(found)
    }

    /// Gives messages to a claim. Returns those that nobody else had got hold of.
    ///
    /// Errors: 55000 when the table did not take it.
    pub fn take(&self, messages: Vec<Found>, claim: &Claiming) -> Result<Vec<Found>> {
        let (by_row, mut taken): (Vec<_>, Vec<_>) =
            messages.into_iter().partition(|message| message.version().is_some());
        if !taken.is_empty() {
            let places = taken.iter().map(Found::place).collect();
            let done = self.statements.take.change(&[
                Some(query::places_datum(places)),
                Some(server::uuid_datum(claim.claim_id)),
                Some(server::time_datum(claim.until)),
                claim.relay,
            ]);
            self.changed(done, taken.len())?;
        }
        if let Some(rows) = self.rows().filter(|_| !by_row.is_empty()) {
            taken.extend(rows.take(by_row, claim));
        }
        Ok(taken)
    }

    /// Gives a message that carries an action to a claim.
    ///
    /// Errors: 55000 when the table did not take it.
    pub fn take_carried(&self, message: &Found, claim: &Claiming, fence: i64, until: Time) -> Result<()> {
        let taken = self.statements.take_carried.change(&[
            Some(message.place()),
            Some(server::uuid_datum(claim.claim_id)),
            Some(server::time_datum(until)),
            claim.relay,
            Some(Datum::from(fence)),
        ]);
        self.changed(taken, 1)
    }

    /// Makes a message a dead letter.
    pub fn bury(&self, message: &Found, now: Time, error: Option<Datum>) {
        self.statements.bury.run(&[Some(message.place()), Some(server::time_datum(now)), error]);
    }

    /// Lets a message rest that nobody has attempted.
    pub fn rest(&self, message: &Found, until: Time) {
        self.statements.rest.run(&[Some(message.place()), Some(server::time_datum(until))]);
    }

    /// Finishes messages of a claim that carry nothing: the ids that were.
    pub fn finish_plain(&self, ids: &[Uuid], claim_id: Uuid, now: Time) -> Vec<Uuid> {
        if let Some(rows) = self.rows().filter(|_| self.options.keep_delivered.is_none()) {
            return rows.remove_plain(ids, claim_id);
        }
        let (ids, claim_id) = (Some(query::uuids_datum(ids)), Some(server::uuid_datum(claim_id)));
        let done = self.statements.finish_plain.run(&[
            ids,
            claim_id,
            Some(server::time_datum(now)),
            self.removed_at(now),
        ]);
        done.iter().filter_map(|row| row.uuid(0)).collect()
    }

    /// Finishes a message.
    pub fn finish(&self, message: &Found, now: Time) {
        match self.removed_at(now) {
            None => self.statements.remove.run(&[Some(message.place())]),
            removed_at => self.statements.keep.run(&[
                Some(message.place()),
                None,
                Some(server::time_datum(now)),
                removed_at,
            ]),
        };
    }

    /// Removes a message.
    pub fn remove(&self, message: &Found) {
        self.statements.remove.run(&[Some(message.place())]);
    }

    fn removed_at(&self, now: Time) -> Option<Datum> {
        self.options.keep_delivered.map(|keep| server::time_datum(now.saturating_add(keep)))
    }

    /// Removes some delivered messages that were kept long enough.
    pub fn expire(&self, now: Time, max: i64) {
        if self.options.keep_delivered.is_some() {
            self.statements.expire.run(&[Some(server::time_datum(now)), Some(Datum::from(max))]);
        }
    }

    /// Locks messages by id, waiting for whoever holds one, in one order for everybody.
    pub fn find(&self, ids: &[Uuid]) -> Vec<Found> {
        found(self.statements.find.run(&[Some(query::uuids_datum(ids))]))
    }

    /// Lets a message rest that could not be delivered.
    pub fn fail(&self, message: &Found, until: Time, error: Option<Datum>) {
        self.statements.fail.run(&[Some(message.place()), Some(server::time_datum(until)), error]);
    }

    /// Locks the messages of a claim that it still has, passing by what somebody else is at.
    pub fn claimed(&self, claim_id: Uuid, (first, last): (i64, i64)) -> Vec<Found> {
        let (first, last) = (Some(Datum::from(first)), Some(Datum::from(last)));
        found(self.statements.claimed.run(&[Some(server::uuid_datum(claim_id)), first, last]))
    }

    /// Gives a message's claim another lease.
    pub fn renew(&self, message: &Found, until: Time) {
        self.statements.renew.run(&[Some(message.place()), Some(server::time_datum(until))]);
    }

    /// Gives a dead letter all its attempts again.
    pub fn redrive(&self, message: &Found, now: Time) {
        self.statements.redrive.run(&[Some(message.place()), Some(server::time_datum(now))]);
    }
}

/// The first `max` messages that `is_for` takes, of those that `look` returns a number of. Asks for more while there are
/// more.
fn choose(
    max: i64,
    is_for: impl Fn(Option<Uuid>) -> Result<bool>,
    look: impl Fn(i64) -> Vec<Values>,
) -> Result<Vec<Uuid>> {
    let (mut limit, mut chosen) = (max, Vec::new());
    if max <= 0 {
        return Ok(chosen);
    }
    loop {
        server::serve_interrupts();
        let rows = look(limit);
        chosen.clear();
        for row in &rows {
            if is_for(row.uuid(1))? {
                chosen.extend(row.uuid(0));
            }
        }
        if chosen.len() as i64 >= max || (rows.len() as i64) < limit {
            break;
        }
        limit = limit.saturating_mul(4);
    }
    chosen.truncate(max as usize);
    Ok(chosen)
}

fn found(rows: Vec<Values>) -> Vec<Found> {
    rows.into_iter().map(Found::read).collect()
}
