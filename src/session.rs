//! What this session remembers of its running transaction: the attempts granted in it and not ended.
//!
//! Three promises rest on it: a transaction that leaves a granted attempt open commits synchronously; an action is
//! not granted twice to one transaction, so that `(idem_reserve(…)).*` fails closed; and committing an external
//! action in the transaction that reserved it can be noticed.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use idem_rules::action::{SECOND, Time};
use uuid::Uuid;

use crate::server::{self, End};
use crate::store::outbox;

/// Open grants remembered one by one; with more of them in one transaction only their number is known.
const REMEMBERED: usize = 4096;

/// Action types whose conflicts are counted apart for logging.
const LOGGED_TYPES: usize = 100;

/// A message that a consumer has accepted as new.
#[derive(Debug, Clone)]
pub struct Message {
    /// Its id.
    pub message_id: String,
    /// Who consumes it.
    pub consumer: String,
}

thread_local! {
    static ACCEPTED: RefCell<Option<Message>> = const { RefCell::new(None) };
    static GRANTED: RefCell<HashMap<Uuid, Uuid>> = RefCell::default();
    static TOO_MANY: Cell<bool> = const { Cell::new(false) };
    static CONFLICTS: RefCell<HashMap<String, Time>> = RefCell::default();
}

/// Follows the session's transactions from now on.
pub fn watch_transactions() {
    server::on_transaction_end(|end| {
        let open = TOO_MANY.get() || GRANTED.with_borrow(|granted| !granted.is_empty());
        if end == End::Ending {
            if open {
                server::force_sync_commit();
            }
            return;
        }
        outbox::transaction_ended(end == End::Committed);
        ACCEPTED.with_borrow_mut(|accepted| accepted.take());
        if open {
            GRANTED.with_borrow_mut(HashMap::clear);
            TOO_MANY.set(false);
        }
    });
}

/// Remembers the message that this transaction accepted last: what it reserves from now on comes from that.
pub fn accepted(message: Message) {
    ACCEPTED.set(Some(message));
}

/// The message that this transaction accepted last.
pub fn accepted_last() -> Option<Message> {
    ACCEPTED.with_borrow(Clone::clone)
}

/// Remembers that this transaction was granted an attempt.
pub fn granted(action_id: Uuid, attempt_id: Uuid) {
    GRANTED.with_borrow_mut(|granted| {
        if granted.len() < REMEMBERED || granted.contains_key(&action_id) {
            granted.insert(action_id, attempt_id);
        } else {
            TOO_MANY.set(true);
        }
    });
}

/// Forgets an attempt that was ended. Not in a subtransaction: rolled back, it leaves the attempt open after all.
pub fn ended(action_id: Uuid) {
    if server::in_subtransaction() {
        return;
    }
    GRANTED.with_borrow_mut(|granted| granted.remove(&action_id));
}

/// True when `attempt_id` was granted in this transaction. `writer` is the transaction that wrote the row: the
/// answer, on the safe side, once there were too many grants to remember.
pub fn was_granted_here(action_id: Uuid, attempt_id: Option<Uuid>, writer: u32) -> bool {
    let remembered = GRANTED.with_borrow(|granted| granted.get(&action_id).copied());
    match remembered {
        Some(token) => Some(token) == attempt_id,
        None => TOO_MANY.get() && server::is_current_transaction(writer),
    }
}

/// True at most once a minute for each action type.
pub fn may_log_conflict(action_type: &str, now: Time) -> bool {
    CONFLICTS.with_borrow_mut(|logged| {
        if logged.get(action_type).is_some_and(|last| now < last.saturating_add(60 * SECOND)) {
            return false;
        }
        if logged.len() >= LOGGED_TYPES {
            logged.clear();
        }
        logged.insert(action_type.to_owned(), now);
        true
    })
}
