//! idem_escalate, idem_decide, idem_reopen: a person's part

use idem_rules::error::{Code, Error, Result};
use idem_rules::identity::check_text;
use idem_rules::policy::Policy;
use idem_rules::transition::{Decide, Event, Verdict};
use pgrx::pg_sys::Datum;

use super::attempt::{Brought, answered, move_action, response};
use super::compensate::{refuse_second, refuse_under_compensation};
use crate::server::{self, Call};
use crate::store::history::Report;
use crate::store::ledger::{Entry, Outcome};

/// The remark every such call has to give.
fn note(call: &Call, n: usize) -> Result<Option<Datum>> {
    check_text(call.name(n), Some(&call.required_text(n)?))?;
    Ok(call.stored(n))
}

/// Makes a person's move. No crash may take it back: it can take permission away.
fn moved(call: &Call, event: Event, brought: Brought) -> Result<Datum> {
    let action_id = call.required_uuid(0)?;
    let another_chance = match &event {
        Event::Reopen => true,
        Event::Decide(decide) => decide.verdict == Verdict::Retry,
        _ => false,
    };
    let did_not_happen = matches!(&event, Event::Decide(decide) if decide.verdict != Verdict::Applied);
    let check = |entry: &Entry, _: &Policy| {
        if another_chance {
            refuse_second(call, entry)?;
        }
        if did_not_happen { refuse_under_compensation(call, entry) } else { Ok(()) }
    };
    let (step, _) = move_action(call, (action_id, None), |_| event.clone(), check, brought)?;
    server::force_sync_commit();
    Ok(answered(call, action_id, &step))
}

fn with_note(note: Option<Datum>) -> Brought {
    Brought { report: Report { note, ..Report::default() }, ..Brought::default() }
}

/// `idem_escalate(action_id, note)`
pub fn idem_escalate(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_escalate()");
    let note = note(call, 1)?;
    moved(call, Event::Escalate, with_note(note))
}

/// `idem_reopen(action_id, note)`
pub fn idem_reopen(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_reopen()");
    server::refuse_as_somebody_else()?;
    let note = note(call, 1)?;
    moved(call, Event::Reopen, with_note(note))
}

/// `idem_decide(action_id, finding, note, response, resource_id)`
pub fn idem_decide(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_decide()");
    server::refuse_as_somebody_else()?;
    let verdict = match call.required_text(1)?.as_ref() {
        "applied" => Verdict::Applied,
        "not_applied" => Verdict::NotApplied,
        "retry" => Verdict::Retry,
        _ => {
            return Err(Error::new(Code::InvalidParameter, "finding must be applied, not_applied or retry")
                .hint("retry: it did not happen and shall be tried again."));
        }
    };
    let note = note(call, 2)?;
    let resource_id = call.text(4)?;
    check_text(call.name(4), resource_id.as_deref())?;
    let (kept, too_large) = response(call, 3);
    let applied = verdict == Verdict::Applied;
    let brought = Brought {
        outcome: Outcome {
            response: kept.filter(|_| applied),
            response_too_large: too_large && applied,
            ..Outcome::default()
        },
        report: Report { resource_id: call.stored(4), note, response: kept, ..Report::default() },
        by_a_person: true,
        ..Brought::default()
    };
    moved(call, Event::Decide(Decide { verdict, resource_id: resource_id.as_deref() }), brought)
}
