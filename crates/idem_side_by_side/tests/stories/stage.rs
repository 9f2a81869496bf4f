//! The server that stories are played on, and what is the same for all of them.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::env;
use std::time::SystemTime;

use idem_rules::action::Time;
use idem_rules::policy::Policy;
use postgres::{Client, NoTls};
use uuid::{Builder, Uuid};

/// Types of actions; those of one story follow one another.
pub const TYPES: [&str; 5] = ["careful", "windowed", "free", "marking", "approving"];

/// Sessions that call.
pub const SESSIONS: usize = 3;

/// The sessions, and what has been counted.
pub struct Stage {
    pub sessions: Vec<Client>,
    pub observer: Client,
    pub steps: Cell<u64>,
    pub boundaries: Cell<u64>,
    pub stories: Cell<u64>,
    pub policies: HashMap<(&'static str, Option<i32>), Policy>,
    /// How often each answer was given and each refusal made.
    pub tally: BTreeMap<String, u64>,
    pub run: u128,
    /// Types that are held.
    pub held: BTreeSet<&'static str>,
}

pub fn connect() -> Client {
    let get = |name: &str| env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run `make test`"));
    let config = format!(
        "host={} port={} user={} dbname={}",
        get("PGHOST"),
        get("PGPORT"),
        get("PGUSER"),
        get("PGDATABASE")
    );
    Client::connect(&config, NoTls).expect("a server")
}

pub fn clock(client: &mut Client) -> Time {
    let query = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    client.query_one(query, &[]).expect("the clock").get(0)
}

/// A token that nobody has. Version 4, so that it is taken.
pub fn fresh(choice: u32) -> Uuid {
    thread_local!(static NEXT: Cell<u64> = const { Cell::new(1) });
    let n = NEXT.with(|next| next.replace(next.get() + 1));
    let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock").as_nanos() as u64;
    let bytes = (u128::from(nanos ^ u64::from(choice)) << 64 | u128::from(n)).to_be_bytes();
    Builder::from_random_bytes(bytes).into_uuid()
}

pub fn register(client: &mut Client, name: &str, settle: i32) {
    let special = match name {
        "careful" => "'deduplicated_creation', probes_required => 2",
        "windowed" => "'deduplicated_creation', provider_key_window => '5 min', probes_required => 1",
        "free" => "'idempotent_mutation'",
        "marking" => "'deduplicated_creation', marks_dispatch => true, probes_required => 1",
        _ => "'irreversible', distinct_approver => 'none'",
    };
    let call = format!(
        "SELECT idem_register_action_type('{name}', {special}, settle_delay => '{settle} s', probe_interval => '30 s',
            resolve_deadline => '1 h')"
    );
    client.batch_execute(&call).expect("registers");
}
