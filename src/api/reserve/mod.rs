//! idem_reserve

use std::borrow::Cow;
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use idem_rules::action::{Action, SECOND, Span, State};
use idem_rules::error::{Code, Error, Result};
use idem_rules::policy::{Distinct, Policies, Policy};
use idem_rules::reserve::check_policy_version;
use idem_rules::transition::{Answer, Ask, Decision, Event, transition};
use pgrx::pg_sys::Datum;
use uuid::Uuid;

use super::hold::{explained, holding, refuse_when_off};
use super::{Judged, key_for_provider, seconds};
use crate::server::{self, Call, Changed, Count, Tick, Value};
use crate::session;
use crate::store::apply::{apply, hold};
use crate::store::history::{self, Kind, Report};
use crate::store::ledger::{Entry, Ledger, Outcome, Texts, misnamed};
use crate::store::lineage::{self, Direction};
use crate::store::{count, open::OpenActions, policy};

mod arguments;

pub use arguments::NAMES;
use arguments::{at, kept_request};

/// A caller told to come back because a transaction has not ended waits at least this long.
const TWIN_RETRY: Span = SECOND;

/// One call, its arguments checked.
struct Reserve<'a> {
    call: &'a Call,
    action_id: Uuid,
    action_type: Cow<'a, str>,
    /// The policy in force, and the generation of what is cached that it was read under.
    current: Rc<Policy>,
    generation: u64,
    ask: Ask,
    attempt_id_given: bool,
    /// The present attempt has to mark its dispatch before it learns its provider key.
    must_mark: bool,
    /// The action is only put forward for approval.
    proposes: bool,
    /// The name given for whoever does so.
    proposer: Option<Datum>,
    /// Keep the request, where the caller says so.
    store_request: Option<bool>,
    texts: Texts,
    patience: Patience,
    /// The decision that was put into the result row last.
    told: Cell<Option<Decision>>,
}

/// How long a call waits, and for what.
struct Patience {
    since: Option<Instant>,
    for_twin: Duration,
    for_outcome: Duration,
    pace: Tick,
}

impl Patience {
    /// Waits a little, unless `budget` is used up: then false.
    fn wait(&mut self, budget: Duration) -> bool {
        let waited = self.since.get_or_insert_with(Instant::now).elapsed();
        if waited >= budget {
            return false;
        }
        server::tick(&mut self.pace, budget - waited);
        true
    }
}

/// What a look at the ledger led to.
enum Look {
    /// The answer, in the function's result row.
    Answered(Datum),
    /// Another transaction has not ended: wait for it, then look again.
    Twin,
    /// Somebody is at it: wait for the outcome where the caller asked for that, else answer this.
    Running(Datum),
    /// Things changed meanwhile: look again at once.
    Again,
}

/// `idem_reserve(key, request, …)`
pub fn idem_reserve(call: &Call) -> Result<Datum> {
    server::refuse_read_only(c"idem_reserve()");
    refuse_when_off()?;
    answered(Reserve::read(call)?)
}

/// idem_propose: `call` has the parameters of idem_reserve.
pub(super) fn propose(call: &Call, proposer: Option<Datum>) -> Result<Datum> {
    refuse_when_off()?;
    answered(Reserve { proposes: true, proposer, ..Reserve::read(call)? })
}

/// Looks until there is an answer, or the caller's patience is over.
fn answered(mut reserve: Reserve) -> Result<Datum> {
    let mut contested = false;
    let row = loop {
        server::serve_interrupts();
        let budget = match reserve.look(&mut contested)? {
            Look::Answered(row) => break row,
            Look::Again => continue,
            Look::Running(row) => {
                let budget = reserve.patience.for_outcome;
                match reserve.patience.wait(budget) {
                    true => continue,
                    false => break row,
                }
            }
            Look::Twin => reserve.patience.for_twin,
        };
        if !reserve.patience.wait(budget) {
            break reserve.answer(Decision::Pending, Some(TWIN_RETRY), None, None)?;
        }
    };
    reserve.count();
    Ok(row)
}

impl Reserve<'_> {
    /// Looks at the ledger and does what the rules say. `contested` remembers that an insert met a rival.
    fn look(&mut self, contested: &mut bool) -> Result<Look> {
        // Asked at every look: a hold that came while this call was waiting stops it too.
        let hold = holding(self.call, self.call.raw(at::TENANT), self.call.raw(at::ACTION_TYPE))?;
        self.ask.held = hold.is_some();
        self.follow_policy()?;
        let ledger = Ledger::open(self.call)?;
        let looked = match ledger.find(self.action_id)? {
            Some(entry) => self.existing(&ledger, entry),
            None => self.first(&ledger, contested),
        };
        looked.map_err(|error| explained(error, hold.as_deref()))
    }

    /// Reads the policy again if anything changed since: a type that became more careful while this call was waiting
    /// is granted as carefully as it is now. Comes after the hold was asked, which takes in what others changed.
    fn follow_policy(&mut self) -> Result<()> {
        let generation = server::generation();
        if self.generation != generation {
            self.current = policy::current(self.call, &self.action_type)?;
            self.generation = generation;
            let (request, until_decided) = kept_request(self.call, self.store_request, &self.current);
            (self.texts.request, self.texts.request_until_decided) = (request, until_decided);
        }
        Ok(())
    }

    fn first(&mut self, ledger: &Ledger, contested: &mut bool) -> Result<Look> {
        // A rival's row that is not committed shows only to an insert. Once one was met, look before inserting
        // again: an insertion that is taken back leaves a dead row.
        if *contested && ledger.is_being_written(self.action_id) {
            return Ok(Look::Twin);
        }
        check_policy_version(self.call.int(at::POLICY_VERSION), &self.current)?;
        if self.current.requires_approval {
            self.check_proposal()?;
        }
        self.must_mark = self.current.marks_dispatch;
        self.make_token();
        server::assign_transaction_id();
        let now = server::clock();
        let step = transition(None, &self.event(), Policies::same(&self.current), now)?;
        let Some(new) = &step.next else { return Ok(Look::Again) };
        if ledger.insert(self.action_id, new, &self.texts) {
            if new.attempt > 0 {
                count::grant(new);
            }
            if let Some(place) = idem_rules::expiry::open(new, now) {
                let open = OpenActions::open(self.call)?;
                open.set(self.action_id, Some(place), self.texts.tenant, self.texts.action_type)?;
            }
            history::add_events(
                self.call,
                self.action_id,
                new.attempt,
                &step.events,
                Report { name: self.proposer, ..Report::default() },
                now,
            )?;
            return self.decided(step.answer, new, None).map(Look::Answered);
        }
        if ledger.is_being_written(self.action_id) {
            *contested = true;
            return Ok(Look::Twin);
        }
        if server::repeatable_read() {
            return Err(server::serialization());
        }
        Ok(Look::Again)
    }

    fn existing(&mut self, ledger: &Ledger, entry: Entry) -> Result<Look> {
        if !entry.is_named(self.call.raw(at::TENANT), self.call.raw(at::KEY)) {
            return Err(misnamed(self.action_id));
        }
        self.refuse_second_grant(&entry)?;
        let judged = match entry.action.policy_version == self.current.version {
            true => None,
            false => Some(Judged::read(self.call, &entry.action, &entry.action_type()?)?),
        };
        let current = Rc::clone(&self.current);
        let policies = judged.as_ref().map_or(Policies::same(&current), Judged::policies);
        self.must_mark = policies.granted.marks_dispatch;
        self.ask.attempt_id_used = self.has_been_used(&entry)?;
        self.ask.carried = entry.action.flags.carried;
        let step = transition(Some(&entry.action), &self.event(), policies, server::clock())?;
        let Answer::Decided(decision, wait) = step.answer else { return Ok(Look::Again) };
        // An approver has to see the request: one that was not kept is kept again.
        let fills = decision == Decision::AwaitingApproval
            && entry.request().is_none()
            && self.texts.request.is_some();
        let moves = step.next.is_some() || decision.owns() || fills;
        let locks = moves || (server::repeatable_read() && !entry.action.state.is_terminal());
        if !locks {
            self.log_conflict(decision);
            let row = self.answer(decision, wait, Some(&entry.action), Some(&entry))?;
            let running = decision == Decision::Pending && entry.action.state == State::Started;
            return Ok(if running { Look::Running(row) } else { Look::Answered(row) });
        }
        // What was decided without the lock is decided again with it, at the time that holds then.
        self.make_token();
        server::assign_transaction_id();
        if decision.owns() {
            match hold(self.call, ledger, &entry)? {
                Changed::Done => {}
                Changed::Busy => return Ok(Look::Twin),
                Changed::Gone if server::repeatable_read() => return Err(server::serialization()),
                Changed::Gone => return Ok(Look::Again),
            }
        }
        let now = server::clock();
        let step = transition(Some(&entry.action), &self.event(), policies, now)?;
        let proposed = matches!(step.answer, Answer::Decided(Decision::AwaitingApproval, _));
        let granted = matches!(step.answer, Answer::Decided(Decision::Execute, _));
        if granted {
            self.must_mark = policies.current.marks_dispatch;
        }
        let reconciles = matches!(step.answer, Answer::Decided(Decision::Reconcile, _));
        let outcome = Outcome {
            worker: self.texts.worker.filter(|_| granted),
            request: self
                .texts
                .request
                .filter(|_| proposed || (granted && self.store_request != Some(false))),
            ..Outcome::default()
        };
        // Who carries it out stands in the ledger, who finds out in the history.
        let report = Report { note: self.texts.worker.filter(|_| reconciles), ..Report::default() };
        let changed = match step.next {
            Some(_) => apply(self.call, ledger, &entry, &step, outcome, report, now)?,
            None if fills && proposed => ledger.update(&entry, &entry.action, outcome),
            None => ledger.lock(&entry, false),
        };
        match changed {
            Changed::Busy => Ok(Look::Twin),
            Changed::Gone if server::repeatable_read() => Err(server::serialization()),
            Changed::Gone => Ok(Look::Again),
            Changed::Done => {
                let action = step.next.as_ref().unwrap_or(&entry.action);
                self.decided(step.answer, action, Some(&entry)).map(Look::Answered)
            }
        }
    }

    fn event(&self) -> Event<'static> {
        if self.proposes { Event::Propose(self.ask) } else { Event::Reserve(self.ask) }
    }

    /// What an approver will need of a new proposal.
    fn check_proposal(&self) -> Result<()> {
        let refused = |message, hint| Err(Error::new(Code::InvalidParameter, message).hint(hint));
        if self.texts.request.is_none() {
            return refused(
                "an action that needs approval must come with its request",
                "Pass request: an approver cannot look at a fingerprint.",
            );
        }
        if self.current.distinct_approver == Distinct::Name && self.proposer.is_none() {
            return refused(
                "the action type tells proposer and approver apart by name, and no proposer is named",
                "Put it forward with idem_propose(…, proposer => …), then reserve it.",
            );
        }
        Ok(())
    }

    /// The token a grant will carry: made only once a grant is near, random bytes are not free.
    fn make_token(&mut self) {
        if self.ask.attempt_id.is_nil() {
            self.ask.attempt_id = server::random_uuid();
        }
    }

    fn has_been_used(&self, entry: &Entry) -> Result<bool> {
        let action = &entry.action;
        if !self.attempt_id_given || action.state.is_terminal() {
            return Ok(false);
        }
        let token = Some(self.ask.attempt_id);
        Ok(action.attempt_id == token
            || action.reconcile_id == token
            || history::has_attempt(self.call, self.action_id, self.ask.attempt_id, Kind::Any)?)
    }

    /// An attempt granted to this very transaction is not granted to it again.
    fn refuse_second_grant(&self, entry: &Entry) -> Result<()> {
        let action = &entry.action;
        if action.fingerprint != self.ask.fingerprint {
            return Ok(());
        }
        let owner = match action.state {
            State::Started => action.attempt_id,
            State::Unknown if action.reconcile_lease_expires_at.is_some() => action.reconcile_id,
            _ => return Ok(()),
        };
        if session::was_granted_here(self.action_id, owner, entry.writer()) {
            return Err(Error::new(Code::WrongState, "the action was granted to this same transaction")
                .detail(format!("action_id {}", self.action_id))
                .hint(
                    "Write SELECT * FROM idem_reserve(…): (idem_reserve(…)).* calls it once for each column.",
                ));
        }
        Ok(())
    }

    /// Counts what the caller was told, where it was not a grant: grants are counted where they are stored.
    fn count(&self) {
        match self.told.get() {
            Some(Decision::Conflict) => {
                server::count(Count::Conflicts);
                server::remember_conflict(self.action_id, &self.action_type, server::clock());
            }
            None | Some(Decision::AwaitingApproval | Decision::Reconcile) => {}
            Some(decision) if decision.is_granted() => {}
            Some(_) => server::count(Count::DuplicatesSuppressed),
        }
    }

    fn log_conflict(&self, decision: Decision) {
        if decision == Decision::Conflict && session::may_log_conflict(&self.action_type, server::clock()) {
            let facts = format!("action_id {}, action type \"{}\"", self.action_id, self.action_type);
            server::log(
                Error::new(Code::Success, "pg_idem: a key was used again for another request").detail(facts),
            );
        }
    }

    fn decided(&self, answer: Answer, action: &Action, entry: Option<&Entry>) -> Result<Datum> {
        let Answer::Decided(decision, wait) = answer else {
            return Err(Error::new(Code::Corrupted, "the rules gave no decision"));
        };
        if decision.owns() {
            session::granted(self.action_id, self.ask.attempt_id);
        }
        if matches!(decision, Decision::Execute | Decision::AwaitingApproval)
            && let Some(message) = session::accepted_last()
        {
            let (id, consumer) = (&message.message_id, &message.consumer);
            let tenant = self.texts.tenant;
            lineage::link(self.call, self.action_id, Direction::In, id, consumer, tenant, server::clock())?;
        }
        self.answer(decision, wait, Some(action), entry)
    }

    /// The result row. Of an action that another request's key met, nothing is shown.
    fn answer(
        &self,
        decision: Decision,
        wait: Option<Span>,
        action: Option<&Action>,
        entry: Option<&Entry>,
    ) -> Result<Datum> {
        self.told.set(Some(decision));
        let now = server::clock();
        let action = action.filter(|_| decision != Decision::Conflict);
        let response_state = entry.and_then(|entry| action.and(entry.response_state(now)));
        let entry = entry.filter(|_| action.is_some_and(|action| action.state_at(now) != State::Expired));
        let owner = action.filter(|_| decision.owns());
        let key_shown = owner.filter(|_| decision == Decision::Reconcile || !self.must_mark);
        let provider =
            key_shown.map(|action| key_for_provider(self.call, self.action_id, action)).transpose()?;
        let lease = action.and_then(|action| match action.state {
            State::Started => action.lease_expires_at,
            State::Unknown => action.reconcile_lease_expires_at,
            _ => None,
        });
        let replayed = entry.filter(|_| decision == Decision::Replay);
        let datum = |datum: Option<Datum>| Value::or_null(datum, Value::Datum);
        self.call.row([
            Value::Bool(decision.is_granted()),
            Value::Text(Cow::Borrowed(decision.word())),
            Value::Uuid(self.action_id),
            Value::or_null(owner, |_| Value::Uuid(self.ask.attempt_id)),
            Value::or_null(owner, |action| Value::Big(action.fence)),
            Value::or_null(action, |action| Value::Int(action.attempt)),
            Value::or_null(action, |action| Value::Text(Cow::Borrowed(action.state_at(now).word()))),
            Value::or_null(lease, Value::Time),
            Value::or_null(wait, seconds),
            datum(replayed.and_then(Entry::response)),
            Value::or_null(response_state, |word| Value::Text(word.into())),
            Value::or_null(entry.and(action).and_then(|action| action.resource_id.as_deref()), |id| {
                Value::Text(Cow::Borrowed(id))
            }),
            datum(entry.and_then(Entry::external_request_id)),
            datum(entry.and_then(Entry::error)),
            Value::or_null(provider, Value::Uuid),
        ])
    }
}
