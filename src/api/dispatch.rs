//! idem_dispatch: the last gate before the effect

use idem_rules::error::{Code, Error, Result};
use idem_rules::identity::provider_key;
use idem_rules::transition::Event;
use pgrx::pg_sys::Datum;

use super::attempt::{Brought, ids, move_action};
use crate::server::{self, Call, Value};
use crate::store::installation;

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
    let event = |caller| Event::Dispatch { caller, held: false };
    let (_, action) = move_action(call, ids, event, |_, _| Ok(()), Brought::default())?;
    server::commit_with_this_statement();
    server::force_sync_commit();
    let key = provider_key(installation::id(call)?, ids.0, action.generation);
    Ok(call.value(Value::Uuid(key)))
}
