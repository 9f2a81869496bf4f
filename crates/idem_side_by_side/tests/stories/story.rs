//! One story: its actions, what is known of them, and what goes on around the calls.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use idem_rules::action::Action;
use idem_rules::fingerprint::{action_fingerprint, request_fingerprint};
use idem_rules::identity::action_id;
use idem_rules::policy::Policy;
use idem_rules::transition::{Caller, Step};
use idem_side_by_side::row;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use uuid::Uuid;

use crate::stage::{SESSIONS, Stage, TYPES, connect, fresh, register};

/// Actions of a story that stand for themselves.
pub const PARENTS: usize = 3;

/// All actions of a story: each of the first has a compensation, in the same order.
pub const ACTIONS: usize = 2 * PARENTS;

/// What happens next: which call, by which session, for which action, by whom, with which choice.
#[derive(Debug, Clone, Copy)]
pub struct Happening {
    pub what: u8,
    pub session: usize,
    pub key: usize,
    pub who: usize,
    pub choice: u32,
}

pub fn happening() -> impl Strategy<Value = Happening> {
    let who = prop_oneof![6 => Just(0usize), 2 => Just(1), 1 => Just(2), 1 => Just(99)];
    // The actions come first, their compensations after them.
    let key = prop_oneof![4 => 0..PARENTS, 1 => PARENTS..ACTIONS];
    (0u8..66, 0..SESSIONS, key, who, any::<u32>()).prop_map(|(what, session, key, who, choice)| Happening {
        what,
        session,
        key,
        who,
        choice,
    })
}

/// What is known of one action.
#[derive(Debug, Clone, Default)]
pub struct Known {
    pub row: Option<Action>,
    /// Tokens that were shown to somebody, the latest last.
    pub tokens: Vec<Uuid>,
    /// Attempts that ended and stand in the history; true for a reconciling one.
    pub ended: Vec<(Uuid, bool)>,
    /// The attempt that the open transaction was told to be the owner of.
    pub granted_here: Option<Uuid>,
    /// The last fence that was handed out; 0 once time was made to pass for it.
    pub fence: i64,
    /// It is tied to what it compensates.
    pub tied: bool,
}

/// A transaction that a session has open, and what was known before it.
pub struct Open {
    pub session: usize,
    pub before: HashMap<usize, Known>,
}

/// One story: its actions, and the transaction that is open.
pub struct Story<'a> {
    pub stage: &'a mut Stage,
    pub number: u64,
    /// The type of its first action; the others follow.
    pub first_type: usize,
    pub known: Vec<Known>,
    pub open: Option<Open>,
}

/// An error fails the story.
pub type Checked = Result<(), TestCaseError>;

impl Story<'_> {
    /// A story's tenant is its own, and so are the queues that are asked for it.
    pub fn tenant(&self) -> String {
        format!("{:x}/{}", self.stage.run, self.number)
    }

    pub fn key(&self, n: usize) -> String {
        n.to_string()
    }

    pub fn action_type(&self, n: usize) -> &'static str {
        TYPES[(self.first_type + n) % TYPES.len()]
    }

    pub fn id(&self, n: usize) -> Uuid {
        action_id(&self.tenant(), &self.key(n))
    }

    pub fn fingerprint(&self, n: usize, other: bool) -> [u8; 32] {
        let request: &[u8] = if other { br#"{"n":2}"# } else { br#"{"n":1}"# };
        action_fingerprint(&request_fingerprint(request), self.action_type(n), &self.tenant(), None, None)
    }

    pub fn policies(&mut self, n: usize) -> (Policy, Policy) {
        let name = self.action_type(n);
        let Stage { policies, observer, .. } = &mut *self.stage;
        let mut read = |version: Option<i32>| {
            let policy = policies.entry((name, version));
            policy.or_insert_with(|| row::policy(observer, name, version).expect("a registered type")).clone()
        };
        let current = read(None);
        let version = self.known[n].row.as_ref().map_or(current.version, |row| row.policy_version);
        (read(Some(version)), current)
    }

    /// A token that somebody was shown, or a stranger's.
    pub fn token(&self, happening: Happening) -> Uuid {
        let tokens = &self.known[happening.key].tokens;
        tokens.iter().rev().nth(happening.who).copied().unwrap_or_else(|| fresh(happening.choice))
    }

    pub fn caller(&self, happening: Happening, any: bool) -> Caller {
        let attempt_id = self.token(happening);
        let earlier = |(token, reconciling): &(Uuid, bool)| *token == attempt_id && (any || !reconciling);
        Caller { attempt_id, earlier: self.known[happening.key].ended.iter().any(earlier) }
    }

    pub fn is_held(&self, n: usize) -> bool {
        self.stage.held.contains(self.action_type(n))
    }

    /// Remembers what was known of an action before a session's open transaction changes it. True when it has one open.
    pub fn notes(&mut self, session: usize, key: usize) -> bool {
        let Some(open) = self.open.as_mut().filter(|open| open.session == session) else { return false };
        open.before.entry(key).or_insert_with(|| self.known[key].clone());
        true
    }

    /// True when another session's open transaction has changed or locked the action, or what it stands in relation to.
    fn is_busy(&self, session: usize, key: usize) -> bool {
        let related = |of: &usize| of % PARENTS == key % PARENTS;
        self.open.as_ref().is_some_and(|open| open.session != session && open.before.keys().any(related))
    }

    pub fn happens(&mut self, happening: Happening) -> Checked {
        let Happening { what, session, key, choice, .. } = happening;
        match what {
            40 => self.begin(session),
            41 => self.ends(session, choice)?,
            42 | 44..48 => self.time_passes(key, choice),
            43 if choice % 8 == 0 => self.changes(key, choice),
            43 => self.sweeps(session)?,
            // What ends a story comes more rarely, or most of them would be short.
            33 | 34 | 38 | 39 if choice % 4 != 0 => {}
            48 => self.holds(key, choice),
            49 if choice % 8 == 0 => self.restores(session)?,
            // Whoever wrote holds the row: others would wait for it.
            _ if self.is_busy(session, key) => {}
            50 | 51 => self.compensates(happening)?,
            // One that compensates nothing yet is begun by its compensation only.
            _ if key >= PARENTS && !self.known[key].tied => {}
            52..58 if key < PARENTS => self.relays(happening)?,
            58..63 => self.pulls(happening)?,
            _ => self.calls(happening)?,
        }
        Ok(())
    }

    pub fn begin(&mut self, session: usize) {
        if self.open.is_none() {
            self.stage.sessions[session].batch_execute("BEGIN").expect("begins");
            self.open = Some(Open { session, before: HashMap::new() });
        }
    }

    /// The open transaction ends: by COMMIT, by ROLLBACK, with its backend, or with its connection.
    pub fn ends(&mut self, session: usize, choice: u32) -> Checked {
        let Some(open) = self.open.take_if(|open| open.session == session) else { return Ok(()) };
        let client = &mut self.stage.sessions[session];
        let pid: i32 = client.query_one("SELECT pg_backend_pid()", &[]).expect("a pid").get(0);
        match choice % 6 {
            0..=2 => client.batch_execute("COMMIT").expect("commits"),
            3 => client.batch_execute("ROLLBACK").expect("rolls back"),
            4 => {
                self.stage.observer.execute("SELECT pg_terminate_backend($1)", &[&pid]).expect("terminates");
            }
            _ => {}
        }
        if choice % 6 > 3 {
            self.stage.sessions[session] = connect();
            let gone = Instant::now() + Duration::from_secs(10);
            while self
                .stage
                .observer
                .query_opt("SELECT 1 FROM pg_stat_activity WHERE pid = $1", &[&pid])
                .expect("a look")
                .is_some()
            {
                prop_assert!(Instant::now() < gone, "the backend did not end");
            }
        }
        for (key, before) in open.before {
            match choice % 6 {
                0..=2 => self.known[key].granted_here = None,
                // What was shown stays shown.
                _ => {
                    let tokens = std::mem::take(&mut self.known[key].tokens);
                    self.known[key] = Known { tokens, ..before };
                }
            }
            let id = self.id(key);
            let stored = row::action(&mut self.stage.observer, id).expect("a row");
            prop_assert_eq!(&stored, &self.known[key].row, "after the end of a transaction");
        }
        Ok(())
    }

    pub fn time_passes(&mut self, key: usize, choice: u32) {
        if self.open.is_some() || self.known[key].row.is_none() {
            return;
        }
        let seconds = [1.0, 20.0, 59.0, 61.0, 120.0, 300.0, 3700.0][choice as usize % 7];
        let id = self.id(key);
        row::passes(&mut self.stage.observer, id, seconds).expect("time passes");
        if key < PARENTS {
            self.time_passes_in_outbox(key, seconds);
        }
        self.known[key].row = row::action(&mut self.stage.observer, id).expect("a row");
        self.known[key].fence = 0;
    }

    /// The type is registered anew with another settle delay.
    pub fn changes(&mut self, key: usize, choice: u32) {
        if self.open.is_none() {
            let name = self.action_type(key);
            self.stage.policies.remove(&(name, None));
            register(&mut self.stage.observer, name, if choice & 8 == 0 { 60 } else { 90 });
        }
    }

    pub fn remember(&mut self, key: usize, step: &Step) {
        let ended = step.ended.iter().map(|ended| (ended.attempt_id, ended.reconciling));
        self.known[key].ended.extend(ended);
    }

    /// An error in a transaction takes back all of it.
    pub fn forget(&mut self, session: usize) {
        let Some(open) = self.open.take_if(|open| open.session == session) else { return };
        for (key, before) in open.before {
            let tokens = std::mem::take(&mut self.known[key].tokens);
            self.known[key] = Known { tokens, ..before };
        }
    }

    /// The history has every attempt that the rules said had ended, in that order.
    pub fn compare_history(&mut self) -> Checked {
        for key in 0..self.known.len() {
            let id = self.id(key);
            let query = "SELECT attempt_id, reconciling FROM idem_attempt WHERE action_id = $1 ORDER BY n";
            let rows = self.stage.observer.query(query, &[&id]).expect("a look");
            let stored: Vec<(Uuid, bool)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
            prop_assert_eq!(&stored, &self.known[key].ended, "the history of {}", key);
        }
        Ok(())
    }
}
