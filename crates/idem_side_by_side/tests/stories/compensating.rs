//! Compensations: an action that is tied to the one it undoes.

use idem_rules::compensation::check;
use idem_rules::error::Code;
use idem_rules::transition::{Ask, Event};

use crate::compare::Besides;
use crate::stage::{clock, fresh};
use crate::story::{Checked, Happening, PARENTS, Story};

impl Story<'_> {
    /// Asks for the compensation of an action.
    pub fn compensates(&mut self, happening: Happening) -> Checked {
        let Happening { session, choice, .. } = happening;
        let (parent, child) = (happening.key % PARENTS, happening.key % PARENTS + PARENTS);
        let token = fresh(choice);
        let ask = Ask {
            fingerprint: self.fingerprint(child, false),
            scheme: 1,
            attempt_id: token,
            attempt_id_used: false,
            lease: None,
            ttl: None,
            can_reconcile: choice % 16 == 2,
            carried: false,
            held: self.is_held(child),
        };
        let call = format!(
            "SELECT decision || ' ' || granted || ' ' || coalesce(attempt_id::text, '') FROM idem_compensate('{}', '{}',
                '{{\"n\": 1}}', action_type => '{}', attempt_id => '{token}', can_reconcile => {}, store_request => true)",
            self.id(parent),
            self.key(child),
            self.action_type(child),
            ask.can_reconcile,
        );
        let tied = self.known[child].tied;
        let open = self.known[child].row.as_ref().is_some_and(|row| !row.state.is_terminal());
        let now = clock(&mut self.stage.observer);
        let refused = match &self.known[parent].row {
            None => Some(Code::NoSuchAction),
            // One that is tied already is carried on; what it undoes must still have happened.
            Some(row) if !tied || open => check(row, false, false, now).err().map(|error| error.code),
            Some(_) => None,
        };
        // It is held from now on.
        self.notes(session, parent);
        let besides = Besides { refused: refused.map(Code::sqlstate), ..Besides::default() };
        let call_of_child = Happening { key: child, ..happening };
        if self.compares_besides(call_of_child, &call, |_| Event::Reserve(ask), besides)? {
            self.known[child].tied = true;
        }
        Ok(())
    }
}
