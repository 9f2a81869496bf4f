//! What there is: the row, those who act, and the provider.

use idem_rules::action::{Action, Time};
use uuid::Uuid;

use crate::books::Books;
use crate::setting::TICK;

/// Everything at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    /// The server's clock.
    pub now: Time,
    /// The ledger's row.
    pub action: Option<Action>,
    /// Which of the type's versions is in force, from 0.
    pub version: usize,
    /// Those who were told execute or resume, in the order in which they were told.
    pub workers: Vec<Worker>,
    /// Those who were told reconcile.
    pub reconcilers: Vec<Reconciler>,
    /// Effects at the provider.
    pub effects: u8,
    /// The provider's memory: a key's generation, and when it was seen first.
    pub remembered: Vec<(i32, Time)>,
    /// What the contract's words make of all that.
    pub books: Books,
}

impl Default for World {
    fn default() -> World {
        World {
            now: TICK,
            action: None,
            version: 0,
            workers: Vec::new(),
            reconcilers: Vec::new(),
            effects: 0,
            remembered: Vec::new(),
            books: Books::default(),
        }
    }
}

impl World {
    /// Forgets what can have no consequence any more, so that worlds that go on alike are counted as one.
    pub fn forget(&mut self) {
        let last = self.action.as_ref().and_then(|row| row.reconcile_id);
        for (n, reconciler) in self.reconcilers.iter_mut().enumerate() {
            // Whoever was followed by another is refused whatever it says.
            if last != Some(reconciler_token(n)) {
                *reconciler = Reconciler { seen: Some((0, false)), reported: true };
            }
        }
    }
}

/// Where a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Request {
    /// Not sent.
    Unsent,
    /// Under way, or taken by a provider that commits late; it takes effect by this time or never.
    Underway(Time),
    /// The provider answered: true for an effect. Whether the answer arrived is the worker's affair.
    Answered(bool),
    /// No effect of its own and no answer will come of it.
    Lost,
}

/// A process that was told execute or resume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Worker {
    /// The attempt it works for; a caller that lost an answer and a new one may share it.
    pub attempt: u8,
    /// The lease as far as it knows.
    pub lease_end: Time,
    /// Of the provider key it was shown.
    pub generation: i32,
    /// It passed the last gate.
    pub dispatched: bool,
    /// Its request to the provider.
    pub request: Request,
    /// It said that it has not sent, and will not.
    pub silent: bool,
}

/// A process that was told reconcile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reconciler {
    /// What it saw when it looked, and when that was.
    pub seen: Option<(Time, bool)>,
    /// It told what it saw.
    pub reported: bool,
}

/// Token of the attempt numbered `n` in the order of grants.
pub fn attempt_token(n: u8) -> Uuid {
    Uuid::from_u128(1 + u128::from(n))
}

/// Token of the reconciling attempt numbered `n`.
pub fn reconciler_token(n: usize) -> Uuid {
    Uuid::from_u128(100 + n as u128)
}
