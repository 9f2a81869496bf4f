//! Compensation: a new action that offsets what another one did. The original stays as it is.

use crate::action::{Action, State, Time};
use crate::error::{Code, Error, Result};

/// True when `child` stands for its parent's compensation: it may still happen, or it has.
///
/// A tombstone may have been either; it is counted as one that happened.
pub fn is_live(child: State) -> bool {
    !matches!(child, State::Failed | State::Rejected)
}

/// True when a parent's record has to stay for `child`.
pub fn is_open(child: State) -> bool {
    !child.is_terminal()
}

/// Refuses a compensation of `parent` that must not be.
///
/// `itself`: the parent is a compensation. `live`: it has one already that [`is_live`].
///
/// Errors: ID003, with the reason.
pub fn check(parent: &Action, itself: bool, live: bool, now: Time) -> Result<()> {
    let refuse = |message: &'static str, hint: &'static str| {
        let detail = format!("The action is {}, attempt {}.", parent.state_at(now).word(), parent.attempt);
        Err(Error::new(Code::IllegalMove, message).detail(detail).hint(hint))
    };
    match parent.state_at(now) {
        _ if itself => refuse(
            "a compensation cannot be compensated",
            "Start a new action that does what has to be done now.",
        ),
        State::Committed if live => refuse(
            "the action has a compensation already",
            "Use its key again to carry it on; another one can follow when it failed or was rejected.",
        ),
        State::Committed => Ok(()),
        State::Started | State::Unknown => refuse(
            "whether the action happened is not known, so it cannot be compensated yet",
            "Reconcile it first: idem_reconcile_next and idem_resolve, or idem_decide by a person.",
        ),
        State::Expired => refuse(
            "the action's record is past its retention, so it cannot be compensated any more",
            "Start a new action; nothing here knows what the old one did.",
        ),
        _ => refuse("there is nothing to compensate: the action did not happen", "Nothing needs to be done."),
    }
}

/// Refuses another chance for a compensation whose place another one has taken.
pub fn refuse_replaced() -> Error {
    Error::new(Code::IllegalMove, "another compensation has taken the place of this one")
        .hint("One compensation of an action may be under way; carry on with that one.")
}
