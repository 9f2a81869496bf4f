//! Holds: an operator stops new effects of a tenant, of an action type, or of everything.
//!
//! What is held starts nothing: no grant, no claim, no dispatch. Replays, the ending of attempts, evidence and
//! reconciling go on, for they can only add to what is known.

use crate::error::{Code, Error, Result};

/// What a hold covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Every action of one tenant.
    Tenant,
    /// Every action of one type.
    ActionType,
}

impl Scope {
    /// The word in SQL.
    pub const fn word(self) -> &'static str {
        match self {
            Scope::Tenant => "tenant",
            Scope::ActionType => "action_type",
        }
    }

    /// The scope behind a word. Errors: 22023 for any other word.
    pub fn from_word(word: &str) -> Result<Scope> {
        [Scope::Tenant, Scope::ActionType].into_iter().find(|scope| scope.word() == word).ok_or_else(|| {
            Error::new(Code::InvalidParameter, "scope is not one of the known words")
                .hint("Use tenant or action_type; pg_idem.mode holds everything.")
        })
    }
}

/// Who or what holds an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hold {
    /// `pg_idem.mode`, with its value.
    Mode(&'static str),
    /// An operator's hold on a tenant or an action type.
    By {
        /// What it covers.
        scope: Scope,
        /// The role that holds it.
        role: String,
        /// Since when, as the server writes times.
        since: String,
    },
}

impl Hold {
    /// The refusal of a new effect: ID008, saying whom to ask.
    pub fn refusal(&self) -> Error {
        let error = Error::new(Code::Held, "the action is held by an operator");
        match self {
            Hold::Mode(mode) => error.detail(format!("pg_idem.mode is {mode}.")).hint(
                "Ask whoever runs this server; the setting is in its configuration. Replays and the ending of \
                 attempts still work.",
            ),
            Hold::By { scope, role, since } => {
                let (what, word) = match scope {
                    Scope::Tenant => ("tenant", "tenant"),
                    Scope::ActionType => ("action type", "action_type"),
                };
                error.detail(format!("Its {what} is held since {since} by role \"{role}\".")).hint(format!(
                    "Ask that role; the view idem_holds says why, and idem_unhold('{word}', …) lifts it. Replays and \
                     the ending of attempts still work."
                ))
            }
        }
    }
}

/// The refusal of every question while `pg_idem.mode = off`.
pub fn switched_off() -> Error {
    Error::new(Code::Held, "pg_idem is switched off").detail("pg_idem.mode is off.").hint(
        "Ask whoever runs this server. What is under way can still be ended; nothing is answered or started until \
         the setting is on again.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_round_trip() {
        for scope in [Scope::Tenant, Scope::ActionType] {
            assert_eq!(Scope::from_word(scope.word()), Ok(scope));
        }
        assert_eq!(Scope::from_word("Tenant").unwrap_err().code, Code::InvalidParameter);
    }

    #[test]
    fn a_refusal_says_whom_to_ask() {
        let by = |scope| Hold::By { scope, role: "ops".to_owned(), since: "noon".to_owned() }.refusal();
        for (refusal, detail) in [
            (by(Scope::Tenant), "Its tenant is held since noon by role \"ops\"."),
            (by(Scope::ActionType), "Its action type is held since noon by role \"ops\"."),
            (Hold::Mode("replay_only").refusal(), "pg_idem.mode is replay_only."),
            (switched_off(), "pg_idem.mode is off."),
        ] {
            assert_eq!((refusal.code, refusal.detail.as_deref()), (Code::Held, Some(detail)));
            assert!(refusal.hint.is_some());
        }
    }
}
