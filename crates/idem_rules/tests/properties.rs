//! Random stories about one action. The observer keeps its own books, by the contract's words and not by the
//! row's flags, and compares.

mod common;

use common::*;
use idem_rules::expiry::open;
use proptest::prelude::*;

/// What happens next: which call, by whom (an index into the tokens known), with which choice.
#[derive(Debug, Clone, Copy)]
struct Happening {
    what: u8,
    who: usize,
    choice: u8,
    after: Span,
}

fn happening() -> impl Strategy<Value = Happening> {
    // Times that meet the boundaries, and times that do not.
    let after = prop_oneof![
        // Most things happen in no time, or no attempt would come to anything.
        16 => Just(0),
        4 => 1..=SECOND,
        3 => Just(20 * SECOND),
        3 => Just(LEASE),
        2 => Just(LEASE - 1),
        2 => 0..=600 * SECOND,
        1 => Just(DAY),
        1 => Just(31 * DAY),
    ];
    let who = prop_oneof![5 => Just(0usize), 2 => Just(1), 1 => Just(2), 1 => Just(3), 1 => Just(99)];
    (0u8..26, who, any::<u8>(), after).prop_map(|(what, who, choice, after)| Happening {
        what,
        who,
        choice,
        after,
    })
}

/// An attempt whose outcome is open, as far as anybody outside can know.
#[derive(Debug, Clone, Copy)]
struct Outcome {
    token: Uuid,
    dispatched: bool,
}

struct Story {
    versions: Vec<Policy>,
    action: Option<Action>,
    now: Time,
    tokens: u128,
    attempts: Vec<Uuid>,
    reconcilers: Vec<Uuid>,
    outcomes: Vec<Outcome>,
    first_grant: Option<(i32, Time)>,
    /// Somebody said that it happened, and no person has decided since.
    reported: bool,
    /// Until when a person's approval holds, and for which version of the policy.
    approved: Option<(Time, i32)>,
    fence: i64,
}

impl Story {
    fn new(policy: Policy) -> Story {
        Story {
            versions: vec![policy],
            action: None,
            now: T0,
            tokens: 0,
            attempts: Vec::new(),
            reconcilers: Vec::new(),
            outcomes: Vec::new(),
            first_grant: None,
            reported: false,
            approved: None,
            fence: 0,
        }
    }

    fn current(&self) -> Policy {
        self.versions.last().unwrap().clone()
    }

    fn granted(&self) -> Policy {
        let version = self.action.as_ref().map_or(self.versions.len() as i32, |action| action.policy_version);
        self.versions[version as usize - 1].clone()
    }

    /// A caller with a token that this action has seen, or with one that it has not.
    fn caller(&self, who: usize) -> Caller {
        let known: Vec<Uuid> = self.attempts.iter().chain(&self.reconcilers).rev().copied().collect();
        let attempt_id = known.get(who).copied().unwrap_or(token(900));
        Caller { attempt_id, earlier: self.attempts.contains(&attempt_id) }
    }

    fn ask(&mut self, happening: Happening) -> Ask {
        let bit = |n: u8| happening.choice & (1 << n) != 0;
        let again = self.caller(happening.who).attempt_id;
        let attempt_id = if bit(0) && again != token(900) {
            again
        } else {
            self.tokens += 1;
            token(self.tokens)
        };
        Ask {
            attempt_id,
            attempt_id_used: self.attempts.contains(&attempt_id) || self.reconcilers.contains(&attempt_id),
            lease: bit(1).then_some(20 * SECOND),
            can_reconcile: bit(2),
            carried: self.action.is_some() && bit(3) && bit(4),
            held: bit(3) && bit(5),
            ..ask(0)
        }
    }

    fn event(&mut self, happening: Happening) -> Option<Event<'static>> {
        let who = self.caller(happening.who);
        let bit = |n: u8| happening.choice & (1 << n) != 0;
        let finding = [
            Finding::Applied,
            Finding::NotApplied,
            Finding::NotApplied,
            Finding::Inconclusive,
            Finding::Ambiguous,
            Finding::PartiallyApplied,
        ][usize::from(happening.choice) % 6];
        let resource_id = [None, Some("re_1"), Some("re_2")][usize::from(happening.choice) % 3];
        Some(match happening.what {
            0..=6 => Event::Reserve(self.ask(happening)),
            7 => Event::Commit(Commit { caller: who, resource_id, record_when_lost: bit(4) }),
            8 => Event::MarkUnknown(who),
            9..=10 => Event::Fail(Fail {
                caller: who,
                proof: if bit(0) { Proof::NotSent } else { Proof::Refused },
                retryable: !bit(1) || bit(2),
                retry_after: None,
                new_provider_key: bit(3),
                random: 0.0,
            }),
            11 => Event::Renew(who, bit(0).then_some(100 * SECOND)),
            12 => Event::Release(who),
            13..=14 => Event::Dispatch { caller: who, held: bit(4) && bit(5) },
            15 => Event::Evidence(Evidence { caller: who, finding, resource_id }),
            16..=18 => {
                Event::Resolve(Resolve { caller: who, finding, resource_id, next_probe: None, random: 0.5 })
            }
            19 => VISIT,
            20 if bit(0) => Event::Escalate,
            20 if bit(1) => Event::Cancel,
            20 => Event::Withdraw,
            21 if bit(0) => decide(
                [Verdict::Applied, Verdict::NotApplied, Verdict::Retry][usize::from(finding as u8) % 3],
            ),
            21 => Event::Reopen,
            22..=23 => Event::Approve(approval()),
            24 if bit(0) => Event::Reject,
            24 if bit(1) => Event::Restore,
            24 => VISIT,
            _ => {
                // The type is changed.
                let version = self.versions.len() as i32 + 1;
                let mut next = self.current();
                next.version = version;
                next.provider_key_window = if bit(0) { 0 } else { 300 * SECOND };
                next.marks_dispatch ^= bit(1) && !next.requires_approval;
                self.versions.push(next);
                return None;
            }
        })
    }

    fn happens(&mut self, happening: Happening) -> Result<(), TestCaseError> {
        self.now += happening.after;
        let Some(event) = self.event(happening) else { return Ok(()) };
        let (granted, current) = (self.granted(), self.current());
        let policies = Policies { granted: &granted, current: &current };
        let before = self.action.clone();
        let Ok(step) = transition(before.as_ref(), &event, policies, self.now) else { return Ok(()) };
        let after = step.next.clone().or(before.clone()).unwrap();
        self.compare(before.as_ref(), &after, &event, &step, &current)?;
        self.remember(before.as_ref(), &after, &event, &step, &granted, &current);
        self.action = Some(after);
        Ok(())
    }

    fn compare(
        &self,
        before: Option<&Action>,
        after: &Action,
        event: &Event,
        step: &Step,
        current: &Policy,
    ) -> Result<(), TestCaseError> {
        let state = before.map(|action| action.state);
        let decided = matches!(event, Event::Decide(_));
        if let (Answer::Decided(Decision::Execute, _), Event::Reserve(ask)) = (step.answer, event) {
            let lease = ask.lease.unwrap_or(current.lease);
            let free = current.class.repeats_freely();
            let inside = self.first_grant.is_some_and(|(generation, at)| {
                generation == after.generation && self.now + lease <= at + current.provider_key_window
            });
            let open = self.outcomes.iter().any(|outcome| outcome.dispatched);
            prop_assert!(!open || free || inside, "a second effect: {:?}", self.outcomes);
            prop_assert!(!self.reported, "repeated although somebody says that it happened");
            let approved =
                self.approved.is_some_and(|(until, version)| self.now < until && version == current.version);
            prop_assert!(approved || !current.requires_approval, "not approved");
            prop_assert!(!self.attempts.contains(&ask.attempt_id) && !ask.held && !ask.carried);
            prop_assert_eq!(after.attempt, before.map_or(0, |action| action.attempt) + 1);
            prop_assert!(after.fence > self.fence && after.fence >= self.now);
            prop_assert!(before.is_none_or(|action| !action.lease_alive(self.now)));
            prop_assert!(before.is_none_or(|action| !action.reconciler_alive(self.now)));
        } else {
            prop_assert_eq!(after.attempt, before.map_or(0, |action| action.attempt));
        }
        if let Answer::Decided(Decision::Reconcile, _) = step.answer {
            prop_assert!(after.fence > self.fence && after.fence >= self.now);
            prop_assert!(before.is_none_or(|action| !action.reconciler_alive(self.now)));
        }
        prop_assert!(!(after.lease_alive(self.now) && after.reconciler_alive(self.now)));
        if let (Event::Fail(_) | Event::Release(_), Some(action)) = (event, before) {
            let mine = action.attempt_id;
            let others = self.outcomes.iter().any(|outcome| Some(outcome.token) != mine);
            let sticky = !others || !matches!(action.state, State::Started | State::Unknown);
            prop_assert!(sticky || after.state == State::Unknown, "sticky");
        }
        if state == Some(State::Committed) && after.state != State::Committed {
            prop_assert!(decided || (after.state == State::Expired && event == &VISIT));
        }
        if self.reported && !decided && state != Some(State::Expired) {
            let kept = after.flags.positive_evidence || after.flags.discrepancy;
            prop_assert!(kept || after.state == State::Committed, "positive evidence was overruled");
            let undone = matches!(after.state, State::Failed | State::Rejected | State::Retryable);
            prop_assert!(!undone || after.flags.discrepancy, "positive evidence was overruled");
        }
        if matches!(after.state, State::Rejected | State::Proposed) && state != Some(after.state) && !decided
        {
            // What the event itself disproves is no such thing.
            let disproved = match event {
                Event::Fail(Fail { caller, .. }) | Event::Release(caller) => Some(caller.attempt_id),
                _ => None,
            };
            let looked_up = matches!(event, Event::Resolve(_));
            let mut others = self.outcomes.iter().filter(|outcome| Some(outcome.token) != disproved);
            let sent = !looked_up && others.any(|outcome| outcome.dispatched);
            prop_assert!(!sent, "rejected or proposed again although something may have been sent");
        }
        // Nothing that somebody has to care for is out of sight.
        if !after.state.is_terminal() {
            let first_lease = after.state == State::Started && after.lease_expires_at == Some(after.visit_at);
            prop_assert_eq!(open(after, self.now).is_none(), first_lease && !after.flags.discrepancy);
        }
        Ok(())
    }

    fn remember(
        &mut self,
        before: Option<&Action>,
        after: &Action,
        event: &Event,
        step: &Step,
        granted: &Policy,
        current: &Policy,
    ) {
        self.fence = after.fence;
        match (event, step.answer) {
            (Event::Reserve(ask), Answer::Decided(Decision::Execute, _)) => {
                self.attempts.push(ask.attempt_id);
                self.outcomes.push(Outcome { token: ask.attempt_id, dispatched: !current.marks_dispatch });
                if self.first_grant.is_none_or(|(generation, _)| generation != after.generation) {
                    self.first_grant = Some((after.generation, self.now));
                }
            }
            (Event::Reserve(ask), Answer::Decided(Decision::Reconcile, _)) => {
                self.reconcilers.push(ask.attempt_id)
            }
            (Event::MarkUnknown(who), _) | (Event::Dispatch { caller: who, .. }, _) => {
                for outcome in self.outcomes.iter_mut().filter(|outcome| outcome.token == who.attempt_id) {
                    outcome.dispatched = true;
                }
            }
            (Event::Fail(Fail { caller: who, .. }), _) | (Event::Release(who), _) => {
                self.outcomes.retain(|outcome| outcome.token != who.attempt_id);
            }
            (Event::Restore, Answer::State(_)) => {
                // Whatever was forgotten may have been sent, under a key that the provider no longer knows.
                self.outcomes.push(Outcome { token: Uuid::max(), dispatched: true });
                self.first_grant = None;
                self.approved = None;
            }
            (Event::Approve(_), _) => {
                self.approved = Some((self.now + current.approval_ttl, current.version))
            }
            (Event::Resolve(_), Answer::State(State::Retryable | State::Failed)) => self.outcomes.clear(),
            (Event::Decide(_), _) => {
                self.outcomes.clear();
                self.reported = false;
            }
            _ => {}
        }
        let positive = match event {
            Event::Evidence(evidence) => evidence.finding.is_positive(),
            _ => step.answer == Answer::Superseded,
        };
        if positive && before.is_some_and(|action| !action.state.is_terminal()) {
            self.reported = true;
            self.outcomes.iter_mut().for_each(|outcome| outcome.dispatched |= granted.marks_dispatch);
        }
        if after.state == State::Proposed || after.state.is_terminal() {
            self.approved = None;
        }
        if matches!(after.state, State::Rejected | State::Proposed) {
            // Nothing was dispatched, and nothing can be any more.
            self.outcomes.clear();
        }
        if after.state == State::Committed {
            self.outcomes.clear();
            self.reported = false;
        }
    }
}

fn any_policy() -> impl Strategy<Value = Policy> {
    prop_oneof![
        Just(careful()),
        Just(windowed()),
        Just(marking()),
        Just(Policy { marks_dispatch: true, ..windowed() }),
        Just(Policy { probes_required: 1, settle_delay: 0, ..careful() }),
        Just(policy(Class::ReadOnly)),
        Just(approving()),
        Just(Policy { max_attempts: 2, ..windowed() }),
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
    fn whoever_says_what_whenever(policy in any_policy(), story in prop::collection::vec(happening(), 1..60)) {
        let mut observer = Story::new(policy);
        for happening in story {
            observer.happens(happening)?;
        }
    }
}
