//! Messages that consumers have seen: `idem_inbox`.

use std::cell::Cell;

use idem_rules::action::Time;
use idem_rules::error::Result;
use pgrx::pg_sys::Datum;

use crate::server::{
    self, Bound, Call, Changed, Column, Index, Key, Row, Sight, Spec, Table, Tick, Type, Values,
};

const SPEC: Spec = Spec {
    place: 14,
    name: c"idem_inbox",
    columns: &[
        Column("message_id", Type::Text),
        Column("consumer", Type::Text),
        Column("tenant", Type::Text),
        Column("first_seen_at", Type::Time),
        Column("payload", Type::Bytes),
    ],
    indexes: &[Index::unique(c"idem_inbox_pkey", &["message_id", "consumer", "tenant"])],
};

thread_local! {
    /// True while the last message that this session accepted was new. Then the next one is likely to be, and is added
    /// without a look for it, which is a tenth of the work. One that is there leaves a dead row behind, once in a row.
    static AFTER_NEW: Cell<bool> = const { Cell::new(false) };
}

/// The inbox, open.
pub struct Inbox(Table);

/// Which message, to whom; as stored.
#[derive(Clone, Copy)]
pub struct Name {
    /// The message's id.
    pub message_id: Datum,
    /// Who consumes it.
    pub consumer: Datum,
    /// Whose message it is.
    pub tenant: Datum,
}

/// A message seen before.
pub struct Seen {
    /// When it was accepted.
    pub first_seen_at: Time,
    /// Its payload's digest, where one was given.
    pub payload: Option<Vec<u8>>,
}

/// What came of a part of a pass over the inbox.
pub struct Forgotten {
    /// How many messages were forgotten.
    pub messages: usize,
    /// How many pages were read, or messages forgotten, whichever is more.
    pub looked_at: usize,
    /// The page to go on with; `None` at the end.
    pub next: Option<u32>,
}

impl Inbox {
    /// Opens it.
    pub fn open(call: &Call) -> Result<Inbox> {
        Table::open(call, &SPEC).map(Inbox)
    }

    /// Remembers a message unless it is known: then what is known of it. Waits for a transaction that has not ended and
    /// accepts the same one; two that wait for each other end in 40P01.
    pub fn remember(&self, name: Name, now: Time, payload: Option<&[u8]>) -> Result<Option<Seen>> {
        let keys = [
            Key(1, Bound::Text(name.message_id)),
            Key(2, Bound::Text(name.consumer)),
            Key(3, Bound::Text(name.tenant)),
        ];
        let mut values = Values::new();
        values.set(0, Some(name.message_id));
        values.set(1, Some(name.consumer));
        values.set(2, Some(name.tenant));
        values.set_time(3, Some(now));
        values.set_bytes(4, payload);
        // Stricter isolation is answered from its snapshot, which also tells the server what was read.
        let strict = server::repeatable_read();
        let mut looked = !strict && AFTER_NEW.get();
        let mut pace = Tick::default();
        let seen = |row: &Row| Seen {
            first_seen_at: row.values.time(3).unwrap_or(now),
            payload: row.values.bytes(4).map(<[u8]>::to_vec),
        };
        let known = loop {
            server::serve_interrupts();
            if looked {
                if self.0.insert_unless_present(&values) {
                    break None;
                }
                looked = false;
                continue;
            }
            if strict && let Some(row) = self.0.find(0, &keys) {
                break Some(seen(&row));
            }
            match self.0.look(0, &keys) {
                Some(Sight::Row(_)) if strict => return Err(server::serialization()),
                Some(Sight::Row(row)) => break Some(seen(&row)),
                Some(Sight::Added(writer)) => writer.wait(&mut pace),
                None => looked = true,
            }
        };
        AFTER_NEW.set(known.is_none());
        Ok(known)
    }

    /// Forgets messages that were seen by `up_to`, on the pages from `page` on: at most `max` of them, or on as many pages.
    pub fn forget(&self, up_to: Time, page: u32, max: usize) -> Forgotten {
        let pages = self.0.pages();
        let end = page.saturating_add(max as u32).min(pages);
        let mut messages = 0;
        let mut stopped = None;
        self.0.each_on_pages(page.min(end)..end, Key(4, Bound::UpTo(up_to)), |row| {
            messages += usize::from(self.0.delete(&row) == Changed::Done);
            stopped = (messages == max).then(|| row.page());
            stopped.is_none()
        });
        let next = stopped.or((end < pages).then_some(end));
        Forgotten { messages, looked_at: messages.max(end.saturating_sub(page) as usize), next }
    }
}
