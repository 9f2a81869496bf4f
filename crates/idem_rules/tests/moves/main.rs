//! Every move of an action: how attempts are granted and end, how an unknown outcome is resolved, what people
//! may decide, what time alone does, and that nothing else moves.

#[path = "../common/mod.rs"]
mod common;

mod approving;
mod carrying;
mod committing;
mod compensating;
mod deciding;
mod failing;
mod granting;
mod lasting;
mod nothing_else;
mod owning;
mod resolving;
mod restoring;
mod retention;
mod taking_over;
