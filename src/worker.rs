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
use crate::server::background::{self, Database, Visit};
use crate::settings;

/// How long a worker stays in a database. DROP DATABASE waits five seconds for it, CREATE DATABASE … TEMPLATE too.
const STAY: Duration = Duration::from_secs(2);

/// A database without the extension is looked into less and less often, down to once in this many rounds: a minute,
/// with the usual naptime.
const RAREST: u32 = 6;

/// Registers the launcher; called while the library is preloaded.
pub fn register() {
    background::register_launcher();
}

/// How often a database is visited.
#[derive(Default, Clone, Copy)]
struct Pace {
    every: u32,
    skipped: u32,
}

/// The launcher's life.
pub fn launch() {
    let mut paces: HashMap<Database, Pace> = HashMap::new();
    let mut refused = false;
    while background::sleep(settings::naptime()) {
        let databases = background::databases();
        paces.retain(|database, _| databases.iter().any(|(known, _)| known == database));
        for (database, name) in &databases {
            let pace = paces.entry(*database).or_default();
            if !settings::covers(name) || pace.skipped + 1 < pace.every {
                pace.skipped += 1;
                continue;
            }
            pace.skipped = 0;
            pace.every = match background::visit(*database) {
                Visit::Done => 1,
                Visit::Absent => (pace.every.max(1) * 2).min(RAREST),
                Visit::Refused => {
                    if !refused {
                        let line = "pg_idem launcher: no free worker slot; raise max_worker_processes";
                        server::log(Error::new(Code::Success, line));
                    }
                    refused = true;
                    break;
                }
                Visit::Over => return,
            };
            refused = false;
        }
    }
}

/// A worker's life: batches until nothing is left, or until it has to go.
pub fn work() {
    let Some(function) = background::visit_function() else { return };
    let (arrived, mut batch) = (Instant::now(), settings::batch_size());
    while arrived.elapsed() < STAY {
        match background::sweep(function, batch) {
            // A batch that failed was rolled back and noted; smaller ones come closer to what makes it fail.
            None if batch > 1 => batch /= 2,
            None => return,
            Some(visited) if visited < batch as usize => return,
            Some(_) => {}
        }
    }
}
