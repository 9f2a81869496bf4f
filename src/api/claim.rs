//! idem_outbox_claim: which messages a relay gets, and the attempts that come with them

use idem_rules::action::{SECOND, Span, Time};
use idem_rules::error::{Code, Error, Result};
use idem_rules::outbox::{self as rules, Carried, Claim, ClaimId};
use idem_rules::transition::{Answer, Ask, Event, transition};
use pgrx::pg_sys::Datum;
use uuid::Uuid;

use super::attempt::stored_text;
use super::hold::{holding, refuse_unless_on};
use super::relay::{NOT_ITS_ACTION, is_carrier, is_own};
use super::{Judged, key_for_provider};
use crate::server::query;
use crate::server::user_table::Privilege;
use crate::server::{self, Call, Changed, Rows, Value};
use crate::session;
use crate::store::apply::{apply, hold};
use crate::store::bound;
use crate::store::history::Report;
use crate::store::ledger::{Ledger, Outcome};
use crate::store::outbox::{Claiming, Found, Outbox};

/// Messages of a claim that says nothing.
const DEFAULT_MAX: i32 = 10;

/// Lease of a claim that says nothing.
const DEFAULT_LEASE: Span = 30 * SECOND;

/// Why a message is dead whose last relay died.
const NOT_HEARD_OF: &str = "the last relay was not heard of again";

/// Why a message is dead whose action has ended without its effect.
const ACTION_ENDED: &str = "the action has ended without its effect";

/// The same of one whose record is past its retention: a message that is buried as without its effect may be repeated.
const ACTION_FORGOTTEN: &str = "the action's record is past its retention; its effect may have happened";

/// An attempt that a claim was granted.
struct Grant {
    attempt_id: Uuid,
    fence: i64,
    until: Time,
    provider_key: Option<Uuid>,
}

/// `idem_outbox_claim(outbox, max, lease_seconds, relay)`
pub fn idem_outbox_claim(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_outbox_claim()");
    refuse_unless_on()?;
    let max = rules::check_max(call.int(1).unwrap_or(DEFAULT_MAX))?;
    let lease = rules::check_lease(call.seconds(2)?.unwrap_or(DEFAULT_LEASE))?;
    let relay = stored_text(call, 3)?;
    let outbox = Outbox::open(call, Privilege::Manage)?;
    let mut rows = Rows::begin(call)?;
    query::as_owner(outbox.table, || {
        // Nothing, only because others were quicker: there may be more.
        while claim(call, &outbox, max, (lease, relay), &mut rows)? == Looked::TooLate {
            server::serve_interrupts();
        }
        Ok(())
    })?;
    Ok(rows.end())
}

/// What a look for messages came to.
#[derive(PartialEq, Eq)]
enum Looked {
    /// There are no more than those it has brought.
    Done,
    /// Others got hold of all there were.
    TooLate,
}

/// Looks for messages once, and shows those that are claimed now.
fn claim(
    call: &Call,
    outbox: &Outbox,
    max: i64,
    (lease, relay): (Span, Option<Datum>),
    rows: &mut Rows,
) -> Result<Looked> {
    let found = candidates(call, outbox, max)?;
    let places = found.iter().map(Found::seq);
    let (first, last) = (places.clone().min().unwrap_or(0), places.max().unwrap_or(0));
    // Read now that the rows are locked, or will change only if they are still what they were.
    let now = server::clock();
    let claim_id = ClaimId::new(first, last, server::random_uuid().into_bytes()).0;
    let claiming = Claiming { claim_id, until: now.saturating_add(lease), relay };
    let (mut plain, mut granted, mut lost) = (Vec::new(), Vec::new(), false);
    for message in found {
        let claim = rules::claim(&message.message, outbox.options.max_attempts, now);
        match (claim, message.carries()) {
            (Claim::Leave, _) => {}
            (Claim::Take, None) => plain.push(message),
            _ if !outbox.hold(&message) => lost = true,
            (Claim::Bury, _) => outbox.bury(&message, now, Some(server::text_datum(NOT_HEARD_OF))),
            (Claim::Take, Some(action_id)) => {
                if let Some(grant) = start(call, outbox, &message, action_id, lease, relay)? {
                    outbox.take_carried(&message, &claiming, grant.fence, grant.until)?;
                    granted.push((message, Some(grant)));
                }
            }
        }
    }
    let wanted = plain.len();
    let taken = outbox.take(plain, &claiming)?;
    lost |= taken.len() < wanted;
    granted.extend(taken.into_iter().map(|message| (message, None)));
    granted.sort_by_key(|(message, _)| message.seq());
    for (message, grant) in &granted {
        show(rows, message, grant.as_ref(), &claiming)?;
    }
    Ok(if granted.is_empty() && lost { Looked::TooLate } else { Looked::Done })
}

/// Messages that may be claimed, those that failed before at most half unless there is room.
fn candidates(call: &Call, outbox: &Outbox, max: i64) -> Result<Vec<Found>> {
    let now = server::clock();
    let (from, turn) = outbox.begin_claim(now);
    outbox.expire(now, 2 * max);
    if !bound::sees(call, None)? {
        let ledger = Ledger::open(call)?;
        let found = outbox.some_ones(from, now, max, |action_id| is_own(call, &ledger, action_id))?;
        outbox.mind_cursor(from, turn);
        return Ok(found);
    }
    // A claim that has no room for them leaves the time to the next one.
    let share = match rules::retried_share(max, turn) {
        share if share > 0 && outbox.cursor.is_time_for_retries(now) => share,
        _ => 0,
    };
    let mut found = if share > 0 { outbox.retried_ones(now, share) } else { Vec::new() };
    let new = outbox.new_ones(from, now, max - found.len() as i64);
    let room = max - new.len() as i64;
    if found.len() as i64 == share && share < room {
        found = outbox.retried_ones(now, room);
    }
    outbox.mind_cursor(from, turn);
    found.extend(new);
    Ok(found)
}

/// Asks for the action that a message carries. `None`: there is no attempt for this claim, and the message has been put
/// where it belongs.
fn start(
    call: &Call,
    outbox: &Outbox,
    message: &Found,
    action_id: Uuid,
    lease: Span,
    relay: Option<Datum>,
) -> Result<Option<Grant>> {
    let now = server::clock();
    let ledger = Ledger::open(call)?;
    let Some(entry) = ledger.find(action_id)? else {
        outbox.bury(message, now, Some(server::text_datum(ACTION_FORGOTTEN)));
        return Ok(None);
    };
    // Once more, now that the message is locked.
    if !bound::sees(call, Some(entry.raw_tenant()))? {
        return Ok(None);
    }
    if !is_carrier(call, outbox, message, &entry)? {
        outbox.bury(message, now, Some(server::text_datum(NOT_ITS_ACTION)));
        return Ok(None);
    }
    if let Some(over) = rules::ended(entry.action.state) {
        put_away(outbox, message, over, now);
        return Ok(None);
    }
    let judged = Judged::read(call, &entry.action, &entry.action_type()?)?;
    let attempt_id = server::random_uuid();
    let held = holding(call, entry.raw_tenant(), entry.raw_action_type())?;
    let ask = Ask {
        fingerprint: entry.action.fingerprint,
        scheme: entry.action.scheme,
        attempt_id,
        attempt_id_used: false,
        lease: Some(lease.min(judged.current.max_lease)),
        ttl: None,
        can_reconcile: false,
        // It is the carrier that asks.
        carried: false,
        held: held.is_some(),
    };
    let judge = |now| transition(Some(&entry.action), &Event::Reserve(ask), judged.policies(), now);
    let mut now = now;
    // What changes the action is decided again when nothing can be waited for any more.
    if judge(now).is_ok_and(|step| step.next.is_some()) {
        if hold(call, &ledger, &entry)? != Changed::Done {
            // Somebody else is at the action: the message stays as it is, and the next claim looks again.
            return Ok(None);
        }
        now = server::clock();
    }
    let step = match judge(now) {
        Ok(step) => step,
        // One action that cannot be had must not keep the others' relay from working.
        Err(error) => {
            if error.code != Code::Held {
                server::log(
                    Error::new(Code::Success, "pg_idem: a message's action was refused")
                        .detail(error.message),
                );
            }
            outbox.rest(message, rules::look_again(None, message.created_at(), now));
            return Ok(None);
        }
    };
    if step.next.is_some() || !step.events.is_empty() {
        let outcome = Outcome { worker: relay, ..Outcome::default() };
        if apply(call, &ledger, &entry, &step, outcome, Report::default(), now)? != Changed::Done {
            return Ok(None);
        }
    }
    let Answer::Decided(decision, wait) = step.answer else {
        return Err(Error::new(Code::Corrupted, "the rules gave no decision"));
    };
    let becomes = rules::carried(decision, wait, message.created_at(), now);
    if becomes != Carried::Granted {
        put_away(outbox, message, becomes, now);
        return Ok(None);
    }
    session::granted(action_id, attempt_id);
    let after = step.next.as_ref().unwrap_or(&entry.action);
    let provider_key = match judged.current.marks_dispatch {
        true => None,
        false => Some(key_for_provider(call, action_id, after)?),
    };
    Ok(Some(Grant {
        attempt_id,
        fence: after.fence,
        until: after.lease_expires_at.unwrap_or(now),
        provider_key,
    }))
}

/// Puts a message where it belongs that is not claimed.
fn put_away(outbox: &Outbox, message: &Found, becomes: Carried, now: Time) {
    match becomes {
        Carried::Granted => {}
        Carried::Wait(until) => outbox.rest(message, until),
        Carried::Done => outbox.finish(message, now),
        Carried::Dead => outbox.bury(message, now, Some(server::text_datum(ACTION_ENDED))),
        Carried::Forgotten => outbox.bury(message, now, Some(server::text_datum(ACTION_FORGOTTEN))),
    }
}

fn show(rows: &mut Rows, message: &Found, grant: Option<&Grant>, claiming: &Claiming) -> Result<()> {
    let datum = |n| Value::or_null(message.content(n), Value::Datum);
    rows.add([
        Value::Uuid(message.id()),
        datum(0),
        datum(1),
        datum(2),
        datum(3),
        datum(4),
        Value::or_null(message.action_id(), Value::Uuid),
        Value::Time(message.created_at()),
        Value::Uuid(claiming.claim_id),
        Value::Int(message.message.attempts + 1),
        Value::or_null(grant, |grant| Value::Uuid(grant.attempt_id)),
        Value::or_null(grant, |grant| Value::Big(grant.fence)),
        Value::or_null(grant.and_then(|grant| grant.provider_key), Value::Uuid),
        Value::Time(grant.map_or(claiming.until, |grant| grant.until)),
    ])
}
