//! Random calls from several sessions, with random kills, on a server and on the pure rules side by side.
//!
//! libpq's variables PGHOST, PGPORT, PGUSER name a throw-away server with the extension in PGDATABASE. IDEM_SEED
//! replays a run, IDEM_STORIES asks for more stories.

mod calls;
mod compare;
mod compensating;
mod every;
mod pulling;
mod relaying;
mod stage;
mod story;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::env;
use std::time::SystemTime;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::relaying::{empty_outboxes, make_outboxes};
use crate::stage::{SESSIONS, Stage, TYPES, connect, register};
use crate::story::{ACTIONS, Known, Story, happening};

/// Calls in a story.
const LENGTH: usize = 150;
/// Stories unless told otherwise: more than 5,000 calls.
const STORIES: u32 = 58;

#[test]
fn server_and_rules_say_the_same() {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock").as_nanos();
    let seed = env::var("IDEM_SEED").map_or(now as u64, |seed| seed.parse().expect("IDEM_SEED is a number"));
    let cases = env::var("IDEM_STORIES")
        .map_or(STORIES, |stories| stories.parse().expect("IDEM_STORIES is a number"));
    println!("side by side: IDEM_SEED={seed} replays this run");
    let mut observer = connect();
    for name in TYPES {
        register(&mut observer, name, 60);
    }
    make_outboxes(&mut observer);
    let sessions = (0..SESSIONS).map(|_| connect()).collect();
    let (steps, boundaries, stories) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let stage = RefCell::new(Stage {
        sessions,
        observer,
        steps,
        boundaries,
        stories,
        policies: HashMap::new(),
        tally: BTreeMap::new(),
        run: now,
        held: BTreeSet::new(),
    });
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 400, ..Config::default() };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let stories = (0..TYPES.len(), prop::collection::vec(happening(), LENGTH..=LENGTH + LENGTH / 4));
    let told = runner.run(&stories, |(first_type, happenings)| {
        let mut stage = stage.borrow_mut();
        let number = stage.stories.replace(stage.stories.get() + 1);
        for session in &mut stage.sessions {
            session.batch_execute("ROLLBACK").expect("rolls back");
        }
        empty_outboxes(&mut stage.observer);
        for name in std::mem::take(&mut stage.held) {
            let call = format!("SELECT idem_unhold('action_type', '{name}')");
            stage.observer.batch_execute(&call).expect("lets go");
        }
        let known = vec![Known::default(); ACTIONS];
        let mut story = Story { stage: &mut stage, number, first_type, known, open: None };
        for happening in happenings {
            story.happens(happening)?;
        }
        if let Some(open) = &story.open {
            let session = open.session;
            story.ends(session, 0)?;
        }
        story.compare_history()
    });
    let stage = stage.into_inner();
    println!(
        "side by side: {} calls compared in {} stories, {} of them on a boundary",
        stage.steps.get(),
        stage.stories.get(),
        stage.boundaries.get()
    );
    println!("side by side: {:?}", stage.tally);
    if let Err(error) = told {
        panic!("IDEM_SEED={seed}: {error}");
    }
    assert!(
        stage.steps.get() >= 5000 || env::var("IDEM_STORIES").is_ok(),
        "only {} calls",
        stage.steps.get()
    );
}
