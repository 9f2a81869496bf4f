//! Outboxes: tables that belong to users, and the options the extension keeps of them in `idem_outbox`.
//!
//! A message stands in one place from put to ack. Its first claim updates it heap-only: nothing that an index knows
//! changes (`due_at` stays NULL). What fails leaves that path by getting a `due_at`, under which a partial index finds
//! it again, so neither failing messages nor dead letters are passed by those who look for new ones.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use idem_rules::action::{Span, Time};
use idem_rules::error::{Code, Error, Result};
use idem_rules::outbox::{Message, SHORTEST_REST};
use pgrx::pg_sys::Datum;
use uuid::Uuid;

use crate::server::query::{self, Fit, Look, Parameter, Privilege, Relation, Statement};
use crate::server::{self, Bound, Call, Changed, Column, Key, Spec, Table, Type, Values};

const SPEC: Spec = Spec {
    place: 15,
    name: c"idem_outbox",
    columns: &[
        Column("outbox", Type::Table),
        Column("ordered", Type::Bool),
        Column("max_attempts", Type::Int),
        Column("keep_delivered", Type::Big),
        Column("notify_channel", Type::Text),
    ],
    indexes: &[c"idem_outbox_pkey"],
};

/// What the owner of an outbox has chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Messages of one aggregateid are delivered in the order in which they were committed.
    pub ordered: bool,
    /// Claims before a message is a dead letter.
    pub max_attempts: i32,
    /// How long delivered messages stay.
    pub keep_delivered: Option<Span>,
    /// Listeners are told there when a message was put.
    pub notify_channel: Option<String>,
}

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
}

/// Rows of outboxes are looked for from here on.
///
/// Claims that looked from the start would walk through what was delivered while an old snapshot keeps VACUUM from
/// removing it. The cursor is a hint in this session's memory: every so often a claim looks from the start, so nothing
/// rests on it.
pub struct Cursor {
    low: Cell<i64>,
    /// No message before this place will still be put, once every transaction with an id below the second number has
    /// ended.
    next: Cell<Option<(i64, u64)>>,
    /// Where looking may start once this transaction, which had changed something before it looked, has committed.
    promised: Cell<Option<i64>>,
    claims: Cell<u64>,
    looked_from_start: Cell<Time>,
    looked_for_retries: Cell<Time>,
}

/// Claims between two looks at the cursor.
const CURSOR_EVERY: u64 = 8;

/// How often a claim looks from the start.
const FROM_START_EVERY: Span = 60 * 1_000_000;

impl Cursor {
    /// True when nobody in this session has looked for messages that failed before within the shortest time that one
    /// rests: there can hardly be new ones.
    pub fn is_time_for_retries(&self, now: Time) -> bool {
        let since = now.saturating_sub(self.looked_for_retries.get());
        let time = !(0..SHORTEST_REST).contains(&since);
        if time {
            self.looked_for_retries.set(now);
        }
        time
    }

    /// A message was found there, before the place that looking started from.
    fn lower(&self, seq: i64) {
        self.low.set(self.low.get().min(seq));
        self.promised.set(self.promised.get().map(|place| place.min(seq)));
    }

    fn wants_a_place(&self) -> bool {
        self.next.get().is_none()
    }
}

struct Statements {
    insert: Statement,
    insert_many: Statement,
    explode: Statement,
    new: Statement,
    retried: Statement,
    first: Statement,
    take: Statement,
    take_carried: Statement,
    bury: Statement,
    rest: Statement,
    finish_plain: Statement,
    remove: Statement,
    keep: Statement,
    expire: Statement,
    find: Statement,
    fail: Statement,
    claimed: Statement,
    renew: Statement,
    redrive: Statement,
    undelivered: Statement,
    new_unlocked: Statement,
    retried_unlocked: Statement,
    chosen: Statement,
}

/// A message as a statement returned it.
pub struct Found {
    row: Values,
    /// What the rules see of it.
    pub message: Message,
}

/// The columns that every look at messages returns, in the order of [`Found`]'s getters.
const COLUMNS: &str = "m.ctid, m.id, m.aggregatetype, m.aggregateid, m.type, m.payload, m.headers, m.action_id, \
     m.carries, m.created_at, m.seq, m.attempts, m.due_at, m.claim_id, m.lease_expires_at, m.fence, m.delivered_at, \
     m.dead_at";

impl Found {
    fn read(row: Values) -> Found {
        let message = Message {
            attempts: row.count(11),
            lease_expires_at: row.time(14),
            delivered: row.time(16).is_some(),
            dead: row.time(17).is_some(),
        };
        Found { row, message }
    }

    /// Where the row's version stands: valid while this transaction holds its lock.
    fn place(&self) -> Datum {
        self.row.datum(0).unwrap_or(Datum::from(0))
    }

    /// The message's id.
    pub fn id(&self) -> Uuid {
        self.row.uuid(1).unwrap_or_default()
    }

    /// aggregatetype, aggregateid, type, payload or headers, as stored.
    pub fn content(&self, n: usize) -> Option<Datum> {
        self.row.datum(2 + n)
    }

    /// The action it is linked to.
    pub fn action_id(&self) -> Option<Uuid> {
        self.row.uuid(7)
    }

    /// The action it carries.
    pub fn carries(&self) -> Option<Uuid> {
        self.action_id().filter(|_| self.row.flag(8))
    }

    /// When it was put.
    pub fn created_at(&self) -> Time {
        self.row.time(9).unwrap_or(Time::MIN)
    }

    /// Its place in the order of messages.
    pub fn seq(&self) -> i64 {
        self.row.big(10).unwrap_or(0)
    }

    /// The last claim's token.
    pub fn claim_id(&self) -> Option<Uuid> {
        self.row.uuid(13)
    }

    /// The fence of the attempt that the last claim was granted.
    pub fn fence(&self) -> Option<i64> {
        self.row.big(15)
    }
}

/// A message to be put.
#[derive(Clone, Copy)]
pub struct New {
    /// Its id.
    pub id: Uuid,
    /// Whether it carries its action.
    pub carries: bool,
}

/// What a message says, checked, as datums to be stored.
#[derive(Clone, Copy)]
pub struct Content {
    /// The message's columns in the order of [`COLUMNS`].
    pub aggregatetype: Option<Datum>,
    /// See above.
    pub aggregateid: Option<Datum>,
    /// See above.
    pub r#type: Option<Datum>,
    /// See above.
    pub payload: Option<Datum>,
    /// See above.
    pub headers: Option<Datum>,
    /// The action's key, for the headers.
    pub key: Option<Datum>,
    /// See above.
    pub action_id: Option<Uuid>,
    /// Not before then.
    pub available_at: Option<Time>,
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
        Outbox::of(call, query::user_table(&call.required_text(0)?, privilege)?)
    }

    /// Whether `table` still has the message `id`, not acknowledged, as one that carries `action_id`. Waits for nobody: a
    /// table that is being changed, or does not fit any more, may have it.
    pub fn may_have(call: &Call, table: Relation, id: Uuid, action_id: Uuid) -> Result<bool> {
        match query::lock_for_a_look(table) {
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
        let (version, generation) = (query::version_of(table), server::generation());
        let repeatable = server::repeatable_read();
        let name = query::qualified_name(table)?;
        let known = KNOWN.with_borrow(|known| known.get(&table).cloned()).filter(|known| {
            known.version == version
                && known.generation == generation
                && known.provisional <= repeatable
                // Nothing is said about a table whose schema gets another name.
                && known.name == name
        });
        if let Some(known) = known {
            return Ok(known);
        }
        let options = options(call, table)?.ok_or_else(|| {
            Error::new(Code::WrongObject, format!("{name} is not an outbox"))
                .hint("Make one with idem_create_outbox, which also takes a fitting table of yours as it is.")
        })?;
        check_columns(call, table, &name)?;
        let outbox = Rc::new(Outbox {
            table,
            statements: Statements::new(&name, &options),
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

    /// Adds one message.
    ///
    /// Errors: 55000 when the table did not take it.
    pub fn insert(&self, new: &New, content: &Content) -> Result<()> {
        let added = self.statements.insert.change(&[
            Some(server::uuid_datum(new.id)),
            content.aggregatetype,
            content.aggregateid,
            content.r#type,
            content.payload,
            content.headers,
            content.key,
            content.action_id.map(server::uuid_datum),
            Some(Datum::from(new.carries)),
            content.available_at.map(server::time_datum),
        ]);
        self.changed(added, 1)
    }

    /// Adds messages that have no action, straight from the array they were passed in.
    ///
    /// Errors: 55000 when the table did not take one.
    pub fn insert_many(&self, messages: Datum, ids: &[Uuid]) -> Result<()> {
        let added = self.statements.insert_many.change(&[Some(messages), Some(query::uuids_datum(ids))]);
        self.changed(added, ids.len())
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

    /// Where this claim looks from, and its number.
    pub fn begin_claim(&self, now: Time) -> (i64, u64) {
        let cursor = &self.cursor;
        let claims = cursor.claims.get();
        cursor.claims.set(claims + 1);
        if claims.is_multiple_of(CURSOR_EVERY) {
            self.move_cursor();
        }
        let since = now.saturating_sub(cursor.looked_from_start.get());
        if !(0..FROM_START_EVERY).contains(&since) {
            cursor.looked_from_start.set(now);
            return (i64::MIN, claims);
        }
        (cursor.low.get(), claims)
    }

    /// Moves the cursor to the first message that is not delivered, once nobody can still commit one before it.
    fn move_cursor(&self) {
        let cursor = &self.cursor;
        // An older snapshot does not see what was committed late.
        if server::repeatable_read() {
            return;
        }
        let Some((place, xid)) = cursor.next.get() else { return };
        // Whoever could still commit a message before that place took his id before it was seen.
        if server::oldest_running().0 < xid {
            return;
        }
        // What this transaction has delivered counts from its commit. What a savepoint may still take back never does.
        let has_changed = server::has_transaction_id();
        if has_changed && server::in_subtransaction() {
            return;
        }
        // What those committed since then is seen by a statement that begins now.
        let first = self.first(cursor.low.get());
        let place = first.map_or(place, |first| first.min(place));
        cursor.next.set(None);
        match has_changed {
            true => cursor.promised.set(Some(place)),
            false => cursor.low.set(place),
        }
    }

    /// The place of the first message from `from` on that is not delivered and was never kept from it.
    fn first(&self, from: i64) -> Option<i64> {
        self.statements.first.run(&[Some(Datum::from(from))]).first().and_then(|row| row.big(0))
    }

    /// Locks up to `max` messages that were never kept from delivery, from place `from` on.
    pub fn new_ones(&self, from: i64, now: Time, max: i64) -> Vec<Found> {
        let found = found(self.statements.new.run(&[
            Some(Datum::from(from)),
            Some(server::time_datum(now)),
            Some(Datum::from(max)),
        ]));
        if let Some(first) = found.first() {
            self.cursor.lower(first.seq());
        }
        found
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

    /// Looks, now and then, where the cursor may stand.
    pub fn mind_cursor(&self, from: i64, turn: u64) {
        let cursor = &self.cursor;
        if !turn.is_multiple_of(CURSOR_EVERY) || !cursor.wants_a_place() {
            return;
        }
        if let Some(seq) = self.first(from) {
            cursor.next.set(Some((seq, server::oldest_running().1)));
        }
    }

    /// Gives messages to a claim.
    ///
    /// Errors: 55000 when the table did not take it.
    pub fn take(&self, messages: &[Found], claim: &Claiming) -> Result<()> {
        if messages.is_empty() {
            return Ok(());
        }
        let places = messages.iter().map(Found::place).collect();
        let taken = self.statements.take.change(&[
            Some(query::places_datum(places)),
            Some(server::uuid_datum(claim.claim_id)),
            Some(server::time_datum(claim.until)),
            claim.relay,
        ]);
        self.changed(taken, messages.len())
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

/// Who claims.
pub struct Claiming {
    /// The claim's token.
    pub claim_id: Uuid,
    /// Until when it holds.
    pub until: Time,
    /// Who says so.
    pub relay: Option<Datum>,
}

/// The first `max` messages that `is_for` takes, of those that `look` returns a number of. Asks for more while there are
/// more.
fn choose(
    max: i64,
    is_for: impl Fn(Option<Uuid>) -> Result<bool>,
    look: impl Fn(i64) -> Vec<Values>,
) -> Result<Vec<Uuid>> {
    let (mut limit, mut chosen) = (max, Vec::new());
    while max > 0 {
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
    chosen.truncate(max.max(0) as usize);
    Ok(chosen)
}

fn found(rows: Vec<Values>) -> Vec<Found> {
    rows.into_iter().map(Found::read).collect()
}

impl Statements {
    fn new(table: &str, options: &Options) -> Statements {
        use Parameter::{One, Places, Uuids};
        let (uuid, time, text, jsonb) = (One(Type::Uuid), One(Type::Time), One(Type::Text), One(Type::Jsonb));
        let (big, place) = (One(Type::Big), One(Type::Place));
        // The first of its aggregate that is not delivered, whatever keeps it.
        let first_of_its_own = match options.ordered {
            true => format!(
                "AND NOT EXISTS (SELECT FROM ONLY {table} AS e WHERE e.aggregateid = m.aggregateid AND e.seq < m.seq \
                 AND e.delivered_at IS NULL)"
            ),
            false => String::new(),
        };
        let free = "(m.lease_expires_at IS NULL OR m.lease_expires_at <= ";
        let insert = format!(
            "INSERT INTO {table} (id, aggregatetype, aggregateid, type, payload, headers, action_id, carries, due_at)"
        );
        // The update stays heap-only for a message that was never kept: its due_at stays NULL.
        let due = |until: &str| format!("due_at = CASE WHEN due_at IS NOT NULL THEN {until} END");
        // Said so that the planner does not take the index of undelivered messages by aggregate for a way to find others:
        // without statistics it looks small.
        let undelivered = "coalesce(delivered_at, 'infinity') = 'infinity'";
        let new = format!(
            "FROM ONLY {table} AS m WHERE m.seq >= $1 AND m.due_at IS NULL AND {free} $2) {first_of_its_own} \
             ORDER BY m.seq LIMIT $3"
        );
        let retried = format!(
            "FROM ONLY {table} AS m WHERE m.due_at <= $1 AND m.dead_at IS NULL AND {undelivered} AND {free} $1) \
             {first_of_its_own} ORDER BY m.due_at LIMIT $2"
        );
        let and_lock = "FOR UPDATE OF m SKIP LOCKED";
        let delivered = "delivered_at = $3, due_at = $4, lease_expires_at = NULL, dead_at = NULL";
        Statements {
            insert: Statement::new(
                format!(
                    "{insert} VALUES ($1, $2, $3, $4, $5, CASE WHEN $7 IS NULL THEN $6 ELSE \
                     jsonb_build_object('idempotency-key', $7) || coalesce($6, '{{}}') END, $8, $9, $10)"
                ),
                &[uuid, text, text, text, jsonb, jsonb, text, uuid, One(Type::Bool), time],
            ),
            insert_many: Statement::new(
                format!(
                    "{insert} SELECT id, m->>'aggregatetype', m->>'aggregateid', m->>'type', m->'payload', \
                     nullif(m->'headers', 'null'), NULL, false, (m->>'available_at')::timestamptz \
                     FROM ROWS FROM (jsonb_array_elements($1), unnest($2)) AS e (m, id)"
                ),
                &[jsonb, Uuids],
            ),
            explode: Statement::new(
                "SELECT m->>'type', m->>'aggregatetype', m->>'aggregateid', nullif(m->'payload', 'null'), \
                 nullif(m->'headers', 'null'), (m->>'action_id')::uuid, (m->>'available_at')::timestamptz, \
                 jsonb_typeof(m) = 'object', coalesce(nullif(jsonb_typeof(m->'headers'), 'null'), 'object') = 'object' FROM jsonb_array_elements($1) AS e (m)"
                    .to_owned(),
                &[jsonb],
            ),
            new: Statement::new(format!("SELECT {COLUMNS} {new} {and_lock}"), &[big, time, big]),
            new_unlocked: Statement::new(format!("SELECT m.id, m.action_id {new}"), &[big, time, big]),
            retried: Statement::new(format!("SELECT {COLUMNS} {retried} {and_lock}"), &[time, big]),
            retried_unlocked: Statement::new(format!("SELECT m.id, m.action_id {retried}"), &[time, big]),
            chosen: Statement::new(
                format!(
                    "SELECT {COLUMNS} FROM ONLY {table} AS m WHERE m.id = ANY ($1) AND coalesce(m.due_at, $2) <= $2 AND \
                     m.dead_at IS NULL AND {undelivered} AND {free} $2) {first_of_its_own} ORDER BY m.seq {and_lock}"
                ),
                &[Uuids, time],
            ),
            first: Statement::new(
                format!("SELECT seq FROM ONLY {table} WHERE seq >= $1 AND due_at IS NULL ORDER BY seq LIMIT 1"),
                &[big],
            ),
            take: Statement::new(
                format!(
                    "UPDATE ONLY {table} SET attempts = attempts + 1, claim_id = $2, lease_expires_at = $3, relay = $4, \
                     {} WHERE ctid = ANY ($1)",
                    due("$3")
                ),
                &[Places, uuid, time, text],
            ),
            take_carried: Statement::new(
                format!(
                    "UPDATE ONLY {table} SET attempts = attempts + 1, claim_id = $2, lease_expires_at = $3, relay = $4, \
                     fence = $5, {} WHERE ctid = $1",
                    due("$3")
                ),
                &[place, uuid, time, text, big],
            ),
            bury: Statement::new(
                format!(
                    "UPDATE ONLY {table} SET dead_at = $2, due_at = 'infinity', lease_expires_at = NULL, \
                     last_error = coalesce($3, last_error) WHERE ctid = $1"
                ),
                &[place, time, text],
            ),
            rest: Statement::new(
                format!("UPDATE ONLY {table} SET due_at = $2, lease_expires_at = NULL WHERE ctid = $1"),
                &[place, time],
            ),
            finish_plain: Statement::new(
                format!(
                    "{} WHERE id = ANY ($1) AND claim_id = $2 AND NOT carries AND {undelivered} RETURNING id",
                    match options.keep_delivered {
                        None => format!("DELETE FROM ONLY {table}"),
                        Some(_) => format!("UPDATE ONLY {table} SET {delivered}"),
                    }
                ),
                &[Uuids, uuid, time, time],
            ),
            remove: Statement::new(format!("DELETE FROM ONLY {table} WHERE ctid = $1"), &[place]),
            keep: Statement::new(
                format!("UPDATE ONLY {table} SET {delivered} WHERE ctid = $1"),
                &[place, uuid, time, time],
            ),
            expire: Statement::new(
                format!(
                    "DELETE FROM ONLY {table} WHERE ctid = ANY (ARRAY(SELECT ctid FROM ONLY {table} WHERE due_at <= $1 AND \
                     delivered_at IS NOT NULL ORDER BY due_at LIMIT $2 FOR UPDATE SKIP LOCKED))"
                ),
                &[time, big],
            ),
            find: Statement::new(
                format!("SELECT {COLUMNS} FROM ONLY {table} AS m WHERE m.id = ANY ($1) ORDER BY m.id FOR UPDATE"),
                &[Uuids],
            ),
            fail: Statement::new(
                format!(
                    "UPDATE ONLY {table} SET due_at = $2, lease_expires_at = NULL, last_error = coalesce($3, last_error) \
                     WHERE ctid = $1"
                ),
                &[place, time, text],
            ),
            claimed: Statement::new(
                format!(
                    "SELECT {COLUMNS} FROM ONLY {table} AS m WHERE m.seq >= $2 AND m.seq <= $3 AND m.claim_id = $1 AND \
                     m.lease_expires_at IS NOT NULL AND {undelivered} ORDER BY m.seq FOR UPDATE SKIP LOCKED"
                ),
                &[uuid, big, big],
            ),
            renew: Statement::new(
                format!("UPDATE ONLY {table} SET lease_expires_at = $2, {} WHERE ctid = $1", due("$2")),
                &[place, time],
            ),
            redrive: Statement::new(
                format!("UPDATE ONLY {table} SET dead_at = NULL, due_at = $2, attempts = 0 WHERE ctid = $1"),
                &[place, time],
            ),
            undelivered: Statement::new(
                format!(
                    "SELECT FROM ONLY {table} WHERE id = $1 AND action_id = $2 AND carries AND {undelivered}"
                ),
                &[uuid, uuid],
            ),
        }
    }
}

fn options(call: &Call, table: Relation) -> Result<Option<Options>> {
    let row = Table::open(call, &SPEC)?.find(0, &key(table));
    row.map(|row| {
        Ok(Options {
            ordered: row.values.flag(1),
            max_attempts: row.values.count(2),
            keep_delivered: row.values.span(3),
            notify_channel: row.values.text(4)?.map(|channel| channel.into_owned()),
        })
    })
    .transpose()
}

fn key(table: Relation) -> [Key; 1] {
    [Key(1, Bound::Table(table))]
}

/// Without these a table would fit, and lose messages: what is NULL where it must not be, no claim finds.
const FIT: Fit = Fit {
    row_type: c"idem_outbox_message",
    not_null: &["id", "seq", "attempts", "created_at", "carries"],
    filled: &["seq", "attempts", "created_at"],
    unique: "id",
};

/// Refuses a table whose columns are not those of an outbox. Errors: 42809.
pub fn check_columns(call: &Call, table: Relation, name: &str) -> Result<()> {
    match query::column_difference(call, table, &FIT)? {
        None => Ok(()),
        Some(difference) => Err(Error::new(Code::WrongObject, format!("{name} does not fit as an outbox"))
            .detail(format!("Compared with the type idem_outbox_message: {difference}."))
            .hint(
                "Change its columns. In a new outbox, made with idem_create_outbox, messages that carry an action \
                 would carry it no more.",
            )),
    }
}

/// Keeps the options of an outbox: registered, changed or unchanged.
pub fn register(call: &Call, table: Relation, options: &Options) -> Result<&'static str> {
    let registry = Table::open(call, &SPEC)?;
    let mut values = Values::new();
    values.set_table(0, table);
    values.set_flag(1, options.ordered);
    values.set(2, Some(Datum::from(options.max_attempts)));
    values.set_big(3, options.keep_delivered);
    values.set_text(4, options.notify_channel.as_deref());
    loop {
        let present = registry.find(0, &key(table));
        let before = self::options(call, table)?;
        let done = match &present {
            Some(_) if before.as_ref() == Some(options) => return Ok("unchanged"),
            Some(row) => registry.update(row, &values),
            None if registry.insert_unless_present(&values) => Changed::Done,
            None => Changed::Gone,
        };
        match done {
            Changed::Done => {
                registry.invalidate();
                return Ok(if present.is_some() { "changed" } else { "registered" });
            }
            _ if server::repeatable_read() => return Err(server::serialization()),
            _ => server::serve_interrupts(),
        }
    }
}
