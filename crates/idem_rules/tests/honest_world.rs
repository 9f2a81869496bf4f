//! Callers that tell the truth, a provider with a memory of its own, and any order of events: does it ever come
//! to a second effect, or to an effect that the ledger denies?
//!
//! Truthful means: nobody sends after the lease that he was told of, or without the mark where the type asks for
//! one; a failure is reported only when the provider said no or nothing was sent; a probe reports what could be
//! seen at that moment. An effect may take until the settle delay to be seen.

mod common;

use common::*;
use proptest::prelude::*;

#[derive(Debug, Clone, Copy)]
struct Happening {
    what: u8,
    who: usize,
    choice: u8,
    after: Span,
}

fn happening() -> impl Strategy<Value = Happening> {
    let after = prop_oneof![
        // Most things happen in no time, or no attempt would come to anything.
        16 => Just(0),
        3 => 1..=SECOND,
        2 => Just(20 * SECOND),
        2 => Just(LEASE),
        1 => Just(LEASE - 1),
        2 => 0..=200 * SECOND,
    ];
    let who = prop_oneof![4 => Just(0usize), 2 => Just(1), 1 => Just(2)];
    (0u8..28, who, any::<u8>(), after).prop_map(|(what, who, choice, after)| Happening {
        what,
        who,
        choice,
        after,
    })
}

/// A process that was told execute or resume.
#[derive(Debug, Clone, Copy)]
struct Process {
    token: Uuid,
    lease_end: Time,
    generation: i32,
    dispatched: bool,
    /// It said that it will not send.
    done: bool,
    /// What the provider answered: true for the effect.
    answer: Option<bool>,
}

struct World {
    policy: Policy,
    action: Option<Action>,
    now: Time,
    tokens: u128,
    processes: Vec<Process>,
    /// Each with the report that it made last.
    reconcilers: Vec<(Uuid, Option<Finding>)>,
    /// When each effect can be seen.
    effects: Vec<Time>,
    /// What the provider remembers by key: since when, and what it answered.
    remembered: Vec<(i32, Time, bool)>,
}

impl World {
    fn new(policy: Policy) -> World {
        World {
            policy,
            action: None,
            now: T0,
            tokens: 0,
            processes: Vec::new(),
            reconcilers: Vec::new(),
            effects: Vec::new(),
            remembered: Vec::new(),
        }
    }

    /// Makes a move and stores it; `None` when it is refused.
    fn moves(&mut self, event: &Event) -> Option<Answer> {
        let step = transition(self.action.as_ref(), event, Policies::same(&self.policy), self.now).ok()?;
        if let Some(next) = step.next {
            self.action = Some(next);
        }
        Some(step.answer)
    }

    fn caller(&self, token: Uuid) -> Caller {
        Caller { attempt_id: token, earlier: self.processes.iter().any(|process| process.token == token) }
    }

    fn reserve(&mut self, happening: Happening) {
        let bit = |n: u8| happening.choice & (1 << n) != 0;
        let known: Vec<Uuid> = self.processes.iter().map(|process| process.token).collect();
        let again = known.iter().rev().nth(happening.who).copied().filter(|_| bit(0));
        let attempt_id = again.unwrap_or_else(|| {
            self.tokens += 1;
            token(self.tokens)
        });
        let used =
            known.contains(&attempt_id) || self.reconcilers.iter().any(|(token, _)| *token == attempt_id);
        let asked = Ask {
            attempt_id,
            attempt_id_used: used,
            can_reconcile: bit(1),
            lease: bit(2).then_some(20 * SECOND),
            ..ask(0)
        };
        let Some(Answer::Decided(decision, _)) = self.moves(&Event::Reserve(asked)) else { return };
        if decision == Decision::Reconcile {
            self.reconcilers.push((attempt_id, None));
        }
        if decision.is_granted() {
            let action = self.action.as_ref().unwrap();
            self.processes.push(Process {
                token: attempt_id,
                lease_end: action.lease_expires_at.unwrap(),
                generation: action.generation,
                dispatched: false,
                done: false,
                answer: None,
            });
        }
    }

    fn send(&mut self, n: usize, happening: Happening) {
        let process = self.processes[n];
        let marked = process.dispatched || !self.policy.marks_dispatch;
        if process.done || process.answer.is_some() || !marked || self.now >= process.lease_end {
            return;
        }
        let known = self.remembered.iter().find(|(generation, since, _)| {
            *generation == process.generation && self.now <= since + self.policy.provider_key_window
        });
        let effect = known.map_or(!happening.choice.is_multiple_of(3), |(_, _, effect)| *effect);
        if known.is_none() {
            if effect {
                let delay = self.policy.settle_delay * i64::from(happening.choice) / 256;
                self.effects.push(self.now + delay);
            }
            if self.policy.provider_key_window > 0 {
                self.remembered.push((process.generation, self.now, effect));
            }
        }
        self.processes[n].answer = Some(effect);
    }

    fn report(&mut self, n: usize, happening: Happening) {
        let process = self.processes[n];
        let who = self.caller(process.token);
        let same = |process: &&mut Process| process.token == who.attempt_id;
        match (happening.what, process.answer) {
            (7..=8, Some(true)) => {
                let record_when_lost = happening.choice & 1 != 0;
                self.moves(&Event::Commit(Commit { caller: who, resource_id: None, record_when_lost }));
            }
            (7, Some(false)) => {
                let fail = Fail { new_provider_key: happening.choice & 1 != 0, ..refusal(who) };
                self.moves(&Event::Fail(Fail { retryable: happening.choice & 2 != 0, ..fail }));
            }
            (7..=8, None) => {
                // A token stands for all who hold it: none of them may have sent, and none will.
                let silent = self.processes.iter().filter(|process| process.token == who.attempt_id);
                if !process.done && silent.clone().all(|process| process.answer.is_none()) {
                    let fail = Event::Fail(Fail { proof: Proof::NotSent, ..refusal(who) });
                    let release = Event::Release(who);
                    self.moves(if happening.what == 7 { &fail } else { &release });
                    self.processes.iter_mut().filter(same).for_each(|process| process.done = true);
                }
            }
            (9, _) => {
                self.moves(&Event::MarkUnknown(who));
            }
            (10, _) => {
                if let Some(Answer::Lease(end)) = self.moves(&Event::Renew(who, None)) {
                    self.processes[n].lease_end = end;
                }
            }
            (11, Some(true)) => {
                self.moves(&evidence(who, Finding::Applied));
            }
            _ => {}
        }
    }

    fn probe(&mut self, n: usize, happening: Happening) {
        let seen = self.effects.iter().any(|visible| *visible <= self.now);
        let finding = match happening.choice % 4 {
            0 => Finding::Inconclusive,
            _ if seen => Finding::Applied,
            _ => Finding::NotApplied,
        };
        // The answer to a report may get lost, and then the same report comes again, however late.
        let (attempt_id, last) = self.reconcilers[n];
        let finding = last.filter(|_| happening.choice & 0x80 != 0).unwrap_or(finding);
        self.reconcilers[n].1 = Some(finding);
        let who = Caller { attempt_id, earlier: false };
        let resolve = Resolve { caller: who, finding, resource_id: None, next_probe: None, random: 0.0 };
        self.moves(&Event::Resolve(resolve));
    }

    fn happens(&mut self, happening: Happening) -> Result<(), TestCaseError> {
        self.now += happening.after;
        let process = self.processes.len().checked_sub(happening.who + 1);
        let reconciler = self.reconcilers.len().checked_sub(happening.who + 1);
        match happening.what {
            0..=3 => self.reserve(happening),
            4..=6 => {
                if let Some(n) = process {
                    if self.policy.marks_dispatch && !self.processes[n].dispatched {
                        let event = dispatch(self.caller(self.processes[n].token));
                        self.processes[n].dispatched = self.moves(&event).is_some();
                    }
                    self.send(n, happening);
                }
            }
            7..=11 => {
                if let Some(n) = process {
                    self.report(n, happening);
                }
            }
            12..=18 => {
                if let Some(n) = reconciler {
                    self.probe(n, happening);
                }
            }
            19..=20 => drop(self.moves(&VISIT)),
            21..=23 => drop(self.moves(&Event::Approve(approval()))),
            24 => drop(self.moves(&Event::Reopen)),
            25 if happening.choice & 1 == 0 => drop(self.moves(&Event::Withdraw)),
            26 if happening.choice & 1 == 0 => drop(self.moves(&Event::Escalate)),
            27 if happening.choice & 1 == 0 => drop(self.moves(&Event::Reject)),
            _ => self.reserve(Happening { choice: 2, ..happening }),
        }
        prop_assert!(self.effects.len() < 2, "{} effects", self.effects.len());
        if let (Some(action), false) = (&self.action, self.effects.is_empty()) {
            let denied = matches!(action.state, State::Failed | State::Rejected | State::Retryable);
            prop_assert!(!denied || action.flags.discrepancy, "the effect is denied: {:?}", action.state);
        }
        Ok(())
    }
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let short = Policy { provider_key_window: 100 * SECOND, ..careful() };
    prop_oneof![
        Just(careful()),
        Just(windowed()),
        Just(short.clone()),
        // Shorter than the lease of an attempt that needs no window.
        Just(Policy { provider_key_window: 30 * SECOND, ..careful() }),
        Just(Policy { marks_dispatch: true, ..short }),
        Just(marking()),
        Just(approving()),
        Just(Policy { probes_required: 1, ..careful() }),
        Just(policy(Class::Reversible)),
    ]
}

proptest! {
    // PROPTEST_CASES asks for more.
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(2048),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn one_effect_and_none_denied(policy in any_policy(), story in prop::collection::vec(happening(), 1..80)) {
        let mut world = World::new(policy);
        for happening in story {
            world.happens(happening)?;
        }
    }
}
