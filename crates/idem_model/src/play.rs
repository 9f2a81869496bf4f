//! One step of a story: somebody acts, the rules judge, the row is stored, the books are kept.

use idem_rules::policy::Policies;
use idem_rules::transition::{
    Answer, Approve, Ask, Caller, Commit, Decide, Decision, Event, Evidence, Fail, Finding, Person, Proof,
    Resolve,
};
use uuid::Uuid;

use crate::Play;
use crate::books::Move;
use crate::happening::Happening;
use crate::setting::TICK;
use crate::world::{Reconciler, Request, Worker, World, attempt_token, reconciler_token};

/// What everybody asks for.
pub const FINGERPRINT: [u8; 32] = [7; 32];

/// The world after `happening`; `None` when it cannot happen now, or changes nothing.
pub fn happens(play: &Play, world: &World, happening: Happening) -> Option<World> {
    let mut turn = Turn { play, world: world.clone() };
    turn.happens(happening)?;
    turn.world.forget();
    (turn.world != *world).then_some(turn.world)
}

/// A question with a token of the caller's.
pub fn ask(attempt_id: Uuid, can_reconcile: bool) -> Ask {
    Ask {
        fingerprint: FINGERPRINT,
        scheme: 1,
        attempt_id,
        attempt_id_used: false,
        lease: None,
        ttl: None,
        can_reconcile,
        carried: false,
        held: false,
    }
}

fn person(role: &str) -> Person<'_> {
    Person { role, session_role: role, name: None }
}

struct Turn<'a> {
    play: &'a Play,
    world: World,
}

impl Turn<'_> {
    /// Has the rules judge; what they return is stored and entered in the books. `None` when they refuse.
    fn moves(&mut self, event: &Event) -> Option<Answer> {
        let World { action, now, version, books, effects, .. } = &mut self.world;
        let current = &self.play.setting.policies[*version];
        let granted = action.as_ref().map_or(current, |row| self.play.setting.policy(row.policy_version));
        let policies = Policies { granted, current };
        let step = (self.play.rules)(action.as_ref(), event, policies, *now).ok()?;
        let before = action.clone();
        if let Some(next) = &step.next {
            *action = Some(next.clone());
        }
        let after = action.as_ref()?;
        let made = Move { event, step: &step, before: before.as_ref(), after, policies, now: *now };
        books.enter(&made, *effects);
        Some(step.answer)
    }

    fn caller(&self, n: usize) -> Caller {
        Caller { attempt_id: attempt_token(self.world.workers[n].attempt), earlier: true }
    }

    fn happens(&mut self, happening: Happening) -> Option<()> {
        match happening {
            Happening::Tick => self.tick(),
            Happening::Ask(can_reconcile) => self.ask(can_reconcile)?,
            Happening::AskAgain(n) => self.ask_again(n)?,
            Happening::Dispatch(n) => self.dispatch(n)?,
            Happening::Send(n) => self.send(n)?,
            Happening::Effect(n) => self.provider(n, true)?,
            Happening::Refusal(n) => self.provider(n, false)?,
            Happening::Commit(n, record_when_lost) => {
                let commit = Commit { caller: self.caller(n), resource_id: Some("made"), record_when_lost };
                self.moves(&Event::Commit(commit))?;
            }
            Happening::Refused(n, retryable, new_provider_key) => {
                self.moves(&self.failure(n, Proof::Refused, retryable, new_provider_key))?;
            }
            Happening::NotSent(n) => {
                self.keeps_silent(n)?;
                self.moves(&self.failure(n, Proof::NotSent, true, true))?;
            }
            Happening::Release(n) => {
                self.keeps_silent(n)?;
                self.moves(&Event::Release(self.caller(n)))?;
            }
            Happening::MarkUnknown(n) => drop(self.moves(&Event::MarkUnknown(self.caller(n)))?),
            Happening::Renew(n) => {
                let Answer::Lease(end) = self.moves(&Event::Renew(self.caller(n), None))? else {
                    return None;
                };
                self.world.workers[n].lease_end = end;
            }
            Happening::Evidence(n) => {
                let caller = self.caller(n);
                let evidence = Evidence { caller, finding: Finding::Applied, resource_id: Some("made") };
                self.moves(&Event::Evidence(evidence))?;
            }
            Happening::Look(n) => {
                self.world.reconcilers[n].seen = Some((self.world.now, self.world.effects > 0));
            }
            Happening::Report(n) => self.report(n)?,
            Happening::Inconclusive(n) => drop(self.moves(&found(n, Finding::Inconclusive))?),
            Happening::Ambiguous(n) => drop(self.moves(&found(n, Finding::Ambiguous))?),
            Happening::Visit => drop(self.moves(&Event::Visit { open_children: false })?),
            Happening::Change => self.world.version += 1,
            Happening::Approve => {
                let approve = Approve {
                    fingerprint: &FINGERPRINT,
                    policy_version: None,
                    valid: None,
                    proposer: Some(person("app")),
                    approver: person("boss"),
                };
                self.moves(&Event::Approve(approve))?;
            }
            Happening::Reject => drop(self.moves(&Event::Reject)?),
            Happening::Withdraw => drop(self.moves(&Event::Withdraw)?),
            Happening::Escalate => drop(self.moves(&Event::Escalate)?),
            Happening::Decide(verdict) => {
                self.moves(&Event::Decide(Decide { verdict, resource_id: None }))?;
            }
            Happening::Reopen => drop(self.moves(&Event::Reopen)?),
        }
        Some(())
    }

    fn tick(&mut self) {
        self.world.now += TICK;
        let now = self.world.now;
        for worker in &mut self.world.workers {
            if matches!(worker.request, Request::Underway(until) if until <= now) {
                worker.request = Request::Lost;
            }
        }
    }

    fn ask(&mut self, can_reconcile: bool) -> Option<()> {
        let attempt = self.world.books.attempts();
        if can_reconcile {
            let n = self.world.reconcilers.len();
            if let Answer::Decided(decision, _) =
                self.moves(&Event::Reserve(ask(reconciler_token(n), true)))?
            {
                // Whoever is told anything else is a caller like others.
                (decision == Decision::Reconcile || !decision.owns()).then_some(())?;
                if decision == Decision::Reconcile {
                    self.world.reconcilers.push(Reconciler { seen: None, reported: false });
                }
            }
            return Some(());
        }
        self.asked(attempt, ask(attempt_token(attempt), false))
    }

    fn ask_again(&mut self, n: usize) -> Option<()> {
        let attempt = self.world.workers[n].attempt;
        self.asked(attempt, Ask { attempt_id_used: true, ..ask(attempt_token(attempt), false) })
    }

    fn asked(&mut self, attempt: u8, ask: Ask) -> Option<()> {
        let Answer::Decided(decision, _) = self.moves(&Event::Reserve(ask))? else { return None };
        if decision.is_granted() {
            let row = self.world.action.as_ref()?;
            self.world.workers.push(Worker {
                attempt,
                lease_end: row.lease_expires_at?,
                generation: row.generation,
                dispatched: false,
                request: Request::Unsent,
                silent: false,
            });
        }
        Some(())
    }

    fn dispatch(&mut self, n: usize) -> Option<()> {
        let worker = self.world.workers[n];
        if worker.dispatched || !self.world.books.marks(worker.attempt) {
            return None;
        }
        self.moves(&Event::Dispatch { caller: self.caller(n), held: false })?;
        self.world.workers[n].dispatched = true;
        Some(())
    }

    /// Nobody sends after the lease that he knows of, or without the mark where one is asked for. How long the
    /// request then takes is another matter: a stall between the look at the clock and the send is part of that.
    fn send(&mut self, n: usize) -> Option<()> {
        let World { now, workers, books, remembered, .. } = &mut self.world;
        let worker = workers[n];
        if *now >= worker.lease_end || (books.marks(worker.attempt) && !worker.dispatched) {
            return None;
        }
        let window = self.play.setting.provider_window();
        let known = remembered.iter().any(|(key, since)| *key == worker.generation && *now < since + window);
        workers[n].request = match known {
            true => {
                let first = workers.iter().find(|other| {
                    other.generation == worker.generation && matches!(other.request, Request::Answered(_))
                });
                first.map_or(Request::Lost, |other| other.request)
            }
            false => Request::Underway(books.takes_effect_before(worker.attempt, worker.lease_end)),
        };
        if !known && window > 0 {
            remembered.push((worker.generation, *now));
        }
        Some(())
    }

    fn provider(&mut self, n: usize, effect: bool) -> Option<()> {
        let World { workers, books, effects, .. } = &mut self.world;
        workers[n].request = Request::Answered(effect);
        if effect {
            *effects += 1;
            books.effect(*effects, self.play.setting.counts_effects());
        }
        Some(())
    }

    fn failure(&self, n: usize, proof: Proof, retryable: bool, new_provider_key: bool) -> Event<'static> {
        let caller = self.caller(n);
        let retry_after = Some(TICK);
        Event::Fail(Fail { caller, proof, retryable, retry_after, new_provider_key, random: 0.0 })
    }

    /// A token stands for all who hold it: none of them may have sent, and none will.
    fn keeps_silent(&mut self, n: usize) -> Option<()> {
        let attempt = self.world.workers[n].attempt;
        for worker in self.world.workers.iter_mut().filter(|worker| worker.attempt == attempt) {
            (worker.request == Request::Unsent && !worker.dispatched).then_some(())?;
            worker.silent = true;
        }
        Some(())
    }

    fn report(&mut self, n: usize) -> Option<()> {
        let (at, effect) = self.world.reconcilers[n].seen?;
        if !effect && !self.world.reconcilers[n].reported {
            self.world.books.saw_nothing(at);
        }
        self.world.reconcilers[n].reported = true;
        let finding = if effect { Finding::Applied } else { Finding::NotApplied };
        self.moves(&found(n, finding))?;
        Some(())
    }
}

fn found(n: usize, finding: Finding) -> Event<'static> {
    let caller = Caller { attempt_id: reconciler_token(n), earlier: false };
    Event::Resolve(Resolve { caller, finding, resource_id: None, next_probe: Some(TICK), random: 0.0 })
}
