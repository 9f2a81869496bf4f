//! Rows of users' tables, reached without a statement where nothing of a table's asks for one.
//!
//! A statement fires triggers, follows rules and policies, checks constraints and fills columns and index entries by
//! expressions. A table that has none of these runs nobody's code when it changes. It is changed here by the steps that are
//! left: a scan of an index, a new version in the heap, the entries in all its indexes, made by the executor's own function
//! for them. [`super::query`] does the same work for all other tables.

mod rows;
mod shape;

pub use rows::{Shown, Version, made_visible};
pub use shape::{Direct, Wanted};
