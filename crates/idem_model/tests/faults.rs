//! The model finds what it is there to find: each test plants one fault in the rules and wants a counterexample.

use std::collections::BTreeSet;

use idem_model::Play;
use idem_model::setting::{Size, settings};
use idem_rules::action::{Action, Flags, State, Time};
use idem_rules::error::Result;
use idem_rules::policy::{Class, Policies, Policy};
use idem_rules::transition::{Caller, Commit, Event, Standing, Step, transition};
use stateright::{Checker, HasDiscoveries, Model};

/// Wants a story in `setting` that breaks `promise` under `rules`.
fn finds(
    setting: &str,
    promise: &'static str,
    rules: fn(Option<&Action>, &Event, Policies, Time) -> Result<Step>,
) {
    let setting = settings(Size::Small).into_iter().find(|known| known.name == setting).expect("a setting");
    let until = HasDiscoveries::AnyOf(BTreeSet::from([promise]));
    let checker = Play { setting, rules }.checker().threads(2).finish_when(until).spawn_bfs().join();
    let story = checker.assert_any_discovery(promise);
    println!("model: found after {} unique states: {:?}", checker.unique_state_count(), story.into_actions());
}

/// What the rules say under a policy that is not the type's.
fn under(
    change: impl Fn(&mut Policy),
    action: Option<&Action>,
    event: &Event,
    policies: Policies,
    now: Time,
) -> Result<Step> {
    let (mut granted, mut current) = (policies.granted.clone(), policies.current.clone());
    change(&mut granted);
    change(&mut current);
    transition(action, event, Policies { granted: &granted, current: &current }, now)
}

#[test]
fn lease_end_grants() {
    finds("creation", "nothing starts again without evidence", |action, event, policies, now| {
        let over = action.is_some_and(|row| row.state == State::Started && !row.lease_alive(now));
        match event {
            Event::Reserve(_) if over => {
                let freely = |policy: &mut Policy| policy.class = Class::IdempotentMutation;
                under(freely, action, event, policies, now)
            }
            _ => transition(action, event, policies, now),
        }
    });
}

#[test]
fn lease_end_grants_and_the_effect_comes_twice() {
    // The same fault, unseen by the books: only what the provider has done is counted.
    finds("creation", "at most one effect", |action, event, policies, now| {
        let over = action.is_some_and(|row| row.state == State::Started && !row.lease_alive(now));
        match event {
            Event::Reserve(_) if over => {
                let mut ended = action.cloned();
                ended.iter_mut().for_each(|row| (row.state, row.due_at) = (State::Retryable, None));
                transition(ended.as_ref(), event, policies, now)
            }
            _ => transition(action, event, policies, now),
        }
    });
}

#[test]
fn sticky_rule_off() {
    finds("key window", "nothing starts again without evidence", |action, event, policies, now| {
        let alone =
            action.map(|row| Action { flags: Flags { open_before: false, ..row.flags }, ..row.clone() });
        match event {
            Event::Fail(_) | Event::Release(_) => transition(alone.as_ref(), event, policies, now),
            _ => transition(action, event, policies, now),
        }
    });
}

#[test]
fn dispatch_ignores_withdrawal() {
    finds("approval", "nothing is dispatched without approval", |action, event, policies, now| {
        let kept = action.map(|row| Action { flags: Flags { withdrawn: false, ..row.flags }, ..row.clone() });
        match event {
            Event::Dispatch { .. } => transition(kept.as_ref(), event, policies, now),
            _ => transition(action, event, policies, now),
        }
    });
}

#[test]
fn resolve_without_agreeing_probes() {
    finds("creation", "nothing starts again without evidence", |action, event, policies, now| match event {
        Event::Resolve(_) => under(|policy| policy.probes_required = 1, action, event, policies, now),
        _ => transition(action, event, policies, now),
    });
}

#[test]
fn resolve_before_the_effect_could_show() {
    finds("creation, one probe", "at most one effect", |action, event, policies, now| match event {
        Event::Resolve(_) => under(|policy| policy.settle_delay = 0, action, event, policies, now),
        _ => transition(action, event, policies, now),
    });
}

#[test]
fn late_commit_accepted_after_takeover() {
    finds("key window", "only a living owner ends its attempt", |action, event, policies, now| {
        match (action, event) {
            (Some(row), Event::Commit(commit)) if commit.caller.standing(row) == Standing::Earlier => {
                let owner = row.attempt_id.unwrap_or_default();
                let caller = Caller { attempt_id: owner, ..commit.caller };
                transition(action, &Event::Commit(Commit { caller, ..commit.clone() }), policies, now)
            }
            _ => transition(action, event, policies, now),
        }
    });
}

#[test]
fn late_commit_accepted_while_a_reconciler_is_at_it() {
    finds("creation", "only a living owner ends its attempt", |action, event, policies, now| match event {
        Event::Commit(_) => {
            let alone = action.map(|row| Action { reconcile_lease_expires_at: None, ..row.clone() });
            transition(alone.as_ref(), event, policies, now)
        }
        _ => transition(action, event, policies, now),
    });
}

#[test]
fn window_edge_off_by_one_lease() {
    finds("key window", "at most one effect", |action, event, policies, now| match event {
        Event::Reserve(_) => {
            let longer = |policy: &mut Policy| policy.provider_key_window += policy.lease;
            under(longer, action, event, policies, now)
        }
        _ => transition(action, event, policies, now),
    });
}

#[test]
fn fence_stands_still() {
    finds("key window", "fences rise", |action, event, policies, now| {
        let mut step = transition(action, event, policies, now)?;
        if let (Some(before), Some(next)) = (action, &mut step.next) {
            next.fence = before.fence;
        }
        Ok(step)
    });
}
