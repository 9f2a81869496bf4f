//! Actions in every state, made by real moves, so that no test starts from a row that cannot exist.

// Each test program uses its own part of this.
#![allow(dead_code)]

pub use idem_rules::action::*;
pub use idem_rules::error::Code;
pub use idem_rules::policy::{Class, Policies, Policy};
pub use idem_rules::transition::{
    Answer, Approve, Ask, Caller, Commit, Decide, Decision, Event, Evidence, Fail, Finding, Person, Proof,
    Resolve, Step, Verdict, transition,
};
pub use uuid::Uuid;

/// The worker comes by an action that has no children.
pub const VISIT: Event = Event::Visit { open_children: false };
/// When every story begins.
pub const T0: Time = 1_700_000_000 * SECOND;
/// The lease of every policy here.
pub const LEASE: Span = 60 * SECOND;
/// What is asked for.
pub const FINGERPRINT: [u8; 32] = [7; 32];
/// What somebody else asks for under the same key.
pub const OTHER: [u8; 32] = [8; 32];

/// The n-th token. Attempts take small numbers, reconcilers those from 100, strangers those from 900.
pub fn token(n: u128) -> Uuid {
    Uuid::from_u128(n)
}

/// A policy of `class` with nothing else special.
pub fn policy(class: Class) -> Policy {
    Policy { version: 1, class, ..Policy::UNREGISTERED }
}

/// A creation that never repeats with its outcome open.
pub fn careful() -> Policy {
    policy(Class::DeduplicatedCreation)
}

/// A creation whose provider knows a repeated key for five minutes.
pub fn windowed() -> Policy {
    Policy { provider_key_window: 300 * SECOND, ..careful() }
}

/// A creation that marks its dispatch.
pub fn marking() -> Policy {
    Policy { marks_dispatch: true, ..careful() }
}

/// An effect that needs approval and marks its dispatch.
pub fn approving() -> Policy {
    Policy { requires_approval: true, marks_dispatch: true, ..policy(Class::Irreversible) }
}

/// Somebody asks with the n-th token.
pub fn ask(n: u128) -> Ask {
    Ask {
        fingerprint: FINGERPRINT,
        scheme: 1,
        attempt_id: token(n),
        attempt_id_used: false,
        lease: None,
        ttl: None,
        can_reconcile: false,
        carried: false,
        held: false,
    }
}

/// Somebody asks who can find out what happened.
pub fn prober(n: u128) -> Ask {
    Ask { can_reconcile: true, ..ask(n) }
}

/// The owner of the n-th token; `transition` sees by itself whether it is the last one.
pub fn caller(n: u128) -> Caller {
    Caller { attempt_id: token(n), earlier: false }
}

/// The owner of the n-th token, which the history knows.
pub fn earlier(n: u128) -> Caller {
    Caller { attempt_id: token(n), earlier: true }
}

pub fn commit(caller: Caller) -> Event<'static> {
    Event::Commit(Commit { caller, resource_id: None, record_when_lost: false })
}

pub fn commit_as(caller: Caller, resource: &str) -> Event<'_> {
    Event::Commit(Commit { caller, resource_id: Some(resource), record_when_lost: false })
}

pub fn record(caller: Caller) -> Event<'static> {
    Event::Commit(Commit { caller, resource_id: None, record_when_lost: true })
}

/// A definite failure after which another attempt makes sense in ten seconds.
pub fn refusal(caller: Caller) -> Fail {
    Fail {
        caller,
        proof: Proof::Refused,
        retryable: true,
        retry_after: Some(10 * SECOND),
        new_provider_key: false,
        random: 0.5,
    }
}

pub fn dispatch(caller: Caller) -> Event<'static> {
    Event::Dispatch { caller, held: false }
}

pub fn evidence(caller: Caller, finding: Finding) -> Event<'static> {
    Event::Evidence(Evidence { caller, finding, resource_id: None })
}

pub fn found(n: u128, finding: Finding) -> Event<'static> {
    Event::Resolve(Resolve { caller: caller(n), finding, resource_id: None, next_probe: None, random: 0.5 })
}

pub fn decide(verdict: Verdict) -> Event<'static> {
    Event::Decide(Decide { verdict, resource_id: None })
}

pub fn approval() -> Approve<'static> {
    Approve {
        fingerprint: &FINGERPRINT,
        policy_version: None,
        valid: None,
        proposer: Some(person("app", "app_login")),
        approver: person("boss", "boss_login"),
    }
}

/// Somebody by the role he calls as and the one he logged in as.
pub fn person(role: &'static str, session_role: &'static str) -> Person<'static> {
    Person { role, session_role, name: None }
}

/// The step that `event` makes. Panics when it is refused.
pub fn step(action: &Action, event: &Event, policy: &Policy, now: Time) -> Step {
    transition(Some(action), event, Policies::same(policy), now).expect("the move is legal")
}

/// The row that `event` leaves. Panics when nothing changes.
pub fn moved(action: &Action, event: &Event, policy: &Policy, now: Time) -> Action {
    step(action, event, policy, now).next.expect("the move changes the row")
}

/// The code under which `event` is refused. Panics when it is not.
pub fn refused(action: &Action, event: &Event, policy: &Policy, now: Time) -> Code {
    transition(Some(action), event, Policies::same(policy), now).expect_err("the move is illegal").code
}

/// What a caller is told, and whether anything was stored.
pub fn told(action: &Action, ask: Ask, policy: &Policy, now: Time) -> (Decision, bool) {
    let step = step(action, &Event::Reserve(ask), policy, now);
    (decision(&step), step.next.is_some())
}

/// The decision in an answer. Panics when it is another kind of answer.
pub fn decision(step: &Step) -> Decision {
    match step.answer {
        Answer::Decided(decision, _) => decision,
        other => panic!("not a decision: {other:?}"),
    }
}

/// How long the caller is told to wait.
pub fn retry_after(step: &Step) -> Option<Span> {
    match step.answer {
        Answer::Decided(_, after) => after,
        _ => None,
    }
}

/// Nothing stored, somebody asks.
pub fn first(ask: Ask, policy: &Policy, now: Time) -> Step {
    transition(None, &Event::Reserve(ask), Policies::same(policy), now).expect("a first call is legal")
}

/// Attempt 1 (token 1) started at T0; approved before where the type asks for it.
pub fn started(policy: &Policy) -> Action {
    if policy.requires_approval {
        return moved(&approved(policy), &Event::Reserve(ask(1)), policy, T0);
    }
    first(ask(1), policy, T0).next.expect("a first attempt is stored")
}

/// Attempt 1 ran out of its lease at T0 + LEASE; dispatched before where the type marks.
pub fn unknown(policy: &Policy) -> Action {
    let mut action = started(policy);
    if policy.marks_dispatch {
        action = moved(&action, &dispatch(caller(1)), policy, T0 + SECOND);
    }
    moved(&action, &VISIT, policy, T0 + LEASE)
}

/// As [`unknown`], and attempt 2 (token 2) was granted at `now`.
pub fn repeated(policy: &Policy, now: Time) -> Action {
    moved(&unknown(policy), &Event::Reserve(ask(2)), policy, now)
}

/// As [`unknown`], and a reconciling attempt (token 100) was granted at `now`.
pub fn probed(policy: &Policy, now: Time) -> Action {
    moved(&unknown(policy), &Event::Reserve(prober(100)), policy, now)
}

/// Attempt 1 was refused at T0 + 1 s; another may come at T0 + 11 s.
pub fn retryable(policy: &Policy) -> Action {
    let mut action = started(policy);
    if policy.marks_dispatch {
        action = moved(&action, &dispatch(caller(1)), policy, T0 + SECOND);
    }
    moved(&action, &Event::Fail(refusal(caller(1))), policy, T0 + SECOND)
}

pub fn committed(policy: &Policy) -> Action {
    moved(&started(policy), &commit_as(caller(1), "re_1"), policy, T0 + SECOND)
}

pub fn failed(policy: &Policy) -> Action {
    let fail = Fail { retryable: false, ..refusal(caller(1)) };
    moved(&started(policy), &Event::Fail(fail), policy, T0 + SECOND)
}

pub fn proposed(policy: &Policy) -> Action {
    let policy = Policy { requires_approval: true, ..policy.clone() };
    first(ask(1), &policy, T0).next.expect("a proposal is stored")
}

pub fn approved(policy: &Policy) -> Action {
    moved(&proposed(policy), &Event::Approve(approval()), policy, T0)
}

pub fn rejected(policy: &Policy) -> Action {
    moved(&proposed(policy), &Event::Reject, policy, T0 + SECOND)
}

pub fn expired(policy: &Policy) -> Action {
    moved(&committed(policy), &VISIT, policy, T0 + SECOND + policy.ttl)
}

/// An action in `state`, with nothing else special.
pub fn in_state(state: State, policy: &Policy) -> Action {
    let action = match state {
        State::Proposed => proposed(policy),
        State::Approved => approved(policy),
        State::Started => started(policy),
        State::Unknown => unknown(policy),
        State::Retryable => retryable(policy),
        State::Committed => committed(policy),
        State::Failed => failed(policy),
        State::Rejected => rejected(policy),
        State::Expired => expired(policy),
    };
    assert_eq!(action.state, state);
    action
}

/// `action` with `change` made to its flags, for what has no event of its own (a restore).
pub fn flagged(action: Action, change: impl FnOnce(&mut Flags)) -> Action {
    let mut flags = action.flags;
    change(&mut flags);
    Action { flags, ..action }
}
