//! Every function users call: arguments in, one rule asked, its answer stored and shown.

pub mod approval;
pub mod attempt;
pub mod bind;
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
pub mod policy;
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
use idem_rules::error::Result;
use idem_rules::policy::{Policies, Policy};

use crate::server::{Call, Value};
use crate::store;

/// A length of time as users see it.
fn seconds<'a>(span: Span) -> Value<'a> {
    Value::Float(span as f64 / SECOND as f64)
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
