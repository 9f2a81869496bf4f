//! The functions of pg_idem on a server beside the pure rules.
//!
//! Whoever drives this makes a call in one of several sessions; [`row`] reads what is stored then, and [`judged`]
//! what the rules make of the same call. The server read its clock somewhere between two moments that the driver
//! took, so the rules are asked at both, and each time that is stored must lie between their two answers.

pub mod judged;
pub mod row;
