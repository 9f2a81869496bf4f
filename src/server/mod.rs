//! The only unsafe code, and the only code that differs between PostgreSQL majors.
//!
//! What a statement costs when it goes through SPI is mostly planning look-ups, executor start and stop, and
//! permission checks. This layer reads and writes our own tables below the executor: an index scan, a heap insert
//! with its index entries, a heap update. That is also why no search_path, no row-level security policy and no
//! privilege of the caller has a say in it: EXECUTE on the function is the one gate.
//!
//! Rules of the layer: everything that can raise goes through pgrx's guarded bindings, so a PostgreSQL error
//! unwinds Rust frames properly and is raised again at the boundary; nothing here catches one and goes on.

mod additions;
pub mod background;
mod call;
mod catalog;
pub mod direct;
mod drop;
mod heap;
mod pages;
pub mod query;
mod raise;
mod role;
mod rows;
mod scan;
mod shared;
mod statement;
mod table;
pub mod user_table;
mod values;
mod version;
mod xact;

pub use call::{Body, Call, Jsonb, Value, enter, finfo};
pub use catalog::{Column, Index, Spec, Type, generation};
pub use drop::guard_drops;
pub use heap::Changed;
pub use raise::{log, warn};
pub use role::{Role, inherits, outer_role, refuse_as_somebody_else, role_generation, session_role};
pub use rows::Rows;
pub use scan::{Bound, Key, Sight};
pub use shared::{Count, count, counted, remember_conflict, remembered_conflicts};
pub use statement::{commit_with_this_statement, is_statement_of_its_own};
pub use table::{Row, Table, serialization};
pub use values::{
    Values, json_of, json_time, jsonb_datum, text_datum, time_datum, time_of, uuid_datum, uuid_of,
};
pub use version::reserve_setting_names;
pub use xact::{
    End, Tick, assign_transaction_id, clock, encoding, force_sync_commit, has_transaction_id,
    in_subtransaction, is_current_transaction, oldest_running, on_transaction_end, random_fraction,
    random_uuid, refuse_read_only, repeatable_read, serve_interrupts, session_user_name, take_in_changes,
    tick, time_text,
};
