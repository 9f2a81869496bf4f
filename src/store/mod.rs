//! What is stored: one file per word, each the only one that knows its table's columns.

pub mod apply;
pub mod bound;
mod columns;
pub mod compensation;
pub mod count;
pub mod cursor;
pub mod history;
pub mod hold;
pub mod inbox;
pub mod installation;
pub mod ledger;
pub mod lineage;
pub mod open;
pub mod outbox;
pub mod policy;
