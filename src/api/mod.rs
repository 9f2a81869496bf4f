//! Every function users call: arguments in, one rule asked, its answer stored and shown.

pub mod approval;
pub mod attempt;
pub mod bind;
pub mod cache;
pub mod claim;
pub mod compensate;
pub mod decide;
pub mod dispatch;
pub mod due;
pub mod fingerprint;
pub mod hold;
pub mod identity;
pub mod inbox;
pub mod library;
pub mod metrics;
pub mod outbox;
mod pull;
pub mod reconcile;
pub mod reconcile_next;
pub mod relay;
pub mod reserve;
pub mod restore;
pub mod status;
pub mod sweep;

use std::rc::Rc;

use idem_rules::action::{Action, SECOND, Span};
use idem_rules::error::{Code, Error, Result};
use idem_rules::identity::provider_key;
use idem_rules::policy::{Policies, Policy};

use uuid::Uuid;

use crate::server::{self, Call, Value};
use crate::store;

/// What the provider gets as idempotency key for the present generation of an action.
fn key_for_provider(call: &Call, action_id: Uuid, action: &Action) -> Result<Uuid> {
    Ok(provider_key(store::installation::id(call)?, action_id, action.generation))
}

/// A length of time as users see it.
fn seconds<'a>(span: Span) -> Value<'a> {
    Value::Float(span as f64 / SECOND as f64)
}

/// Says in the log that a row which contradicts itself was left as it is, so that it does not keep all others waiting.
/// Any other error goes on. `out_of` names who left it out.
fn leave_out<T>(judged: Result<T>, out_of: &str) -> Result<Option<T>> {
    match judged {
        Err(error) if error.code == Code::Corrupted => {
            let line = format!("pg_idem: a row was left out of {out_of}: {}", error.message);
            server::log(Error { detail: error.detail, hint: error.hint, ..Error::new(Code::Success, line) });
            Ok(None)
        }
        other => other.map(Some),
    }
}

/// The two policies an existing action is judged by.
struct Judged {
    granted: Rc<Policy>,
    current: Rc<Policy>,
}

impl Judged {
    fn read(call: &Call, action: &Action, action_type: &str) -> Result<Judged> {
        let current = store::policy::current(call, action_type)?;
        let granted = match action.policy_version == current.version {
            true => Rc::clone(&current),
            false => store::policy::version(call, action_type, action.policy_version)?,
        };
        Ok(Judged { granted, current })
    }

    fn policies(&self) -> Policies<'_> {
        Policies { granted: &self.granted, current: &self.current }
    }
}
