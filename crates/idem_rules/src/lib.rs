//! The rules of pg_idem as pure functions.
//!
//! Nothing here knows a clock, a random source, SQL or the server: time and random values are arguments,
//! so each rule can be tested, mutated and model-checked without a database.

pub mod action;
pub mod approval;
pub mod attempt;
pub mod canonical;
pub mod carry;
pub mod compensation;
pub mod document;
pub mod durable;
pub mod error;
pub mod event;
pub mod expiry;
pub mod fingerprint;
pub mod hold;
pub mod identity;
pub mod inbox;
pub mod jsonb;
pub mod lease;
pub mod look;
pub mod number;
pub mod outbox;
pub mod policy;
pub mod reconcile;
pub mod reserve;
pub mod restore;
pub mod transition;
mod writer;
