//! Actions that a message carries: its relay is the one who executes them.

use crate::action::{Action, Flags, State, Time};
use crate::attempt::release;
use crate::error::{Code, Error, Result};
use crate::policy::{Effect, Policies};
use crate::transition::{Answer, Caller, Step};

/// A message is put that names the action.
///
/// It carries the action where that is open and its effect lies outside this database; then the answer is the state the
/// action waits in. Otherwise the message only tells of the action, and the answer is [`Answer::Nothing`].
///
/// Errors: 55000 when another message carries it, or somebody else's attempt is running; ID006 when the transaction's own
/// attempt has marked its dispatch.
pub(crate) fn carry(action: &Action, here: bool, policies: Policies, now: Time) -> Result<Step> {
    if action.state.is_terminal() || policies.current.effect == Effect::Local {
        return Ok(Step::unchanged(Answer::Nothing));
    }
    if action.flags.carried {
        return Err(Error::new(Code::WrongState, "a message carries the action already")
            .hint("One message executes one action: leave action_id out of the others."));
    }
    let mut step = match (action.state, action.attempt_id) {
        (State::Started, Some(attempt_id)) if here => {
            release(action, Caller { attempt_id, earlier: false }, policies, now)?
        }
        (State::Started, _) => {
            return Err(Error::new(
                Code::WrongState,
                "an attempt of another transaction is carrying the action out",
            )
            .hint(
                "Put the message in the transaction that reserves, or end or release that attempt first.",
            ));
        }
        _ => Step::to(action.clone(), Answer::Nothing),
    };
    let next = step.next.get_or_insert_with(|| action.clone());
    // What was withdrawn ends here, message or not.
    next.flags = Flags { carried: !next.state.is_terminal(), ..next.flags };
    step.answer = Answer::State(next.state);
    Ok(step.event("carried"))
}

/// The message is gone; whoever asks for the action next may have it as if there had been none.
pub(crate) fn let_go(action: &Action) -> Step {
    if !action.flags.carried {
        return Step::unchanged(Answer::Nothing);
    }
    let flags = Flags { carried: false, ..action.flags };
    let next = Action { flags, ..action.clone() };
    let answer = Answer::State(next.state);
    Step::to(next, answer).event("let_go")
}
