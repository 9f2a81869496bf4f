//! idem_after_restore

use idem_rules::error::{Code, Error, Result};
use idem_rules::identity::check_text;
use idem_rules::transition::{Event, transition};
use pgrx::pg_sys::Datum;

use super::bind::refuse_bound;
use super::{Judged, leave_out};
use crate::server::{self, Call, Changed, Value};
use crate::store::apply::apply;
use crate::store::history::Report;
use crate::store::installation;
use crate::store::ledger::{Entry, Ledger, Outcome};

/// `idem_after_restore(note, as_copy)`
///
/// One transaction, alone with the ledger: everything that was granted before it belongs to the older epoch, and
/// everything after its COMMIT to the new one.
pub fn idem_after_restore(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_after_restore()");
    check_text(call.name(0), Some(&call.required_text(0)?))?;
    refuse_bound(call)?;
    if server::repeatable_read() {
        return Err(Error::new(Code::WrongState, "idem_after_restore() needs READ COMMITTED").hint(
            "An older snapshot would miss what was committed since. Call it in a transaction of that level.",
        ));
    }
    let ledger = Ledger::open_alone(call)?;
    let report = Report { note: call.stored(0), ..Report::default() };
    let mut turned = 0;
    ledger.each(|entry| {
        server::serve_interrupts();
        turned += i64::from(turn(call, &ledger, entry, report)?);
        Ok(true)
    })?;
    let as_copy = call.bool(1).unwrap_or(false);
    if as_copy {
        installation::renew(call, server::clock())?;
    }
    server::force_sync_commit();
    let copy = if as_copy { ", as a copy with a new installation id" } else { "" };
    let line = format!("pg_idem: idem_after_restore turned {turned} actions unknown{copy}");
    server::log(Error::new(Code::Success, line));
    call.row([Value::Big(turned)])
}

/// Turns one action unknown. False when it is ended, or cannot be read: then nothing is served from it either.
fn turn(call: &Call, ledger: &Ledger, entry: Result<Entry>, report: Report) -> Result<bool> {
    let judged = entry.and_then(|entry| {
        let judged = Judged::read(call, &entry.action, &entry.action_type()?)?;
        Ok((entry, judged))
    });
    let Some((entry, judged)) = leave_out(judged, "idem_after_restore")? else { return Ok(false) };
    let now = server::clock();
    let step = transition(Some(&entry.action), &Event::Restore, judged.policies(), now)?;
    if step.next.is_none() {
        return Ok(false);
    }
    match apply(call, ledger, &entry, &step, Outcome::default(), report, now)? {
        Changed::Done => Ok(true),
        // Nobody else has the ledger, and each row comes once.
        _ => Err(server::serialization()),
    }
}
