//! idem_dispatch: the last gate before the effect

use std::cell::RefCell;

use idem_rules::error::{Code, Error, Result};
use idem_rules::policy::Policy;
use idem_rules::transition::Event;
use pgrx::pg_sys::Datum;

use super::attempt::{Brought, ids, move_action};
use super::hold::{explained, holding};
use super::key_for_provider;
use crate::server::{self, Call, Value};
use crate::store::ledger::Entry;

/// `idem_dispatch(action_id, attempt_id)`
///
/// The mark must be on disk before the caller sends. So it commits by itself: a transaction that could still be
/// rolled back, or that goes on to do other things first, is refused.
pub fn idem_dispatch(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_dispatch()");
    let ids = ids(call)?;
    if !server::is_statement_of_its_own() {
        return Err(Error::new(
            Code::ActiveTransaction,
            "idem_dispatch() must be a statement of its own, outside a transaction block",
        )
        .detail(
            "Its mark has to be committed before the effect may leave; here it could still be rolled back.",
        )
        .hint(
            "COMMIT first; then call it in autocommit mode, not from a function, a DO block or a pipeline.",
        ));
    }
    // Looked at beside the row, each time that one is: `move_action` checks first and then asks for the event.
    let hold = RefCell::new(None);
    let look = |entry: &Entry, _: &Policy| {
        hold.replace(holding(call, entry.raw_tenant(), entry.raw_action_type())?);
        Ok(())
    };
    let event = |caller| Event::Dispatch { caller, held: hold.borrow().is_some() };
    let (_, action) = move_action(call, ids, event, look, Brought::default())
        .map_err(|error| explained(error, hold.borrow().as_deref()))?;
    server::commit_with_this_statement();
    server::force_sync_commit();
    let key = key_for_provider(call, ids.0, &action)?;
    Ok(call.value(Value::Uuid(key)))
}
