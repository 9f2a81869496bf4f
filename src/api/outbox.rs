//! idem_outbox_put, idem_outbox_put_many: messages that leave with the transaction; and the last step of making an outbox

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeSet;

use idem_rules::action::SECOND;
use idem_rules::error::{Code, Error, Result};
use idem_rules::identity::check_text;
use idem_rules::jsonb::{Encoding, is_object};
use idem_rules::look::{Member, objects};
use idem_rules::outbox::order_lock;
use idem_rules::transition::{Answer, Event};
use pgrx::pg_sys::Datum;
use uuid::{Builder, Uuid};

use super::attempt::{Brought, move_action};
use crate::server::query;
use crate::server::user_table::{self, Privilege};
use crate::server::{self, Call, Rows, Value};
use crate::session;
use crate::store::lineage::{self, Direction};
use crate::store::outbox::{self, Content, New, Options, Outbox};

/// `idem_register_outbox(outbox, ordered, max_attempts, keep_delivered, notify_channel)`
pub fn idem_register_outbox(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_create_outbox()");
    let table = call.table(0).ok_or_else(|| call.null(0))?;
    let name = user_table::qualified_name(table)?;
    if !user_table::owns(table) {
        return Err(Error::new(Code::NotAllowed, format!("must be owner of table {name}"))
            .hint("Only its owner makes a table an outbox and chooses its options."));
    }
    outbox::check_columns(call, table, &name)?;
    let options = Options {
        ordered: call.bool(1).ok_or_else(|| call.null(1))?,
        max_attempts: call.int(2).ok_or_else(|| call.null(2))?,
        keep_delivered: call.big(3),
        notify_channel: call.text(4)?.map(Cow::into_owned),
    };
    let done = outbox::register(call, table, &options)?;
    Ok(call.value(Value::Text(Cow::Borrowed(done))))
}

/// Parameters of idem_outbox_put by place.
mod at {
    pub const TYPE: usize = 1;
    pub const AGGREGATETYPE: usize = 2;
    pub const AGGREGATEID: usize = 3;
    pub const PAYLOAD: usize = 4;
    pub const HEADERS: usize = 5;
    pub const ACTION_ID: usize = 6;
    pub const AVAILABLE_AT: usize = 7;
}

/// `idem_outbox_put(outbox, type, aggregatetype, aggregateid, payload, headers, action_id, available_at)`
pub fn idem_outbox_put(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_outbox_put()");
    for n in [at::TYPE, at::AGGREGATETYPE, at::AGGREGATEID] {
        check_name(call.name(n), call.text(n)?.as_deref())?;
    }
    call.stored(at::PAYLOAD).ok_or_else(|| call.null(at::PAYLOAD))?;
    if let Some(headers) = call.jsonb(at::HEADERS) {
        check_headers(is_object(headers.bytes)?)?;
    }
    let content = Content {
        aggregatetype: call.stored(at::AGGREGATETYPE),
        aggregateid: call.stored(at::AGGREGATEID),
        r#type: call.stored(at::TYPE),
        payload: call.stored(at::PAYLOAD),
        headers: call.stored(at::HEADERS),
        key: None,
        action_id: call.uuid(at::ACTION_ID),
        available_at: call.time(at::AVAILABLE_AT),
    };
    let outbox = Outbox::open(call, Privilege::Insert)?;
    let aggregateid = call.required_text(at::AGGREGATEID)?;
    let put = Put::begin(call, &outbox, [aggregateid.as_ref()]);
    let (new, content) = put.linked(content)?;
    put.finish(|| outbox.insert(&[(new, content)]))?;
    Ok(call.value(Value::Uuid(new.id)))
}

/// `idem_outbox_put_many(outbox, messages)`
pub fn idem_outbox_put_many(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_outbox_put_many()");
    let messages = call.jsonb(1).ok_or_else(|| call.null(1))?;
    let outbox = Outbox::open(call, Privilege::Insert)?;
    let mut rows = Rows::begin(call)?;
    let ids = match plain(messages.bytes)? {
        Some(plain) => put_as_they_stand(call, &outbox, &plain)?,
        None => put_one_by_one(call, &outbox, messages.datum)?,
    };
    for id in ids {
        rows.add([Value::Uuid(id)])?;
    }
    Ok(rows.end())
}

/// A message that needs no closer look.
struct Plain<'a> {
    r#type: &'a str,
    aggregatetype: &'a str,
    aggregateid: &'a str,
    /// Documents of their own, as they are stored.
    payload: &'a [u8],
    headers: Option<&'a [u8]>,
}

/// Puts messages that need no closer look; their ids.
fn put_as_they_stand(call: &Call, outbox: &Outbox, messages: &[Plain]) -> Result<Vec<Uuid>> {
    let put = Put::begin(call, outbox, messages.iter().map(|message| message.aggregateid));
    let text = |text| Some(server::text_datum(text));
    // In one order with the messages, so that they stand together in the index of ids, too.
    let mut ids: Vec<Uuid> = messages.iter().map(|_| message_id()).collect();
    ids.sort_unstable();
    let messages: Vec<(New, Content)> = ids
        .into_iter()
        .zip(messages)
        .map(|(id, message)| {
            let content = Content {
                aggregatetype: text(message.aggregatetype),
                aggregateid: text(message.aggregateid),
                r#type: text(message.r#type),
                payload: Some(server::jsonb_datum(message.payload)),
                headers: message.headers.map(server::jsonb_datum),
                key: None,
                action_id: None,
                available_at: None,
            };
            (New { id, carries: false }, content)
        })
        .collect();
    put.finish(|| outbox.insert(&messages))?;
    Ok(messages.into_iter().map(|(new, _)| new.id).collect())
}

/// Puts messages that are taken apart and looked at each; their ids.
fn put_one_by_one(call: &Call, outbox: &Outbox, messages: Datum) -> Result<Vec<Uuid>> {
    let parts = query::as_owner(outbox.table, || Ok(outbox.explode(messages)))?;
    let mut aggregates = Vec::new();
    for (n, part) in parts.iter().enumerate() {
        let aggregateid = check_parts(part).map_err(|error| Error {
            message: format!("message {}: {}", n + 1, error.message).into(),
            ..error
        })?;
        aggregates.push(aggregateid);
    }
    let put = Put::begin(call, outbox, aggregates.iter().map(String::as_str));
    // In one order for everybody, so that two batches cannot wait for each other's actions.
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|n| parts[*n].uuid(5));
    let mut linked = vec![None; parts.len()];
    for n in order {
        linked[n] = Some(put.linked(content(&parts[n]))?);
    }
    let linked: Vec<(New, Content)> = linked.into_iter().flatten().collect();
    put.finish(|| outbox.insert(&linked))?;
    Ok(linked.into_iter().map(|(new, _)| new.id).collect())
}

/// Messages that need no closer look: right as they stand, without an action, available at once. `None` where one of them is
/// otherwise.
fn plain(messages: &[u8]) -> Result<Option<Vec<Plain<'_>>>> {
    if server::encoding() != Encoding::Utf8 {
        return Ok(None);
    }
    let Some(messages) = objects(messages)? else { return Ok(None) };
    let mut plain = Vec::with_capacity(messages.len());
    for message in messages {
        let name = |name| match message.member(name)? {
            Member::String(text) => {
                let text = std::str::from_utf8(text).ok();
                Ok(text.filter(|text| check_name(name, Some(text)).is_ok()))
            }
            _ => Ok(None),
        };
        let (Some(r#type), Some(aggregatetype), Some(aggregateid)) =
            (name("type")?, name("aggregatetype")?, name("aggregateid")?)
        else {
            return Ok(None);
        };
        let (Member::Object(payload) | Member::Array(payload)) = message.member("payload")? else {
            return Ok(None);
        };
        let headers = match message.member("headers")? {
            Member::Missing => None,
            Member::Object(headers) => Some(headers),
            _ => return Ok(None),
        };
        if message.member("action_id")? != Member::Missing
            || message.member("available_at")? != Member::Missing
        {
            return Ok(None);
        }
        plain.push(Plain { r#type, aggregatetype, aggregateid, payload, headers });
    }
    Ok(Some(plain))
}

fn content(part: &server::Values) -> Content {
    Content {
        aggregatetype: part.datum(1),
        aggregateid: part.datum(2),
        r#type: part.datum(0),
        payload: part.datum(3),
        headers: part.datum(4),
        key: None,
        action_id: part.uuid(5),
        available_at: part.time(6),
    }
}

/// Checks one element of put_many's array; returns its aggregateid.
fn check_parts(part: &server::Values) -> Result<String> {
    if !part.flag(7) {
        return Err(Error::new(Code::InvalidParameter, "it is not an object")
            .hint("Pass objects with type, aggregatetype, aggregateid and payload as members."));
    }
    for (n, name) in [(0, "type"), (1, "aggregatetype"), (2, "aggregateid")] {
        check_name(name, part.text(n)?.as_deref())?;
    }
    part.datum(3).ok_or_else(|| Error::null("payload"))?;
    check_headers(part.flag(8))?;
    Ok(part.text(2)?.unwrap_or_default().into_owned())
}

fn check_name(name: &str, value: Option<&str>) -> Result<()> {
    match check_text(name, value)? {
        None => Err(Error::null(name)),
        Some("") => Err(Error::new(Code::InvalidParameter, format!("{name} must not be empty"))
            .hint("Relays and consumers choose by it what to do with the message.")),
        Some(_) => Ok(()),
    }
}

fn check_headers(is_object: bool) -> Result<()> {
    if is_object {
        return Ok(());
    }
    Err(Error::new(Code::InvalidParameter, "headers must be a JSON object")
        .hint("Pass names and values, as in {\"traceparent\": \"00-…\"}."))
}

/// The id of a new message: of version 7, so that those of one time stand together in the index.
fn message_id() -> Uuid {
    let millis = server::clock() / (SECOND / 1000);
    let mut random = [0; 10];
    random.copy_from_slice(&server::random_uuid().as_bytes()[..10]);
    // The version's bits are not random in the bytes taken: the last six bytes are.
    random[..2].copy_from_slice(&server::random_uuid().as_bytes()[..2]);
    Builder::from_unix_timestamp_millis(millis.max(0) as u64, &random).into_uuid()
}

/// Messages being put.
struct Put<'a> {
    call: &'a Call,
    outbox: &'a Outbox,
}

impl<'a> Put<'a> {
    /// Starts with the locks that keep commit order, taken in one order by everybody.
    fn begin<'t>(
        call: &'a Call,
        outbox: &'a Outbox,
        aggregates: impl IntoIterator<Item = &'t str>,
    ) -> Put<'a> {
        // Before the messages get their places: relays rely on it, see Cursor.
        server::assign_transaction_id();
        if outbox.options.ordered {
            let table = outbox.table.to_u32();
            let locks: BTreeSet<i64> = aggregates.into_iter().map(|id| order_lock(table, id)).collect();
            locks.into_iter().for_each(query::lock_until_end);
        }
        Put { call, outbox }
    }

    /// The message with its action's key, and whether it carries the action.
    fn linked(&self, content: Content) -> Result<(New, Content)> {
        let mut new = New { id: message_id(), carries: false };
        let Some(action_id) = content.action_id else { return Ok((new, content)) };
        let (here, key, tenant) = (Cell::new(false), Cell::new(None), Cell::new(None));
        let (step, _) = move_action(
            self.call,
            (action_id, None),
            |_| Event::Carry { here: here.get() },
            |entry, _| {
                key.set(entry.key());
                tenant.set(entry.tenant());
                here.set(session::was_granted_here(action_id, entry.action.attempt_id, entry.writer()));
                Ok(())
            },
            Brought::default(),
        )?;
        new.carries = step.answer != Answer::Nothing;
        if new.carries {
            session::ended(action_id);
        }
        let (id, place, now) = (new.id.to_string(), self.outbox.name(), server::clock());
        let way = Direction::Out(new.carries.then_some(self.outbox.table));
        lineage::link(self.call, action_id, way, &id, place, tenant.get(), now)?;
        Ok((new, Content { key: key.get(), ..content }))
    }

    /// Adds the messages by `insert`, as the table's owner, and tells listeners.
    fn finish(self, insert: impl FnOnce() -> Result<()>) -> Result<()> {
        query::as_owner(self.outbox.table, || {
            insert()?;
            if let Some(channel) = &self.outbox.options.notify_channel {
                query::notify(channel, self.outbox.name());
            }
            Ok(())
        })
    }
}
