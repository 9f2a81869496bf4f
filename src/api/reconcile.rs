//! idem_add_evidence, idem_resolve

use std::borrow::Cow;

use idem_rules::action::State;
use idem_rules::error::Result;
use idem_rules::identity::check_text;
use idem_rules::transition::{Event, Evidence, Finding, Resolve};
use pgrx::pg_sys::Datum;

use super::attempt::{Brought, answered, ids, move_action, response, stored_text};
use crate::server::{self, Call, Value};
use crate::session;
use crate::store::history::Report;
use crate::store::ledger::Outcome;

/// `idem_add_evidence(action_id, attempt_id, finding, response, resource_id, external_request_id, note)`
pub fn idem_add_evidence(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_add_evidence()");
    let ids = ids(call)?;
    let finding = Finding::from_word(&call.required_text(2)?)?;
    let resource_id = call.text(4)?;
    check_text(call.name(4), resource_id.as_deref())?;
    let report = Report {
        finding: Some(finding.word()),
        resource_id: call.stored(4),
        external_request_id: stored_text(call, 5)?,
        note: stored_text(call, 6)?,
        response: response(call, 3).0,
        ..Report::default()
    };
    let event = |caller| Event::Evidence(Evidence { caller, finding, resource_id: resource_id.as_deref() });
    let (step, _) = move_action(
        call,
        ids,
        event,
        |_, _| Ok(()),
        Brought { report, by_any_attempt: true, ..Brought::default() },
    )?;
    Ok(answered(call, ids.0, &step))
}

/// `idem_resolve(action_id, attempt_id, finding, response, resource_id, external_request_id, evidence, …)`
pub fn idem_resolve(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_resolve()");
    let ids = ids(call)?;
    let finding = Finding::from_word(&call.required_text(2)?)?;
    let resource_id = call.text(4)?;
    check_text(call.name(4), resource_id.as_deref())?;
    let external_request_id = stored_text(call, 5)?;
    let next_probe = call.seconds(8)?;
    let random = server::random_fraction();
    let (kept, too_large) = response(call, 3);
    let brought = Brought {
        outcome: Outcome {
            response: kept.filter(|_| finding.is_positive()),
            response_too_large: too_large && finding.is_positive(),
            external_request_id,
            ..Outcome::default()
        },
        report: Report {
            finding: Some(finding.word()),
            resource_id: call.stored(4),
            external_request_id,
            response: kept,
            evidence: call.stored(6),
            candidates: call.stored(7),
            ..Report::default()
        },
        by_any_attempt: true,
        ..Brought::default()
    };
    let event = |caller| {
        let resource_id = resource_id.as_deref();
        Event::Resolve(Resolve { caller, finding, resource_id, next_probe, random })
    };
    let (_, action) = move_action(call, ids, event, |_, _| Ok(()), brought)?;
    session::ended(ids.0);
    let open = action.state == State::Unknown && !action.flags.escalated;
    let next_probe_at = action.due_at.filter(|_| open);
    call.row([Value::Text(Cow::Borrowed(action.state.word())), Value::or_null(next_probe_at, Value::Time)])
}
