//! The rules of pg_idem, model-checked: every order of events in small worlds.
//!
//! A world has one action, callers that lose answers, workers that die or stall anywhere, a provider that commits
//! late, sweeps, reconcilers, an operator, an approver, and a type that is changed meanwhile. Whoever acts tells the
//! truth as far as he knows it; what he knows may be old. The function that judges is the one that the database
//! runs, [`idem_rules::transition::transition`]. Beside it the world keeps books of its own, by the contract's words
//! and not by the row's flags, and compares ([`promise`]).
//!
//! That somebody dies needs no event: whoever does nothing from some moment on is among the orders tried.

pub mod books;
pub mod happening;
pub mod play;
pub mod promise;
pub mod setting;
pub mod world;

use idem_rules::action::{Action, Time};
use idem_rules::error::Result;
use idem_rules::policy::Policies;
use idem_rules::transition::{Event, Step};
use stateright::{Model, Property};

use crate::happening::Happening;
use crate::setting::Setting;
use crate::world::World;

/// The function that judges: the one that runs, or one with a planted fault.
pub type Rules = fn(Option<&Action>, &Event, Policies, Time) -> Result<Step>;

/// A setting and the rules that hold in it.
#[derive(Clone)]
pub struct Play {
    /// Who is there, and how far it goes.
    pub setting: Setting,
    /// What judges.
    pub rules: Rules,
}

impl Model for Play {
    type State = World;
    type Action = Happening;

    fn init_states(&self) -> Vec<World> {
        vec![World::default()]
    }

    fn actions(&self, world: &World, happenings: &mut Vec<Happening>) {
        happening::possible(&self.setting, world, happenings);
    }

    fn next_state(&self, world: &World, happening: Happening) -> Option<World> {
        play::happens(self, world, happening)
    }

    fn properties(&self) -> Vec<Property<Play>> {
        promise::properties(&self.setting)
    }
}
