//! Whether a call is a statement of its own: what commits with it, and nothing else, when it returns.

use std::ffi::CStr;

use pgrx::pg_sys;

/// What the executor calls the memory of a running query; fixed in execUtils.c.
const QUERY: &CStr = c"ExecutorState";

/// True when the call stands in a client's statement outside a transaction block, so that the server commits as soon
/// as that statement is done.
///
/// False inside a transaction block, a subtransaction, several statements sent as one string, a pipeline after its
/// first statement, a function, a procedure or a DO block. The server does not tell an inlined SQL function from the
/// statement it was written into, nor what else the same statement does.
pub fn is_statement_of_its_own() -> bool {
    // SAFETY: looks at the backend's own transaction state.
    let in_block = unsafe { pg_sys::IsTransactionBlock() || pg_sys::IsSubTransaction() };
    // SAFETY: a plain variable of the backend.
    let flags = unsafe { pg_sys::MyXactFlags };
    let in_pipeline = flags as u32 & pg_sys::XACT_FLAGS_PIPELINING != 0;
    !in_block && !in_pipeline && queries_around() == Some(1)
}

/// How many queries are running around this call, the client's own included; `None` when something else than a
/// query stands between them, as under a procedural language.
///
/// A statement's query lives in its portal's memory, and a call's memory within its query's. What a function runs
/// lives elsewhere, or within the query that called the function.
fn queries_around() -> Option<usize> {
    let mut queries = 0;
    // SAFETY: contexts are linked to their parents up to the top one, whose parent is null; names are
    // NUL-terminated and live as long as their contexts.
    unsafe {
        let mut context = pg_sys::CurrentMemoryContext;
        while context != pg_sys::PortalContext {
            if context.is_null() {
                return None;
            }
            let name = CStr::from_ptr((*context).name);
            if name.to_bytes().starts_with(b"SPI ") {
                return None;
            }
            queries += usize::from(name == QUERY);
            context = (*context).parent;
        }
    }
    Some(queries)
}

/// Has the server commit as soon as the running statement is done, even at the beginning of a pipeline.
///
/// Only where [`is_statement_of_its_own`] is true: elsewhere the server raises.
pub fn commit_with_this_statement() {
    // SAFETY: sets a flag of the running transaction, or raises.
    unsafe { pg_sys::PreventInTransactionBlock(true, c"idem_dispatch()".as_ptr()) }
}
