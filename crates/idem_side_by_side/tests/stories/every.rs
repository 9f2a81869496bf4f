//! What concerns several actions: the sweep, holds, a restore.

use idem_rules::policy::Policies;
use idem_rules::transition::Event;
use idem_side_by_side::judged::judge;
use idem_side_by_side::row;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use crate::stage::clock;
use crate::story::{Checked, Story};

impl Story<'_> {
    /// The sweep does to every action what a visit makes of it, once or until nothing is due.
    pub fn sweeps(&mut self, session: usize) -> Checked {
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

    /// An operator holds a type, or lets it go. Every call that begins afterwards minds that.
    pub fn holds(&mut self, key: usize, choice: u32) {
        let name = self.action_type(key);
        let call = match choice % 3 {
            0 => {
                self.stage.held.insert(name);
                format!("SELECT idem_hold('action_type', '{name}', 'because')")
            }
            _ => {
                self.stage.held.remove(name);
                format!("SELECT idem_unhold('action_type', '{name}')")
            }
        };
        self.stage.observer.batch_execute(&call).expect("holds");
    }

    /// The database is said to be older than the world.
    pub fn restores(&mut self, session: usize) -> Checked {
        if self.open.is_some() {
            return Ok(());
        }
        self.stage.steps.set(self.stage.steps.get() + 1);
        let earliest = clock(&mut self.stage.observer);
        let call = "SELECT turned_unknown FROM idem_after_restore('because')";
        self.stage.sessions[session].query_one(call, &[]).expect("restores");
        let latest = clock(&mut self.stage.observer);
        for key in 0..self.known.len() {
            let Some(before) = self.known[key].row.clone() else { continue };
            let (granted, current) = self.policies(key);
            let policies = Policies { granted: &granted, current: &current };
            let judged = judge(Some(&before), |_| Event::Restore, policies, (earliest, latest));
            let id = self.id(key);
            let stored = row::action(&mut self.stage.observer, id).expect("a row");
            let difference = judged.difference(Some(&before), stored.as_ref());
            prop_assert!(difference.is_none(), "after a restore: {}", difference.unwrap_or_default());
            if let Some(Ok(step)) = judged.step() {
                self.remember(key, step);
            }
            self.known[key].row = stored;
        }
        Ok(())
    }
}
