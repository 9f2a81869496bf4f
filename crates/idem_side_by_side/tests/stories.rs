//! Random calls from several sessions, with random kills, on a server and on the pure rules side by side.
//!
//! libpq's variables PGHOST, PGPORT, PGUSER name a throw-away server with the extension in PGDATABASE. IDEM_SEED
//! replays a run, IDEM_STORIES asks for more stories.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::env;
use std::time::{Duration, Instant, SystemTime};

use idem_rules::action::{Action, SECOND, State, Time};
use idem_rules::error::Code;
use idem_rules::fingerprint::{action_fingerprint, request_fingerprint};
use idem_rules::identity::action_id;
use idem_rules::policy::{Effect, Policies, Policy};
use idem_rules::transition::{
    Answer, Approve, Ask, Caller, Commit, Decide, Event, Evidence, Fail, Finding, Person, Proof, Resolve,
    Step, Verdict,
};
use idem_side_by_side::judged::judge;
use idem_side_by_side::row;
use postgres::{Client, NoTls};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use uuid::{Builder, Uuid};

/// Calls in a story.
const LENGTH: usize = 150;
/// Stories unless told otherwise: more than 5,000 calls.
const STORIES: u32 = 46;
const SESSIONS: usize = 3;
const TYPES: [&str; 5] = ["careful", "windowed", "free", "marking", "approving"];

/// What happens next: which call, by which session, for which action, by whom, with which choice.
#[derive(Debug, Clone, Copy)]
struct Happening {
    what: u8,
    session: usize,
    key: usize,
    who: usize,
    choice: u32,
}

fn happening() -> impl Strategy<Value = Happening> {
    let who = prop_oneof![6 => Just(0usize), 2 => Just(1), 1 => Just(2), 1 => Just(99)];
    (0u8..48, 0..SESSIONS, 0usize..3, who, any::<u32>())
        .prop_map(|(what, session, key, who, choice)| Happening { what, session, key, who, choice })
}

/// What is known of one action.
#[derive(Debug, Clone, Default)]
struct Known {
    row: Option<Action>,
    /// Tokens that were shown to somebody, the latest last.
    tokens: Vec<Uuid>,
    /// Attempts that ended and stand in the history; true for a reconciling one.
    ended: Vec<(Uuid, bool)>,
    /// The attempt that the open transaction was told to be the owner of.
    granted_here: Option<Uuid>,
    /// The last fence that was handed out; 0 once time was made to pass for it.
    fence: i64,
}

/// A transaction that a session has open, and what was known before it.
struct Open {
    session: usize,
    before: HashMap<usize, Known>,
}

struct Stage {
    sessions: Vec<Client>,
    observer: Client,
    steps: Cell<u64>,
    boundaries: Cell<u64>,
    stories: Cell<u64>,
    policies: HashMap<(&'static str, Option<i32>), Policy>,
    /// How often each answer was given and each refusal made.
    tally: BTreeMap<String, u64>,
    run: u128,
}

fn connect() -> Client {
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

fn clock(client: &mut Client) -> Time {
    let query = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    client.query_one(query, &[]).expect("the clock").get(0)
}

/// One story: its actions, and the transaction that is open.
struct Story<'a> {
    stage: &'a mut Stage,
    number: u64,
    /// The type of its first action; the others follow.
    first_type: usize,
    known: Vec<Known>,
    open: Option<Open>,
}

type Checked = Result<(), TestCaseError>;

impl Story<'_> {
    fn key(&self, n: usize) -> String {
        format!("{:x}/{}/{n}", self.stage.run, self.number)
    }

    fn action_type(&self, n: usize) -> &'static str {
        TYPES[(self.first_type + n) % TYPES.len()]
    }

    fn id(&self, n: usize) -> Uuid {
        action_id("", &self.key(n))
    }

    fn fingerprint(&self, n: usize, other: bool) -> [u8; 32] {
        let request: &[u8] = if other { br#"{"n":2}"# } else { br#"{"n":1}"# };
        action_fingerprint(&request_fingerprint(request), self.action_type(n), "", None, None)
    }

    fn policies(&mut self, n: usize) -> (Policy, Policy) {
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
    fn token(&self, happening: Happening) -> Uuid {
        let tokens = &self.known[happening.key].tokens;
        tokens.iter().rev().nth(happening.who).copied().unwrap_or_else(|| fresh(happening.choice))
    }

    fn caller(&self, happening: Happening, any: bool) -> Caller {
        let attempt_id = self.token(happening);
        let earlier = |(token, reconciling): &(Uuid, bool)| *token == attempt_id && (any || !reconciling);
        Caller { attempt_id, earlier: self.known[happening.key].ended.iter().any(earlier) }
    }

    fn happens(&mut self, happening: Happening) -> Checked {
        let Happening { what, session, key, choice, .. } = happening;
        // Whoever wrote holds the row: others would wait for it.
        let busy =
            self.open.as_ref().is_some_and(|open| open.session != session && open.before.contains_key(&key));
        match what {
            40 => self.begin(session),
            41 => self.ends(session, choice)?,
            42 | 44.. => self.time_passes(key, choice),
            43 if choice % 8 == 0 => self.changes(key, choice),
            43 => self.sweeps(session)?,
            // What ends a story comes more rarely, or most of them would be short.
            33 | 34 | 38 | 39 if choice % 4 != 0 => {}
            _ if busy => {}
            _ => self.calls(happening)?,
        }
        Ok(())
    }

    fn begin(&mut self, session: usize) {
        if self.open.is_none() {
            self.stage.sessions[session].batch_execute("BEGIN").expect("begins");
            self.open = Some(Open { session, before: HashMap::new() });
        }
    }

    /// The open transaction ends: by COMMIT, by ROLLBACK, with its backend, or with its connection.
    fn ends(&mut self, session: usize, choice: u32) -> Checked {
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

    fn time_passes(&mut self, key: usize, choice: u32) {
        if self.open.is_some() || self.known[key].row.is_none() {
            return;
        }
        let seconds = [1.0, 20.0, 59.0, 61.0, 120.0, 300.0, 3700.0][choice as usize % 7];
        let id = self.id(key);
        row::passes(&mut self.stage.observer, id, seconds).expect("time passes");
        self.known[key].row = row::action(&mut self.stage.observer, id).expect("a row");
        self.known[key].fence = 0;
    }

    /// The type is registered anew with another settle delay.
    fn changes(&mut self, key: usize, choice: u32) {
        if self.open.is_none() {
            let name = self.action_type(key);
            self.stage.policies.remove(&(name, None));
            register(&mut self.stage.observer, name, if choice & 8 == 0 { 60 } else { 90 });
        }
    }

    /// The sweep does to every action what a visit makes of it, once or until nothing is due.
    fn sweeps(&mut self, session: usize) -> Checked {
        if self.open.is_some() {
            return Ok(());
        }
        self.stage.steps.set(self.stage.steps.get() + 1);
        let earliest = clock(&mut self.stage.observer);
        self.stage.sessions[session].query("SELECT * FROM idem_sweep(10000)", &[]).expect("sweeps");
        let latest = clock(&mut self.stage.observer);
        for key in 0..self.known.len() {
            let id = self.id(key);
            let stored = row::action(&mut self.stage.observer, id).expect("a row");
            let mut last = Ok(());
            let (granted, current) = self.policies(key);
            let mut before = self.known[key].row.clone();
            if before.is_none() {
                continue;
            }
            for _ in 0..3 {
                let policies = Policies { granted: &granted, current: &current };
                let judged = judge(
                    before.as_ref(),
                    |_| Event::Visit { open_children: false },
                    policies,
                    (earliest, latest),
                );
                let Some(Ok(step)) = judged.step() else { break };
                self.remember(key, step);
                match judged.difference(before.as_ref(), stored.as_ref()) {
                    None => {
                        last = Ok(());
                        break;
                    }
                    Some(difference) => {
                        last = Err(TestCaseError::fail(format!("after a sweep: {difference}")))
                    }
                }
                before = step.next.clone().or(before);
            }
            last?;
            self.known[key].row = stored;
        }
        Ok(())
    }

    fn remember(&mut self, key: usize, step: &Step) {
        let ended = step.ended.iter().map(|ended| (ended.attempt_id, ended.reconciling));
        self.known[key].ended.extend(ended);
    }

    fn calls(&mut self, happening: Happening) -> Checked {
        let Happening { what, key, choice, .. } = happening;
        let bit = |n: u32| choice & (1 << n) != 0;
        let (who, whoever) = (self.caller(happening, false), self.caller(happening, true));
        let resource = [None, Some("r1"), Some("r2")][choice as usize % 3];
        let finding = [
            Finding::NotApplied,
            Finding::Applied,
            Finding::NotApplied,
            Finding::Inconclusive,
            Finding::Ambiguous,
            Finding::PartiallyApplied,
        ][(choice >> 4) as usize % 6];
        let (id, token) = (self.id(key), who.attempt_id);
        let quoted = |text: Option<&str>| text.map_or("NULL".to_owned(), |text| format!("'{text}'"));
        let ending = |name: &str, more: &str| format!("SELECT {name}('{id}', '{token}'{more})::text");
        let person = |name: &str, more: &str| format!("SELECT {name}('{id}'{more}, note => 'because')::text");
        let boss = Person { role: "boss", session_role: "boss", name: None };
        match what {
            0..=11 => self.reserves(happening),
            12..=14 => {
                let on_lost = if bit(8) { "record" } else { "error" };
                let call = ending(
                    "idem_commit",
                    &format!(", resource_id => {}, on_lost => '{on_lost}'", quoted(resource)),
                );
                let commit = Commit { caller: who, resource_id: resource, record_when_lost: bit(8) };
                self.compares(happening, &call, |_| Event::Commit(commit.clone()))
            }
            15 => self.compares(happening, &ending("idem_mark_unknown", ""), |_| Event::MarkUnknown(who)),
            16..=18 => {
                let (proof, word) =
                    if bit(8) { (Proof::NotSent, "not_sent") } else { (Proof::Refused, "refused") };
                let retry_after = bit(9).then_some(10 * SECOND);
                let call = ending(
                    "idem_fail",
                    &format!(
                        ", '{word}', retryable => {}, retry_after_seconds => {}, new_provider_key => {}",
                        bit(10) || bit(11),
                        if bit(9) { "10" } else { "NULL" },
                        bit(12)
                    ),
                );
                self.compares(happening, &call, |random| {
                    let (retryable, new_provider_key) = (bit(10) || bit(11), bit(12));
                    Event::Fail(Fail { caller: who, proof, retryable, retry_after, new_provider_key, random })
                })
            }
            19..=20 => {
                let lease = bit(8).then_some(120 * SECOND);
                let call = ending("idem_renew", if bit(8) { ", 120" } else { "" });
                self.compares(happening, &call, |_| Event::Renew(who, lease))
            }
            21 => self.compares(happening, &ending("idem_release", ""), |_| Event::Release(who)),
            22..=24 => self.compares(happening, &ending("idem_dispatch", ""), |_| Event::Dispatch {
                caller: who,
                held: false,
            }),
            25..=26 => {
                let more = format!(", '{}', resource_id => {}", finding.word(), quoted(resource));
                let evidence = Evidence { caller: whoever, finding, resource_id: resource };
                self.compares(happening, &ending("idem_add_evidence", &more), |_| {
                    Event::Evidence(evidence.clone())
                })
            }
            27..=31 => {
                let more = format!(", '{}', resource_id => {}", finding.word(), quoted(resource));
                let call = format!("SELECT state FROM idem_resolve('{id}', '{token}'{more})");
                self.compares(happening, &call, |random| {
                    Event::Resolve(Resolve {
                        caller: whoever,
                        finding,
                        resource_id: resource,
                        next_probe: None,
                        random,
                    })
                })
            }
            32 => self.compares(happening, &person("idem_escalate", ""), |_| Event::Escalate),
            33 => {
                let (verdict, word) = [
                    (Verdict::Applied, "applied"),
                    (Verdict::NotApplied, "not_applied"),
                    (Verdict::Retry, "retry"),
                ][choice as usize / 8 % 3];
                let call = person("idem_decide", &format!(", '{word}', resource_id => {}", quoted(resource)));
                self.compares(happening, &call, |_| Event::Decide(Decide { verdict, resource_id: resource }))
            }
            34 => self.compares(happening, &person("idem_reopen", ""), |_| Event::Reopen),
            35..=37 => {
                let seen = self.fingerprint(key, choice % 9 == 0);
                let hex: String = seen.iter().map(|byte| format!("{byte:02x}")).collect();
                let call = person("idem_approve", &format!(", '\\x{hex}'"));
                self.compares(happening, &call, |_| {
                    let (proposer, approver) = (Some(boss), boss);
                    Event::Approve(Approve {
                        fingerprint: &seen,
                        policy_version: None,
                        valid: None,
                        proposer,
                        approver,
                    })
                })
            }
            38 => self.compares(happening, &person("idem_reject", ""), |_| Event::Reject),
            39 => {
                let name = if bit(8) { "idem_withdraw" } else { "idem_cancel" };
                self.compares(happening, &person(name, ""), |_| Event::Withdraw)
            }
            _ => Ok(()),
        }
    }

    fn reserves(&mut self, happening: Happening) -> Checked {
        let Happening { key, choice, .. } = happening;
        let bit = |n: u32| choice & (1 << n) != 0;
        let (again, other, can_reconcile, short) = (bit(0) && bit(1), choice % 16 == 2, bit(4), bit(5));
        let token = if again { self.token(happening) } else { fresh(choice) };
        let known = &self.known[key];
        let used = known.ended.iter().any(|(ended, _)| *ended == token)
            || known
                .row
                .as_ref()
                .is_some_and(|row| [row.attempt_id, row.reconcile_id].contains(&Some(token)));
        let ask = Ask {
            fingerprint: self.fingerprint(key, other),
            scheme: 1,
            attempt_id: token,
            attempt_id_used: used && !known.row.as_ref().is_some_and(|row| row.state.is_terminal()),
            lease: short.then_some(20 * SECOND),
            ttl: None,
            can_reconcile,
            carried: false,
            held: false,
        };
        let call = format!(
            "SELECT decision || ' ' || granted || ' ' || coalesce(attempt_id::text, '') FROM idem_reserve('{}',
                '{{\"n\": {}}}', action_type => '{}', attempt_id => '{token}', lease_seconds => {},
                can_reconcile => {can_reconcile})",
            self.key(key),
            if other { 2 } else { 1 },
            self.action_type(key),
            if short { "20" } else { "NULL" },
        );
        self.compares(happening, &call, |_| Event::Reserve(ask))
    }

    /// Makes a call, asks the rules, and compares what was said and what is stored.
    fn compares<'a>(
        &mut self,
        happening: Happening,
        call: &str,
        event: impl Fn(f64) -> Event<'a>,
    ) -> Checked {
        let Happening { key, session, .. } = happening;
        self.stage.steps.set(self.stage.steps.get() + 1);
        let (granted, current) = self.policies(key);
        let id = self.id(key);
        let inside = self.open.as_ref().is_some_and(|open| open.session == session);
        if let Some(open) = self.open.as_mut().filter(|_| inside) {
            open.before.entry(key).or_insert_with(|| self.known[key].clone());
        }
        let before = self.known[key].row.clone();
        let client = &mut self.stage.sessions[session];
        let earliest = clock(client);
        let said = client.query_one(call, &[]).map(|row| row.get::<_, Option<String>>(0).unwrap_or_default());
        let code = said
            .as_ref()
            .err()
            .map(|error| error.code().map_or_else(|| error.to_string(), |code| code.code().to_owned()));
        if inside && code.is_some() {
            client.batch_execute("ROLLBACK").expect("rolls back");
        }
        let latest = clock(client);
        let stored = row::action(client, id).expect("a row");
        let policies = Policies { granted: &granted, current: &current };
        let judged = judge(before.as_ref(), &event, policies, (earliest, latest));
        let token = match event(0.0) {
            Event::Reserve(ask) => Some(ask.attempt_id),
            _ => None,
        };
        let word = code
            .clone()
            .or_else(|| Some(said.as_ref().ok()?.split(' ').next()?.to_owned()))
            .unwrap_or_default();
        let word = if word.len() == 36 { "a provider key" } else { &word }.to_owned();
        *self.stage.tally.entry(word).or_default() += 1;
        let refused_before = self.refused_before_the_rules(key, inside, &event(0.0), &granted);
        let context = format!("{call}\nsaid {said:?}, code {code:?}, before {before:?}");
        if let Some(expected) = refused_before {
            prop_assert_eq!(code.as_deref(), Some(expected), "{}", context);
        } else if let Some(step) = judged.step() {
            match step {
                Err(error) => {
                    prop_assert_eq!(code.as_deref(), Some(error.code.sqlstate()), "{} {}", context, error)
                }
                Ok(step) => {
                    prop_assert!(code.is_none(), "{}\nthe rules say {:?}", context, step.answer);
                    self.compare_answer(&said.unwrap_or_default(), step.answer, token, &context)?;
                    let difference = judged.difference(before.as_ref(), stored.as_ref());
                    prop_assert!(difference.is_none(), "{}\n{}", context, difference.unwrap_or_default());
                    let ends = matches!(
                        event(0.0),
                        Event::Commit(_)
                            | Event::MarkUnknown(_)
                            | Event::Fail(_)
                            | Event::Release(_)
                            | Event::Resolve(_)
                            | Event::Escalate
                            | Event::Decide(_)
                            | Event::Reopen
                    );
                    self.enter(key, inside, step, (token, ends), stored.as_ref())?;
                }
            }
        } else {
            self.stage.boundaries.set(self.stage.boundaries.get() + 1);
            self.after_a_boundary(key);
        }
        if code.is_some() {
            if inside {
                self.forget(session);
            }
            let now = row::action(&mut self.stage.observer, id).expect("a row");
            prop_assert_eq!(&now, &self.known[key].row, "a refused call changed something: {}", context);
        } else {
            self.known[key].row = stored;
        }
        Ok(())
    }

    /// What the database refuses by itself, before the rules are asked.
    fn refused_before_the_rules(
        &mut self,
        key: usize,
        inside: bool,
        event: &Event,
        granted: &Policy,
    ) -> Option<&'static str> {
        let known = &self.known[key];
        match (event, &known.row) {
            (Event::Dispatch { .. }, _) if inside => Some(Code::ActiveTransaction.sqlstate()),
            (Event::Reserve(ask), Some(row)) if row.fingerprint == ask.fingerprint => {
                let owner = match row.state {
                    State::Started => row.attempt_id,
                    State::Unknown if row.reconcile_lease_expires_at.is_some() => row.reconcile_id,
                    _ => None,
                };
                (inside && owner.is_some() && owner == known.granted_here)
                    .then_some(Code::WrongState.sqlstate())
            }
            (Event::Commit(_), Some(row)) if row.state == State::Started => {
                let here = inside && row.attempt_id == known.granted_here;
                let refuses = granted.marks_dispatch || granted.class.needs_two_transactions();
                (here && granted.effect == Effect::External && refuses).then_some(Code::WrongState.sqlstate())
            }
            (Event::Approve(_), Some(row)) if row.state == State::Proposed => {
                let id = self.id(key);
                let query = "SELECT request IS NULL FROM idem_action WHERE action_id = $1";
                let missing = self
                    .stage
                    .observer
                    .query_opt(query, &[&id])
                    .expect("a look")
                    .is_some_and(|row| row.get(0));
                missing.then_some(Code::WrongState.sqlstate())
            }
            _ => None,
        }
    }

    fn compare_answer(&self, said: &str, answer: Answer, token: Option<Uuid>, context: &str) -> Checked {
        let expected = match answer {
            Answer::Decided(decision, _) => {
                let shown =
                    token.filter(|_| decision.owns()).map(|token| token.to_string()).unwrap_or_default();
                format!("{} {} {shown}", decision.word(), decision.is_granted())
            }
            Answer::Committed => "committed".to_owned(),
            Answer::AlreadyCommitted => "already_committed".to_owned(),
            Answer::Superseded => "superseded".to_owned(),
            Answer::Discrepancy => "discrepancy".to_owned(),
            Answer::Recorded => "recorded".to_owned(),
            Answer::Stopped => "stopped".to_owned(),
            Answer::TooLate => "too_late".to_owned(),
            Answer::State(state) => state.word().to_owned(),
            _ => return Ok(()),
        };
        let dispatched = said.len() == 36 && Uuid::parse_str(said).is_ok();
        prop_assert!(said == expected || dispatched, "said {}, expected {}: {}", said, expected, context);
        Ok(())
    }

    /// What a move leaves behind beside the row: tokens, history, the fence.
    fn enter(
        &mut self,
        key: usize,
        inside: bool,
        step: &Step,
        (token, ends): (Option<Uuid>, bool),
        stored: Option<&Action>,
    ) -> Checked {
        self.remember(key, step);
        let known = &mut self.known[key];
        if let (Answer::Decided(decision, _), Some(token), Some(row)) = (step.answer, token, stored)
            && decision.owns()
        {
            known.tokens.push(token);
            if step.next.is_some() {
                prop_assert!(row.fence > known.fence, "the fence does not rise");
                known.fence = row.fence;
            }
            known.granted_here = Some(token).filter(|_| inside);
        }
        let report = matches!(step.answer, Answer::Superseded | Answer::Discrepancy | Answer::Recorded);
        if ends && !report {
            known.granted_here = None;
        }
        Ok(())
    }

    /// On a boundary either answer is right: the history is read as it stands.
    fn after_a_boundary(&mut self, key: usize) {
        let id = self.id(key);
        let rows = self.stage.observer.query(
            "SELECT attempt_id, reconciling FROM idem_attempt WHERE action_id = $1 ORDER BY n",
            &[&id],
        );
        self.known[key].ended = rows.expect("a look").iter().map(|row| (row.get(0), row.get(1))).collect();
    }

    /// An error in a transaction takes back all of it.
    fn forget(&mut self, session: usize) {
        let Some(open) = self.open.take_if(|open| open.session == session) else { return };
        for (key, before) in open.before {
            let tokens = std::mem::take(&mut self.known[key].tokens);
            self.known[key] = Known { tokens, ..before };
        }
    }

    /// The history has every attempt that the rules said had ended, in that order.
    fn compare_history(&mut self) -> Checked {
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

/// A token that nobody has. Version 4, so that it is taken.
fn fresh(choice: u32) -> Uuid {
    thread_local!(static NEXT: Cell<u64> = const { Cell::new(1) });
    let n = NEXT.with(|next| next.replace(next.get() + 1));
    let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock").as_nanos() as u64;
    let bytes = (u128::from(nanos ^ u64::from(choice)) << 64 | u128::from(n)).to_be_bytes();
    Builder::from_random_bytes(bytes).into_uuid()
}

fn register(client: &mut Client, name: &str, settle: i32) {
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
        let known = vec![Known::default(); 3];
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
