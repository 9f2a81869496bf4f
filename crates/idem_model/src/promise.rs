//! The promises: what no order of events may break.

use idem_rules::action::State;
use idem_rules::policy::Policies;
use idem_rules::transition::{
    Answer, Caller, Decide, Decision, Event, Finding, Resolve, Verdict, transition,
};
use stateright::Property;
use uuid::Uuid;

use crate::Play;
use crate::play::ask;
use crate::setting::{Setting, TICK};
use crate::world::World;

/// A promise that the books can see broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Promise {
    /// At most one live lease.
    OneLease,
    /// A committed action never changes.
    Committed,
    /// Nothing that may not repeat starts again, and no outcome is closed, unless the rules of evidence were met.
    Evidence,
    /// At most one effect.
    OneEffect,
    /// What happened is not called failed, rejected or retryable.
    Denied,
    /// Nothing is granted or dispatched without a valid approval.
    Approval,
    /// That it happened is not overruled silently.
    Overruled,
    /// Fences rise.
    Fence,
    /// Nobody ends what a living owner works for.
    Owner,
    /// What was called stopped has no effect.
    Stopped,
}

/// What is checked in every state, by name. A state that breaks one is a counterexample.
pub fn properties(setting: &Setting) -> Vec<Property<Play>> {
    macro_rules! kept {
        ($name:literal, $promise:ident) => {
            Property::always($name, |_, world: &World| world.books.kept(Promise::$promise))
        };
    }
    let mut properties = vec![
        kept!("at most one live lease", OneLease),
        kept!("a committed action never changes", Committed),
        kept!("nothing starts again without evidence", Evidence),
        kept!("at most one effect", OneEffect),
        kept!("no effect is denied", Denied),
        kept!("nothing is dispatched without approval", Approval),
        kept!("positive evidence is not overruled silently", Overruled),
        kept!("fences rise", Fence),
        kept!("only a living owner ends its attempt", Owner),
        kept!("what was stopped has no effect", Stopped),
        Property::always("overdue unknowns go to a person", overdue_is_seen),
        Property::always("there is a way out of unknown", has_a_way_out),
    ];
    properties.extend(setting.reaches.iter().map(|name| reached(name)));
    properties
}

/// That a story can come to `name`, so that the promises are not kept by an empty stage.
fn reached(name: &'static str) -> Property<Play> {
    let seen: fn(&Play, &World) -> bool = match name {
        "committed" => |_, world| state(world) == Some(State::Committed),
        "committed late" => |_, world| {
            state(world) == Some(State::Committed)
                && world.action.as_ref().is_some_and(|row| row.settle_from.is_some())
        },
        "second attempt" => |_, world| world.action.as_ref().is_some_and(|row| row.attempt == 2),
        "disproved" => |_, world| world.books.disproved,
        "sticky" => |_, world| world.books.sticky,
        "rejected" => |_, world| state(world) == Some(State::Rejected),
        "escalated" => |_, world| world.action.as_ref().is_some_and(|row| row.flags.escalated),
        "discrepancy" => |_, world| world.action.as_ref().is_some_and(|row| row.flags.discrepancy),
        _ => panic!("{name} is nothing that a story can come to"),
    };
    Property::sometimes(name, seen)
}

fn state(world: &World) -> Option<State> {
    world.action.as_ref().map(|row| row.state)
}

fn policies<'a>(play: &'a Play, world: &World) -> Policies<'a> {
    let current = &play.setting.policies[world.version];
    let granted = world.action.as_ref().map_or(current, |row| play.setting.policy(row.policy_version));
    Policies { granted, current }
}

/// A token that nobody in the story has.
fn stranger(n: u128) -> Uuid {
    Uuid::from_u128(1000 + n)
}

/// An unknown outcome past its deadline is told `review` to whoever asks, with nobody running.
fn overdue_is_seen(play: &Play, world: &World) -> bool {
    let overdue = state(world) == Some(State::Unknown)
        && world.books.deadline().is_some_and(|deadline| deadline <= world.now);
    if !overdue {
        return true;
    }
    let asked = Event::Reserve(ask(stranger(0), true));
    let step = (play.rules)(world.action.as_ref(), &asked, policies(play, world), world.now);
    step.is_ok_and(|step| step.answer == Answer::Decided(Decision::Review, None))
}

/// From unknown there is a way out: by probes that tell the truth until the deadline, and by a person at any time.
fn has_a_way_out(play: &Play, world: &World) -> bool {
    state(world) != Some(State::Unknown) || (by_a_person(play, world) && by_probes(play, world))
}

fn by_a_person(play: &Play, world: &World) -> bool {
    [Verdict::Applied, Verdict::NotApplied, Verdict::Retry].into_iter().all(|verdict| {
        let event = Event::Decide(Decide { verdict, resource_id: None });
        let step = transition(world.action.as_ref(), &event, policies(play, world), world.now);
        step.is_ok_and(|step| step.next.is_some_and(|row| row.state != State::Unknown))
    })
}

/// One reconciler after another comes as soon as it may, until the outcome is known or put before a person.
fn by_probes(play: &Play, world: &World) -> bool {
    let Some(mut row) = world.action.clone() else { return true };
    let mut now = world.now;
    for n in 0..10 {
        now = [Some(now), row.due_at, row.reconcile_lease_expires_at]
            .into_iter()
            .flatten()
            .max()
            .unwrap_or(now);
        if row.needs_review(now) {
            return true;
        }
        let moved = |row: &mut _, event: Event| {
            let step = transition(Some(row), &event, policies(play, world), now).ok()?;
            step.next.into_iter().for_each(|next| *row = next);
            Some(step.answer)
        };
        let finding = if world.effects > 0 { Finding::Applied } else { Finding::NotApplied };
        let caller = Caller { attempt_id: stranger(n), earlier: false };
        let resolve = Resolve { caller, finding, resource_id: None, next_probe: Some(TICK), random: 0.0 };
        match moved(&mut row, Event::Reserve(ask(stranger(n), true))) {
            Some(Answer::Decided(Decision::Review, _)) => return true,
            Some(Answer::Decided(Decision::Reconcile, _))
                if moved(&mut row, Event::Resolve(resolve)).is_some() => {}
            Some(_) if row.state != State::Unknown => {}
            _ => return false,
        }
        if row.state != State::Unknown {
            return true;
        }
    }
    false
}
