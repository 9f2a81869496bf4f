//! Actions that are handed out to whoever comes by: idem_reconcile_next and idem_due.

use std::collections::HashMap;

use idem_rules::action::{Action, SECOND, State, Time};
use idem_rules::policy::{Policies, Policy};
use idem_rules::transition::{Answer, Ask, Event, Step};
use idem_side_by_side::judged::judge;
use idem_side_by_side::row;
use proptest::prelude::*;
use uuid::Uuid;

use crate::stage::clock;
use crate::story::{Checked, Happening, Story};

/// One action's part in a call.
struct Part<'a> {
    before: &'a Action,
    stored: &'a Action,
    policies: (Policy, Policy),
    moments: (Time, Time),
    event: Event<'static>,
}

impl Part<'_> {
    /// The steps that lead from before to what is stored. A call may also take notice of a lease that is over, before it
    /// looks at the action or without.
    fn steps(&self) -> Option<Vec<Step>> {
        let visit = Event::Visit { open_children: false };
        let ways = [vec![], vec![&visit], vec![&self.event], vec![&visit, &self.event]];
        ways.into_iter().find_map(|way| self.follow(&way))
    }

    fn follow(&self, way: &[&Event<'static>]) -> Option<Vec<Step>> {
        let policies = Policies { granted: &self.policies.0, current: &self.policies.1 };
        let Some((last, earlier)) = way.split_last() else {
            return (self.before == self.stored).then(Vec::new);
        };
        let (mut steps, mut action) = (Vec::new(), self.before.clone());
        for event in earlier {
            let step =
                judge(Some(&action), |_| (*event).clone(), policies, self.moments).step()?.clone().ok()?;
            action = step.next.clone()?;
            steps.push(step);
        }
        let judged = judge(Some(&action), |_| (*last).clone(), policies, self.moments);
        steps.push(judged.step()?.clone().ok().filter(|step| step.next.is_some())?);
        judged.difference(Some(&action), Some(self.stored)).is_none().then_some(steps)
    }

    /// True when the rules grant it at every moment that the call can have looked.
    fn is_certain(&self) -> bool {
        let policies = Policies { granted: &self.policies.0, current: &self.policies.1 };
        let judged = judge(Some(self.before), |_| self.event.clone(), policies, self.moments);
        judged.step().is_some_and(|step| step.as_ref().is_ok_and(grants))
    }
}

fn grants(step: &Step) -> bool {
    matches!(step.answer, Answer::Decided(decision, _) if decision.owns())
}

impl Story<'_> {
    /// A reconciler or a worker takes whatever is there.
    pub fn pulls(&mut self, happening: Happening) -> Checked {
        let Happening { session, choice, .. } = happening;
        // It would pass by what another transaction holds.
        if self.open.as_ref().is_some_and(|open| open.session != session) {
            return Ok(());
        }
        self.stage.steps.set(self.stage.steps.get() + 1);
        let due = choice % 2 == 0;
        let mut inside = false;
        for key in 0..self.known.len() {
            inside = self.notes(session, key);
        }
        let with_request = self.with_request(session);
        let function = if due { "idem_due" } else { "idem_reconcile_next" };
        let call = format!(
            "SELECT action_id, attempt_id, fence FROM {function}(100, lease_seconds => 20, tenant => '{}')",
            self.tenant()
        );
        let client = &mut self.stage.sessions[session];
        let earliest = clock(client);
        let rows = client.query(&call, &[]).expect("takes what is there");
        let latest = clock(client);
        let taken: HashMap<Uuid, (Uuid, i64)> =
            rows.iter().map(|row| (row.get(0), (row.get(1), row.get(2)))).collect();
        *self.stage.tally.entry(format!("{function} {}", taken.len())).or_default() += 1;
        for key in 0..self.known.len() {
            let Some(before) = self.known[key].row.clone() else { continue };
            let id = self.id(key);
            let stored =
                row::action(&mut self.stage.sessions[session], id).expect("a row").expect("still there");
            let policies = self.policies(key);
            let given = taken.get(&id).copied();
            let ask = Ask {
                fingerprint: before.fingerprint,
                scheme: before.scheme,
                attempt_id: given.map_or(Uuid::nil(), |(token, _)| token),
                attempt_id_used: false,
                lease: Some((20 * SECOND).min(policies.1.max_lease)),
                ttl: None,
                can_reconcile: false,
                carried: before.flags.carried,
                held: self.is_held(key),
            };
            let event = if due { Event::Reserve(ask) } else { Event::Reconcile(ask) };
            let part =
                Part { before: &before, stored: &stored, policies, moments: (earliest, latest), event };
            let context = format!("{call}\nkey {key}: {given:?}, before {before:?}\nstored {stored:?}");
            let Some(steps) = part.steps() else {
                // On a boundary either answer is right; far from one it is not.
                let moved = [Event::Visit { open_children: false }, part.event.clone()].iter().all(|event| {
                    let policies = Policies { granted: &part.policies.0, current: &part.policies.1 };
                    judge(Some(&before), |_| event.clone(), policies, part.moments).step().is_some()
                });
                prop_assert!(!moved, "no way leads there: {}", context);
                self.stage.boundaries.set(self.stage.boundaries.get() + 1);
                self.known[key].row = Some(stored);
                self.after_a_boundary(session, key);
                continue;
            };
            prop_assert_eq!(steps.last().is_some_and(grants), given.is_some(), "{}", context);
            let here = match before.state {
                State::Unknown => true,
                // Without its request nobody but its client can carry it out.
                State::Retryable | State::Approved => due,
                _ => false,
            };
            let reachable = here && (!due || with_request.contains(&id)) && !before.flags.carried;
            prop_assert!(given.is_some() || !reachable || !part.is_certain(), "not handed out: {}", context);
            for step in &steps {
                self.remember(key, step);
            }
            if let Some((token, fence)) = given {
                prop_assert!(fence > self.known[key].fence, "the fence does not rise");
                let known = &mut self.known[key];
                (known.fence, known.granted_here) = (fence, Some(token).filter(|_| inside));
                known.tokens.push(token);
            }
            self.known[key].row = Some(stored);
        }
        Ok(())
    }

    /// The story's actions whose request is stored.
    fn with_request(&mut self, session: usize) -> Vec<Uuid> {
        let call = "SELECT action_id FROM idem_action WHERE tenant = $1 AND request IS NOT NULL";
        let tenant = self.tenant();
        let rows = self.stage.sessions[session].query(call, &[&tenant]).expect("a look");
        rows.iter().map(|row| row.get(0)).collect()
    }
}
