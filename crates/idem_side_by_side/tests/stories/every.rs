//! What concerns every action: the sweep.

use idem_rules::policy::Policies;
use idem_rules::transition::Event;
use idem_side_by_side::judged::judge;
use idem_side_by_side::row;
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
}
