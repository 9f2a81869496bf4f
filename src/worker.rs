//! The background worker: one launcher, started with the server when the library is preloaded, and one short-lived
//! worker a database and visit, as autovacuum does it.
//!
//! The launcher has no database and no snapshot, so it holds back neither VACUUM nor DROP DATABASE. A worker leaves
//! its database after [`STAY`] at the latest, and does its work in small committed batches. Nothing depends on
//! either of them for correctness: every deadline is judged when it is read.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use idem_rules::error::{Code, Error};

use crate::server;
use crate::server::background::{self, Batch, Database, Visit};
use crate::settings::{self, Mode};

/// How long a worker stays in a database. DROP DATABASE waits five seconds for it, CREATE DATABASE … TEMPLATE too.
const STAY: Duration = Duration::from_secs(2);

/// A batch has as many rows as can be swept in about this time, up to the setting batch_size: a flush of the log that
/// somebody waits for never has much of the worker's to write.
const BATCH: Duration = Duration::from_millis(5);

/// Rows of a visit's first batch.
const FIRST: i32 = 100;

/// After a full batch a worker rests this many times as long as the batch took: a backlog is worked off beside the
/// sessions that wait for an answer, and so little at a time that not one in twenty of them notices. Half as many after
/// every [`PATIENCE`] that the backlog lasts, down to [`LEAST_REST`]. `CALL idem_sweep_all()` does not rest.
const REST: u32 = 24;

/// For how long a backlog is worked off at one pace.
const PATIENCE: Duration = Duration::from_secs(600);

/// The rest of a worker that cannot keep up, and after a batch with dead attempts in it: somebody waits for those.
const LEAST_REST: u32 = 3;

/// How soon a database is visited again whose worker had to leave with work left.
const SOON: Duration = Duration::from_millis(200);

/// A database without the extension is looked into less and less often, down to once in this many naptimes: a minute,
/// with the usual one.
const RAREST: u32 = 6;

/// Registers the launcher; called while the library is preloaded.
pub fn register() {
    background::register_launcher();
}

/// When a database was visited, and what that says about the next visit.
struct Pace {
    visited: Instant,
    backlog_since: Option<Instant>,
    naptimes: u32,
}

impl Pace {
    fn until_next(&self, naptime: Duration) -> Duration {
        let wait = if self.backlog_since.is_some() { SOON } else { naptime.saturating_mul(self.naptimes) };
        wait.saturating_sub(self.visited.elapsed())
    }

    fn rest(&self) -> u32 {
        let lasted = self.backlog_since.map_or(0, |since| since.elapsed().as_secs() / PATIENCE.as_secs());
        (REST >> lasted.min(8)).max(LEAST_REST)
    }
}

/// The launcher's life.
pub fn launch() {
    let mut paces: HashMap<Database, Pace> = HashMap::new();
    let (mut refused, mut missed) = (false, Vec::new());
    loop {
        let naptime = settings::naptime();
        // Also the longest time that a new database is not noticed.
        let rest = paces.values().map(|pace| pace.until_next(naptime)).min().unwrap_or(naptime).min(naptime);
        let off = settings::mode() == Mode::Off;
        if !background::sleep(if off { naptime } else { rest }) {
            return;
        }
        if settings::mode() == Mode::Off {
            continue;
        }
        let databases = background::databases();
        say_what_is_missing(&databases, &mut missed);
        paces.retain(|database, _| {
            databases.iter().any(|(known, name)| known == database && settings::covers(name))
        });
        for (database, name) in &databases {
            let pace = paces.get(database);
            let waits = pace.is_some_and(|pace| !pace.until_next(settings::naptime()).is_zero());
            if !settings::covers(name) || waits {
                continue;
            }
            let before = pace.map_or(1, |pace| pace.naptimes);
            let visit = background::visit(*database, pace.map_or(REST, Pace::rest));
            let naptimes = match visit {
                Visit::Over => return,
                Visit::Absent => (before * 2).min(RAREST),
                _ => 1,
            };
            let since = pace.and_then(|pace| pace.backlog_since).unwrap_or_else(Instant::now);
            let backlog_since = (visit == Visit::Backlog).then_some(since);
            paces.insert(*database, Pace { visited: Instant::now(), backlog_since, naptimes });
            if visit == Visit::Refused && !refused {
                let line = "pg_idem launcher: no free worker slot; raise max_worker_processes";
                server::log(Error::new(Code::Success, line));
            }
            refused = visit == Visit::Refused;
        }
    }
}

/// Tells the log which names in the setting no database has: a typing error would keep a database from being visited, and
/// nobody would notice. `said` are those that were missing the last time.
fn say_what_is_missing(databases: &[(Database, String)], said: &mut Vec<String>) {
    let mut missing = settings::databases();
    missing.retain(|name| name != "*" && databases.iter().all(|(_, known)| known != name));
    for name in missing.iter().filter(|name| !said.contains(name)) {
        let line = format!(
            "pg_idem launcher: pg_idem.databases has the name {name:?}, and there is no such database"
        );
        server::log(Error::new(Code::Success, line).hint("It is visited as soon as there is one."));
    }
    *said = missing;
}

/// A worker's life: batches until nothing is left, or until it has to go.
pub fn work() {
    let Some(installed) = background::installed() else { return };
    let (arrived, most) = (Instant::now(), settings::batch_size());
    let mut batch = FIRST.min(most);
    while arrived.elapsed() < STAY {
        let began = Instant::now();
        match background::sweep(installed, batch) {
            // Smaller batches come closer to what makes one fail.
            Batch::Failed if batch > 1 => batch /= 2,
            Batch::Failed | Batch::Leave => return,
            Batch::Done { visited, .. } if visited < batch as usize => return,
            Batch::Done { unknown, .. } => {
                let took = began.elapsed();
                let rest = if unknown > 0 { LEAST_REST } else { background::rest() };
                background::sleep(took.saturating_mul(rest).min(STAY.saturating_sub(arrived.elapsed())));
                batch = fitting(batch, took).min(most);
            }
        }
    }
    background::leave_backlog();
}

/// The number of rows that fit into [`BATCH`] when `rows` took `took`: at most twice as many, and never none.
fn fitting(rows: i32, took: Duration) -> i32 {
    let factor = BATCH.as_secs_f64() / took.as_secs_f64().max(1e-6);
    ((f64::from(rows) * factor.min(2.0)) as i32).max(10)
}
