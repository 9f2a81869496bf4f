//! Settings. Those that change answers can be set by superusers only.

use std::ffi::CString;
use std::time::Duration;

use idem_rules::action::{SECOND, Span};
use pgrx::guc::{GucContext, GucFlags, GucRegistry, GucSetting, PostgresGucEnum};

use crate::server;

/// What happens when an external action is committed in the transaction that reserved it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PostgresGucEnum)]
#[allow(missing_docs, reason = "the words are explained with the setting")]
pub enum SameTransaction {
    #[name = c"allow"]
    Allow,
    #[name = c"warn"]
    Warn,
    #[name = c"error"]
    Error,
}

/// How much of pg_idem works: the operator's stop switch for the whole server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PostgresGucEnum)]
#[allow(missing_docs, reason = "the words are explained with the setting")]
pub enum Mode {
    #[name = c"on"]
    On,
    #[name = c"replay_only"]
    ReplayOnly,
    #[name = c"off"]
    Off,
}

static MODE: GucSetting<Mode> = GucSetting::<Mode>::new(Mode::On);
static TWIN_WAIT: GucSetting<i32> = GucSetting::<i32>::new(2_000);
static MAX_WAIT: GucSetting<i32> = GucSetting::<i32>::new(60_000);
static MAX_RESPONSE_SIZE: GucSetting<i32> = GucSetting::<i32>::new(1_024);
static SAME_TRANSACTION: GucSetting<SameTransaction> =
    GucSetting::<SameTransaction>::new(SameTransaction::Warn);
static DATABASES: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c"*"));
static NAPTIME: GucSetting<i32> = GucSetting::<i32>::new(10_000);
static BATCH_SIZE: GucSetting<i32> = GucSetting::<i32>::new(1_000);
static INBOX_RETENTION: GucSetting<i32> = GucSetting::<i32>::new(30 * 86_400);
static ALLOW_DROP: GucSetting<bool> = GucSetting::<bool>::new(false);
static REQUIRE_ACTION_TYPE: GucSetting<bool> = GucSetting::<bool>::new(false);

/// Makes the settings known to the server.
pub fn define() {
    GucRegistry::define_enum_guc(
        c"pg_idem.mode",
        c"on, replay_only (nothing new starts) or off (nothing is answered or started either).",
        c"Attempts under way can be ended in every mode; people and reconcilers go on, but with off the worker does not.",
        &MODE,
        GucContext::Sighup,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"pg_idem.twin_wait",
        c"How long idem_reserve waits for a transaction that has reserved the same key and not ended yet.",
        c"After that the decision is pending. A call's wait_seconds takes its place.",
        &TWIN_WAIT,
        0,
        3_600_000,
        GucContext::Suset,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_int_guc(
        c"pg_idem.max_wait",
        c"Longest wait that wait_seconds of idem_reserve can ask for.",
        c"A longer wait is cut to this.",
        &MAX_WAIT,
        0,
        3_600_000,
        GucContext::Suset,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_int_guc(
        c"pg_idem.max_response_size",
        c"Largest response that idem_commit keeps.",
        c"A larger one is left out; the commit stands and response_state says too_large.",
        &MAX_RESPONSE_SIZE,
        0,
        1_048_575,
        GucContext::Suset,
        GucFlags::UNIT_KB,
    );
    GucRegistry::define_enum_guc(
        c"pg_idem.same_transaction",
        c"What happens when an external action is committed in the transaction that reserved it.",
        c"A crash between the call and the COMMIT would forget that the call was made.",
        &SAME_TRANSACTION,
        GucContext::Suset,
        GucFlags::default(),
    );
    GucRegistry::define_bool_guc(
        c"pg_idem.require_action_type",
        c"Refuses action types that are not registered.",
        c"Otherwise an unregistered type always reconciles.",
        &REQUIRE_ACTION_TYPE,
        GucContext::Suset,
        GucFlags::default(),
    );
    GucRegistry::define_bool_guc(
        c"pg_idem.allow_drop",
        c"Lets the extension be dropped although its ledger has actions that have not ended.",
        c"What they did would be forgotten, and done again.",
        &ALLOW_DROP,
        GucContext::Suset,
        GucFlags::default(),
    );
    GucRegistry::define_string_guc(
        c"pg_idem.databases",
        c"Databases that the background worker visits: names with commas between them, or * for all.",
        c"An empty list stops the visits; deadlines are judged when they are read in any case.",
        &DATABASES,
        GucContext::Sighup,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"pg_idem.naptime",
        c"Time between two rounds of the background worker.",
        c"A dead attempt shows as unknown after its lease, this time and one visit at the latest.",
        &NAPTIME,
        1,
        86_400_000,
        GucContext::Sighup,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_int_guc(
        c"pg_idem.batch_size",
        c"Rows that the background worker visits in one transaction.",
        c"Smaller batches hold locks for a shorter time.",
        &BATCH_SIZE,
        1,
        10_000,
        GucContext::Sighup,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"pg_idem.inbox_retention",
        c"How long the inbox remembers a message.",
        c"A message that comes again later than that is new.",
        &INBOX_RETENTION,
        1,
        i32::MAX,
        GucContext::Sighup,
        GucFlags::UNIT_S,
    );
    server::reserve_setting_names(c"pg_idem");
}

fn milliseconds(setting: &GucSetting<i32>) -> Duration {
    Duration::from_millis(setting.get().max(0) as u64)
}

/// `pg_idem.mode`
pub fn mode() -> Mode {
    MODE.get()
}

/// `pg_idem.twin_wait`
pub fn twin_wait() -> Duration {
    milliseconds(&TWIN_WAIT)
}

/// `pg_idem.max_wait`
pub fn max_wait() -> Duration {
    milliseconds(&MAX_WAIT)
}

/// `pg_idem.max_response_size` in bytes
pub fn max_response_size() -> usize {
    MAX_RESPONSE_SIZE.get().max(0) as usize * 1024
}

/// `pg_idem.same_transaction`
pub fn same_transaction() -> SameTransaction {
    SAME_TRANSACTION.get()
}

/// `pg_idem.require_action_type`
pub fn require_action_type() -> bool {
    REQUIRE_ACTION_TYPE.get()
}

/// `pg_idem.inbox_retention`
pub fn inbox_retention() -> Span {
    i64::from(INBOX_RETENTION.get()) * SECOND
}

/// `pg_idem.allow_drop`
pub fn allow_drop() -> bool {
    ALLOW_DROP.get()
}

/// `pg_idem.naptime`
pub fn naptime() -> Duration {
    milliseconds(&NAPTIME)
}

/// `pg_idem.batch_size`
pub fn batch_size() -> i32 {
    BATCH_SIZE.get()
}

/// The names in `pg_idem.databases`, `*` among them.
pub fn databases() -> Vec<String> {
    let list = DATABASES.get().unwrap_or_default();
    list.to_string_lossy()
        .split(',')
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .collect()
}

/// True when `pg_idem.databases` names `database`, or all.
pub fn covers(database: &str) -> bool {
    databases().iter().any(|name| name == "*" || name == database)
}
