//! The ledger: one row an action, `idem_action`.
//!
//! A first-try action costs one insert and one heap-only update here, and nothing anywhere else. The two indexes
//! name columns that are written at INSERT only (`action_id`, `visit_at`): an index on anything that changes would
//! end heap-only updates. Columns that a commit changes come last, so that its WAL record leaves out the rest.

use idem_rules::action::{Action, Flags, State, Time};
use idem_rules::error::{Code, Error, Result};
use pgrx::pg_sys::Datum;
use uuid::Uuid;

use super::columns::{SPEC, at};
use crate::server::{Bound, Call, Changed, Key, Row, Table, Values};

/// Bit of `flags` that no rule reads: a response was left out because it was too large.
const RESPONSE_TOO_LARGE: i32 = 1 << 16;

/// Bit of `flags` that no rule reads: the request is kept only until the proposal is decided.
const REQUEST_UNTIL_DECIDED: i32 = 1 << 17;

/// The ledger, open.
pub struct Ledger(Table);

/// One version of an action's row.
pub struct Entry {
    row: Row,
    /// What the rules see of it.
    pub action: Action,
    /// Its identity.
    pub action_id: Uuid,
}

/// The texts and documents an action is stored with; none of them is read by a rule.
#[derive(Default)]
pub struct Texts {
    /// Whose action it is.
    pub tenant: Option<Datum>,
    /// Its name within the tenant.
    pub key: Option<Datum>,
    /// Its type.
    pub action_type: Option<Datum>,
    /// Who it is for.
    pub actor: Option<Datum>,
    /// What it is done to.
    pub target: Option<Datum>,
    /// Who carries it out.
    pub worker: Option<Datum>,
    /// The workflow it belongs to.
    pub workflow_id: Option<Datum>,
    /// The session it was asked for in.
    pub session_id: Option<Datum>,
    /// The version of the request's schema.
    pub payload_version: Option<Datum>,
    /// The request itself, where it is kept.
    pub request: Option<Datum>,
    /// The request is kept only until the proposal is decided.
    pub request_until_decided: bool,
}

/// What an attempt's end brings along.
#[derive(Default, Clone, Copy)]
pub struct Outcome {
    /// The answer to replay.
    pub response: Option<Datum>,
    /// The answer was too large to keep.
    pub response_too_large: bool,
    /// The provider's name for the request.
    pub external_request_id: Option<Datum>,
    /// What went wrong, as a document.
    pub error: Option<Datum>,
    /// What went wrong, in words.
    pub reason: Option<Datum>,
    /// Who carries out the attempt that begins.
    pub worker: Option<Datum>,
    /// The request, where it is to be kept from now on.
    pub request: Option<Datum>,
}

impl Ledger {
    /// Opens the ledger.
    pub fn open(call: &Call) -> Result<Ledger> {
        Table::open(call, &SPEC).map(Ledger)
    }

    /// Opens the ledger once nobody else uses it, and keeps everybody else out until the transaction ends.
    pub fn open_alone(call: &Call) -> Result<Ledger> {
        Table::open_alone(call, &SPEC).map(Ledger)
    }

    /// Every row, in the order of `visit_at`, until `take` says false. What `take` leaves in the server's memory is
    /// let go after each row.
    pub fn each(&self, mut take: impl FnMut(Result<Entry>) -> Result<bool>) -> Result<()> {
        self.0.each_letting_go(1, &[], |row| {
            let action_id = row.values.uuid(at::ACTION_ID).unwrap_or_default();
            take(Entry::read(row, action_id))
        })
    }

    /// The row of `action_id` as a fresh look sees it (under REPEATABLE READ: as the transaction sees it).
    pub fn find(&self, action_id: Uuid) -> Result<Option<Entry>> {
        self.0.find(0, &[Key(1, Bound::Uuid(action_id))]).map(|row| Entry::read(row, action_id)).transpose()
    }

    /// The row of `action_id` as it is at this moment, whatever the transaction sees.
    pub fn find_now(&self, action_id: Uuid) -> Result<Option<Entry>> {
        let row = self.0.find_now(0, &[Key(1, Bound::Uuid(action_id))]);
        row.map(|row| Entry::read(row, action_id)).transpose()
    }

    /// True while another transaction that has not ended yet inserts or changes the row of `action_id`.
    pub fn is_being_written(&self, action_id: Uuid) -> bool {
        self.0.is_being_written(0, &[Key(1, Bound::Uuid(action_id))])
    }

    /// Rows whose `visit_at` lies in `after < visit_at <= up_to`, in that order, until `take` says false.
    pub fn each_visit(
        &self,
        after: Time,
        up_to: Time,
        mut take: impl FnMut(Time, Result<Entry>) -> Result<bool>,
    ) -> Result<()> {
        let keys = [Key(1, Bound::After(after)), Key(1, Bound::UpTo(up_to))];
        self.0.each(1, &keys, |row| {
            let action_id = row.values.uuid(at::ACTION_ID).unwrap_or_default();
            let visit_at = row.values.time(at::VISIT_AT).unwrap_or(Time::MIN);
            take(visit_at, Entry::read(row, action_id))
        })
    }

    /// Adds a new action unless there is one, seen or not yet committed. True when it was added.
    pub fn insert(&self, action_id: Uuid, action: &Action, texts: &Texts) -> bool {
        let mut values = Values::new();
        values.set_uuid(at::ACTION_ID, Some(action_id));
        values.set_time(at::CREATED_AT, Some(action.created_at));
        values.set_time(at::VISIT_AT, Some(action.visit_at));
        values.set_small(at::SCHEME, action.scheme);
        values.set_bytes(at::FINGERPRINT, Some(&action.fingerprint));
        let columns = [
            (at::TENANT, texts.tenant),
            (at::KEY, texts.key),
            (at::ACTION_TYPE, texts.action_type),
            (at::ACTOR, texts.actor),
            (at::TARGET, texts.target),
            (at::WORKER, texts.worker),
            (at::WORKFLOW_ID, texts.workflow_id),
            (at::SESSION_ID, texts.session_id),
            (at::PAYLOAD_VERSION, texts.payload_version),
            (at::REQUEST, texts.request),
        ];
        for (column, datum) in columns {
            values.set(column, datum);
        }
        write_moving(&mut values, action);
        if texts.request_until_decided {
            values.set_count(at::FLAGS, action.flags.to_bits() | REQUEST_UNTIL_DECIDED);
        }
        self.0.insert_unless_present(&values)
    }

    /// Puts `next` and what came with it in the place of `entry`, without waiting.
    pub fn update(&self, entry: &Entry, next: &Action, outcome: Outcome) -> Changed {
        let mut values = entry.row.values.clone();
        let flags = values.count(at::FLAGS) & RESPONSE_TOO_LARGE;
        let until_decided = values.count(at::FLAGS) & REQUEST_UNTIL_DECIDED;
        write_moving(&mut values, next);
        // What went wrong belongs to the attempt that ends now, and goes with the next one's end.
        if next.state != entry.action.state && next.state != State::Started {
            values.set(at::ERROR, None);
            values.set(at::REASON, None);
        }
        // Whoever decided that it did not happen has also decided that this was not its answer.
        let flags = match (entry.action.state, next.state) {
            (State::Committed, State::Committed | State::Expired) => flags,
            (State::Committed, _) => {
                values.set(at::RESPONSE, None);
                0
            }
            _ => flags,
        };
        let too_large = if outcome.response_too_large { RESPONSE_TOO_LARGE } else { flags };
        values.set_count(at::FLAGS, next.flags.to_bits() | too_large | until_decided);
        if until_decided != 0 && next.state != State::Proposed {
            values.set(at::REQUEST, None);
        }
        if next.attempt != entry.action.attempt {
            values.set(at::WORKER, None);
        }
        let columns = [
            (at::RESPONSE, outcome.response),
            (at::EXTERNAL_REQUEST_ID, outcome.external_request_id),
            (at::ERROR, outcome.error),
            (at::REASON, outcome.reason),
            (at::WORKER, outcome.worker),
            (at::REQUEST, outcome.request),
        ];
        for (column, datum) in columns {
            if datum.is_some() {
                values.set(column, datum);
            }
        }
        if next.state == State::Expired {
            scrub(&mut values);
        }
        self.0.update(&entry.row, &values)
    }

    /// Takes back what this transaction has put in the place of `entry`.
    pub fn put_back(&self, entry: &Entry) -> Result<()> {
        let row = self.0.find(0, &[Key(1, Bound::Uuid(entry.action_id))]);
        match row.map(|row| self.0.update(&row, &entry.row.values)) {
            Some(Changed::Done) => Ok(()),
            _ => Err(Error::new(Code::Corrupted, "the row of a held action has changed")),
        }
    }

    /// Removes the row, without waiting.
    pub fn remove(&self, entry: &Entry) -> Changed {
        self.0.delete(&entry.row)
    }

    /// Locks the row until the transaction ends; `wait` for whoever holds it.
    pub fn lock(&self, entry: &Entry, wait: bool) -> Changed {
        self.0.lock(&entry.row, wait)
    }
}

/// The columns that moves change, and that an insert sets as well.
fn write_moving(values: &mut Values, action: &Action) {
    values.set_big(at::FENCE, Some(action.fence));
    values.set_time(at::LEASE_EXPIRES_AT, action.lease_expires_at);
    values.set_uuid(at::ATTEMPT_ID, action.attempt_id);
    values.set(at::ATTEMPT, Some(Datum::from(action.attempt)));
    values.set(at::POLICY_VERSION, Some(Datum::from(action.policy_version)));
    values.set_big(at::TTL, action.ttl);
    values.set_count(at::GENERATION, action.generation);
    values.set_time(at::GENERATION_GRANTED_AT, action.generation_granted_at);
    values.set_time(at::DISPATCHED_AT, action.dispatched_at);
    values.set_time(at::DUE_AT, action.due_at);
    values.set_time(at::DEADLINE_AT, action.deadline_at);
    values.set_time(at::SETTLE_FROM, action.settle_from);
    values.set_count(at::PROBES, action.probes);
    values.set_count(at::PROBE_TRIES, action.probe_tries);
    values.set_time(at::PROBED_AT, action.probed_at);
    values.set_uuid(at::RECONCILE_ID, action.reconcile_id);
    values.set_time(at::RECONCILE_LEASE_EXPIRES_AT, action.reconcile_lease_expires_at);
    values.set_time(at::APPROVAL_EXPIRES_AT, action.approval_expires_at);
    values.set(at::APPROVAL_POLICY_VERSION, action.approval_policy_version.map(Datum::from));
    values.set_count(at::FORGIVEN, action.forgiven);
    values.set_count(at::FLAGS, action.flags.to_bits());
    values.set_letter(at::STATE, action.state.code());
    values.set_time(at::ENDED_AT, action.ended_at);
    values.set_time(at::EXPIRES_AT, action.expires_at);
    values.set_text(at::RESOURCE_ID, action.resource_id.as_deref());
}

/// What a tombstone does not keep. Tenant, key and type stay: a late retry is compared with them.
fn scrub(values: &mut Values) {
    const GONE: [usize; 11] = [
        at::REQUEST,
        at::RESPONSE,
        at::ERROR,
        at::REASON,
        at::ACTOR,
        at::TARGET,
        at::WORKER,
        at::WORKFLOW_ID,
        at::SESSION_ID,
        at::RESOURCE_ID,
        at::EXTERNAL_REQUEST_ID,
    ];
    for column in GONE {
        values.set(column, None);
    }
}

impl Entry {
    fn read(row: Row, action_id: Uuid) -> Result<Entry> {
        let values = &row.values;
        let state = State::from_code(values.letter(at::STATE)).ok_or_else(|| corrupted(action_id))?;
        let fingerprint = values
            .bytes(at::FINGERPRINT)
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or_else(|| corrupted(action_id))?;
        let action = Action {
            fingerprint,
            scheme: values.small(at::SCHEME),
            created_at: values.time(at::CREATED_AT).unwrap_or(Time::MIN),
            visit_at: values.time(at::VISIT_AT).unwrap_or(Time::MIN),
            policy_version: values.count(at::POLICY_VERSION),
            state,
            attempt: values.count(at::ATTEMPT),
            attempt_id: values.uuid(at::ATTEMPT_ID),
            fence: values.big(at::FENCE).unwrap_or(0),
            lease_expires_at: values.time(at::LEASE_EXPIRES_AT),
            ttl: values.span(at::TTL),
            generation: values.count(at::GENERATION),
            generation_granted_at: values.time(at::GENERATION_GRANTED_AT),
            dispatched_at: values.time(at::DISPATCHED_AT),
            due_at: values.time(at::DUE_AT),
            deadline_at: values.time(at::DEADLINE_AT),
            settle_from: values.time(at::SETTLE_FROM),
            probes: values.count(at::PROBES),
            probe_tries: values.count(at::PROBE_TRIES),
            probed_at: values.time(at::PROBED_AT),
            reconcile_id: values.uuid(at::RECONCILE_ID),
            reconcile_lease_expires_at: values.time(at::RECONCILE_LEASE_EXPIRES_AT),
            approval_expires_at: values.time(at::APPROVAL_EXPIRES_AT),
            approval_policy_version: values.int(at::APPROVAL_POLICY_VERSION),
            forgiven: values.count(at::FORGIVEN),
            flags: Flags::from_bits(values.count(at::FLAGS)),
            resource_id: values.text(at::RESOURCE_ID)?.map(|text| text.into_owned()),
            ended_at: values.time(at::ENDED_AT),
            expires_at: values.time(at::EXPIRES_AT),
        };
        Ok(Entry { row, action, action_id })
    }

    /// The transaction that wrote this version.
    pub fn writer(&self) -> u32 {
        self.row.writer()
    }

    /// True when the stored tenant and key are byte for byte those given.
    pub fn is_named(&self, tenant: &[u8], key: &[u8]) -> bool {
        let values = &self.row.values;
        values.raw_text(at::TENANT) == Some(tenant) && values.raw_text(at::KEY) == Some(key)
    }

    /// The action's type.
    pub fn action_type(&self) -> Result<String> {
        Ok(self.row.values.text(at::ACTION_TYPE)?.unwrap_or_default().into_owned())
    }

    /// The action's tenant.
    pub fn tenant_name(&self) -> Result<String> {
        Ok(self.row.values.text(at::TENANT)?.unwrap_or_default().into_owned())
    }

    /// The action's tenant, in the database's encoding.
    pub fn raw_tenant(&self) -> &[u8] {
        self.row.values.raw_text(at::TENANT).unwrap_or_default()
    }

    /// The action's type, in the database's encoding.
    pub fn raw_action_type(&self) -> &[u8] {
        self.row.values.raw_text(at::ACTION_TYPE).unwrap_or_default()
    }

    /// The action's type, as stored.
    pub fn action_type_datum(&self) -> Option<Datum> {
        self.row.values.datum(at::ACTION_TYPE)
    }

    /// The action's tenant, as stored.
    pub fn tenant(&self) -> Option<Datum> {
        self.row.values.datum(at::TENANT)
    }

    /// The action's key, as stored.
    pub fn key(&self) -> Option<Datum> {
        self.row.values.datum(at::KEY)
    }

    /// What was asked for, where it is kept.
    pub fn request(&self) -> Option<Datum> {
        self.row.values.datum(at::REQUEST)
    }

    /// Who the action is for.
    pub fn actor(&self) -> Option<Datum> {
        self.row.values.datum(at::ACTOR)
    }

    /// What the action is done to.
    pub fn target(&self) -> Option<Datum> {
        self.row.values.datum(at::TARGET)
    }

    /// The stored response.
    pub fn response(&self) -> Option<Datum> {
        self.row.values.datum(at::RESPONSE)
    }

    /// stored, none, too_large or scrubbed; `None` before anything could have been stored.
    pub fn response_state(&self, now: Time) -> Option<&'static str> {
        match self.action.state_at(now) {
            State::Committed if self.response().is_some() => Some("stored"),
            State::Committed if self.row.values.count(at::FLAGS) & RESPONSE_TOO_LARGE != 0 => {
                Some("too_large")
            }
            State::Committed => Some("none"),
            State::Expired => Some("scrubbed"),
            _ => None,
        }
    }

    /// The provider's name for the request.
    pub fn external_request_id(&self) -> Option<Datum> {
        self.row.values.datum(at::EXTERNAL_REQUEST_ID)
    }

    /// The stored error document.
    pub fn error(&self) -> Option<Datum> {
        self.row.values.datum(at::ERROR)
    }

    /// What went wrong, in words.
    pub fn reason(&self) -> Option<Datum> {
        self.row.values.datum(at::REASON)
    }
}

fn corrupted(action_id: Uuid) -> Error {
    Error::new(Code::Corrupted, "the action's row contradicts itself")
        .detail(format!("action_id {action_id}"))
}

/// The refusal when a row's stored name is not the one its id was made from.
pub fn misnamed(action_id: Uuid) -> Error {
    Error::new(Code::Corrupted, "the action's stored tenant and key are not those it was asked for under")
        .detail(format!("action_id {action_id}"))
        .hint("Nothing is served from this row. Compare it with idem_action_id(key, tenant).")
}
