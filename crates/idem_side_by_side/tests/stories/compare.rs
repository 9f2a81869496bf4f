//! One call on the server and by the rules: what was said, what is stored, and the history.

use idem_rules::action::{Action, State};
use idem_rules::error::Code;
use idem_rules::policy::{Effect, Policies, Policy};
use idem_rules::transition::{Answer, Event, Step, Verdict};
use idem_side_by_side::judged::judge;
use idem_side_by_side::row;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use uuid::Uuid;

use crate::stage::clock;
use crate::story::{Checked, Happening, PARENTS, Story};

/// What is known of a call besides the rules' part in it.
#[derive(Default, Clone, Copy)]
pub struct Besides {
    /// It is refused with this SQLSTATE before the rules are asked.
    pub refused: Option<&'static str>,
    /// Words that stand for whatever the rules answer.
    pub words: &'static [&'static str],
}

impl Story<'_> {
    /// Makes a call, asks the rules, and compares what was said and what is stored.
    pub fn compares<'a>(
        &mut self,
        happening: Happening,
        call: &str,
        event: impl Fn(f64) -> Event<'a>,
    ) -> Checked {
        self.compares_besides(happening, call, event, Besides::default()).map(drop)
    }

    /// The same; true when the call was not refused.
    pub fn compares_besides<'a>(
        &mut self,
        happening: Happening,
        call: &str,
        event: impl Fn(f64) -> Event<'a>,
        besides: Besides,
    ) -> Result<bool, TestCaseError> {
        let Happening { key, session, .. } = happening;
        self.stage.steps.set(self.stage.steps.get() + 1);
        let (granted, current) = self.policies(key);
        let id = self.id(key);
        let inside = self.notes(session, key);
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
        let refused = code.is_some();
        let word = code
            .clone()
            .or_else(|| Some(said.as_ref().ok()?.split(' ').next()?.to_owned()))
            .unwrap_or_default();
        let word = if word.len() == 36 { "a uuid" } else { &word }.to_owned();
        *self.stage.tally.entry(word).or_default() += 1;
        let refused_before =
            besides.refused.or_else(|| self.refused_before_the_rules(key, inside, &event(0.0), &granted));
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
                    let said = said.unwrap_or_default();
                    if !besides.words.contains(&&*said) {
                        self.compare_answer(&said, step.answer, token, &context)?;
                    }
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
                            | Event::Carry { .. }
                    ) && step.answer != Answer::Nothing;
                    self.enter(key, inside, step, (token, ends), stored.as_ref())?;
                }
            }
        } else {
            self.stage.boundaries.set(self.stage.boundaries.get() + 1);
            self.after_a_boundary(session, key);
        }
        if refused {
            if inside {
                self.forget(session);
            }
            let now = row::action(&mut self.stage.observer, id).expect("a row");
            prop_assert_eq!(&now, &self.known[key].row, "a refused call changed something: {}", context);
        } else {
            self.known[key].row = stored;
        }
        Ok(!refused)
    }

    /// What the database refuses by itself, before the rules are asked.
    pub fn refused_before_the_rules(
        &mut self,
        key: usize,
        inside: bool,
        event: &Event,
        granted: &Policy,
    ) -> Option<&'static str> {
        let known = &self.known[key];
        match (event, &known.row) {
            (Event::Dispatch { .. }, _) if inside => Some(Code::ActiveTransaction.sqlstate()),
            (Event::Reserve(ask) | Event::Propose(ask), Some(row)) if row.fingerprint == ask.fingerprint => {
                let owner = match row.state {
                    State::Started => row.attempt_id,
                    State::Unknown if row.reconcile_lease_expires_at.is_some() => row.reconcile_id,
                    _ => None,
                };
                (inside && owner.is_some() && owner == known.granted_here)
                    .then_some(Code::WrongState.sqlstate())
            }
            (Event::Decide(decide), Some(_)) if decide.verdict != Verdict::Applied => {
                let child = self.known.get(key + PARENTS).filter(|child| key < PARENTS && child.tied);
                let open = child.and_then(|child| child.row.as_ref());
                open.is_some_and(|row| !row.state.is_terminal()).then_some(Code::IllegalMove.sqlstate())
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

    pub fn compare_answer(&self, said: &str, answer: Answer, token: Option<Uuid>, context: &str) -> Checked {
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
    pub fn enter(
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
    pub fn after_a_boundary(&mut self, session: usize, key: usize) {
        let id = self.id(key);
        let rows = self.stage.sessions[session].query(
            "SELECT attempt_id, reconciling FROM idem_attempt WHERE action_id = $1 ORDER BY n",
            &[&id],
        );
        self.known[key].ended = rows.expect("a look").iter().map(|row| (row.get(0), row.get(1))).collect();
    }
}
