//! Every event in every state: what is not a move of the contract is refused, and refused without a trace.

use crate::common::*;

/// One of each event, from `who`, with whatever would move most.
fn events(who: Caller) -> Vec<(&'static str, Event<'static>)> {
    let by = who.attempt_id;
    vec![
        ("reserve", Event::Reserve(Ask { attempt_id: by, can_reconcile: true, ..ask(0) })),
        ("conflict", Event::Reserve(Ask { attempt_id: by, fingerprint: OTHER, ..ask(0) })),
        ("commit", commit(who)),
        ("commit other", commit_as(who, "re_2")),
        ("record", record(who)),
        ("mark_unknown", Event::MarkUnknown(who)),
        ("fail", Event::Fail(refusal(who))),
        ("not_sent", Event::Fail(Fail { proof: Proof::NotSent, ..refusal(who) })),
        ("renew", Event::Renew(who, None)),
        ("release", Event::Release(who)),
        ("dispatch", dispatch(who)),
        ("evidence", evidence(who, Finding::Applied)),
        ("negative", evidence(who, Finding::NotApplied)),
        (
            "resolve",
            Event::Resolve(Resolve {
                caller: who,
                finding: Finding::Applied,
                resource_id: Some("re_2"),
                next_probe: None,
                random: 0.5,
            }),
        ),
        (
            "disprove",
            Event::Resolve(Resolve {
                caller: who,
                finding: Finding::NotApplied,
                resource_id: None,
                next_probe: None,
                random: 0.5,
            }),
        ),
        ("reconcile", Event::Reconcile(ask(0))),
        ("visit", VISIT),
        ("restore", Event::Restore),
        ("escalate", Event::Escalate),
        ("decide applied", decide(Verdict::Applied)),
        ("decide not_applied", decide(Verdict::NotApplied)),
        ("decide retry", decide(Verdict::Retry)),
        ("reopen", Event::Reopen),
        ("approve", Event::Approve(approval())),
        ("reject", Event::Reject),
        ("withdraw", Event::Withdraw),
        ("withdraw", Event::Cancel),
        ("propose", Event::Propose(Ask { attempt_id: by, can_reconcile: true, ..ask(0) })),
    ]
}

/// The other states that `event` may lead to from `state`, whoever causes it.
fn legal(state: State, event: &str) -> &'static [State] {
    use State::*;
    match (state, event) {
        (_, "conflict") => &[],
        (Proposed | Approved | Started | Unknown | Retryable, "restore") => &[Unknown],
        (Proposed, "approve") => &[Approved],
        (Proposed | Approved, "reject" | "visit") => &[Rejected],
        (Proposed, "reserve" | "propose") => &[Rejected],
        (Approved, "propose") => &[Rejected, Proposed],
        (Approved, "reserve") => &[Started, Rejected, Proposed, Failed],
        (Started, "reserve") => &[Started, Unknown, Rejected],
        (Started, "reconcile") => &[Unknown],
        (Started, "commit" | "commit other" | "record") => &[Committed, Started],
        (Started, "mark_unknown") => &[Unknown],
        (Started, "visit") => &[Unknown, Rejected],
        (Started, "fail" | "not_sent" | "release") => &[Unknown, Retryable, Failed, Rejected],
        (Unknown, "reserve") => &[Started, Unknown, Rejected],
        (Unknown, "commit" | "commit other" | "record" | "resolve") => &[Committed, Unknown],
        (Unknown, "fail" | "not_sent" | "disprove") => &[Retryable, Failed, Unknown, Rejected],
        (Unknown, "mark_unknown" | "escalate" | "visit") => &[Unknown],
        (Unknown | Retryable, "approve") => &[Unknown, Retryable],
        (Retryable, "reserve") => &[Started, Failed, Rejected],
        (Committed | Failed | Rejected, "visit") => &[Expired],
        (Failed | Rejected, "reopen") => &[Proposed, Retryable],
        (Expired, "decide applied" | "decide not_applied" | "decide retry") => &[],
        (_, "decide applied") => &[Committed],
        (_, "decide not_applied") => &[Failed],
        (_, "decide retry") => &[Retryable, Proposed],
        (Proposed | Approved | Retryable, "withdraw") => &[Rejected, Failed],
        (Unknown, "withdraw") => &[Unknown, Rejected],
        _ => &[],
    }
}

fn policies() -> Vec<Policy> {
    vec![careful(), windowed(), marking(), approving(), policy(Class::ReadOnly), policy(Class::Reversible)]
}

/// Every state in the shapes that rules tell apart.
fn shapes(policy: &Policy) -> Vec<Action> {
    let mut shapes = Vec::new();
    for state in STATES {
        let plain = in_state(state, policy);
        shapes.push(flagged(plain.clone(), |flags| flags.withdrawn = true));
        shapes.push(flagged(plain.clone(), |flags| flags.discrepancy = true));
        shapes.push(flagged(plain.clone(), |flags| flags.open_before = true));
        shapes.push(flagged(plain.clone(), |flags| flags.positive_evidence = true));
        shapes.push(Action { forgiven: -9, ..plain.clone() });
        let watched = Action { reconcile_id: Some(token(100)), ..plain.clone() };
        let lease = (state == State::Unknown).then_some(T0 + 2 * LEASE);
        shapes.push(Action { reconcile_lease_expires_at: lease, ..watched });
        shapes.push(plain);
    }
    shapes
}

#[test]
fn nothing_else_moves() {
    let callers = [caller(1), earlier(9), caller(100), caller(900)];
    let times = [T0 + SECOND, T0 + LEASE, T0 + 4 * LEASE, T0 + 2 * DAY, T0 + 40 * DAY, T0 + 200 * DAY];
    let mut seen = 0;
    for policy in policies() {
        for action in shapes(&policy) {
            for (who, now) in callers.into_iter().flat_map(|who| times.map(|now| (who, now))) {
                for (name, event) in events(who) {
                    seen += 1;
                    let Ok(step) = transition(Some(&action), &event, Policies::same(&policy), now) else {
                        continue;
                    };
                    let Some(next) = step.next else { continue };
                    let legal = legal(action.state, name);
                    if next.state != action.state {
                        assert!(
                            legal.contains(&next.state),
                            "{name}: {:?} -> {:?}",
                            action.state,
                            next.state
                        );
                    } else if action.state.is_terminal() && !legal.contains(&next.state) {
                        // What is over takes notes, and nothing else.
                        let notes = Flags {
                            discrepancy: next.flags.discrepancy,
                            positive_evidence: next.flags.positive_evidence,
                            ever_dispatched: next.flags.ever_dispatched,
                            open_dispatched: next.flags.open_dispatched,
                            ..action.flags
                        };
                        assert_eq!(next, Action { flags: notes, ..action.clone() }, "{name}");
                    }
                    same_action(&action, &next, name);
                }
            }
        }
    }
    assert!(seen > 100_000, "{seen}");
}

/// What no event at all may change.
fn same_action(before: &Action, after: &Action, name: &str) {
    assert_eq!(after.fingerprint, before.fingerprint, "{name}");
    assert_eq!((after.scheme, after.created_at), (before.scheme, before.created_at), "{name}");
    assert_eq!(after.visit_at, before.visit_at, "{name}: written at INSERT only");
    assert!(after.fence >= before.fence, "{name}");
    assert!((0..=1).contains(&(after.attempt - before.attempt)), "{name}");
    let reconciles = after.reconcile_id != before.reconcile_id && after.reconcile_id.is_some();
    let granted = reconciles || after.attempt > before.attempt;
    assert_eq!(
        after.fence > before.fence,
        granted,
        "{name}: an acquisition raises the fence, nothing else does"
    );
    assert_eq!(
        after.attempt > before.attempt,
        after.state == State::Started && before.fence < after.fence,
        "{name}"
    );
    if after.state.is_terminal() {
        assert!(after.expires_at.is_some() && after.ended_at.is_some(), "{name}");
    } else {
        assert_eq!((after.expires_at, after.ended_at), (None, None), "{name}");
    }
    // A committed action keeps its last lease, which says nothing any more.
    let leased = after.lease_expires_at.is_some() && after.state != State::Committed;
    assert_eq!(leased, after.state == State::Started, "{name}");
    if before.state != State::Unknown && after.state != State::Unknown {
        assert_eq!(after.reconcile_lease_expires_at, None, "{name}");
    }
}

/// The states in which the last attempt's owner, or a person, may make the call at all.
fn allowed(event: &str) -> Vec<State> {
    use State::*;
    match event {
        "reserve" | "conflict" | "reconcile" | "visit" | "withdraw" | "propose" | "restore" => {
            STATES.to_vec()
        }
        "commit" | "commit other" => vec![Started, Unknown, Committed],
        "mark_unknown" => vec![Started, Unknown],
        "fail" | "not_sent" => vec![Started, Unknown, Retryable, Failed, Rejected],
        "renew" | "dispatch" => vec![Started],
        "release" => vec![Started, Retryable, Rejected],
        "resolve" | "disprove" => vec![],
        "escalate" => vec![Unknown],
        "reopen" => vec![Failed, Rejected],
        "approve" => vec![Proposed, Approved, Unknown, Retryable],
        "reject" => vec![Proposed, Approved, Rejected],
        _ => STATES.into_iter().filter(|state| *state != Expired).collect(),
    }
}

#[test]
fn illegal_moves_are_errors() {
    let policy = careful();
    for state in STATES {
        // As after a reopening, so that the caller is the owner in every state.
        let action = Action { attempt_id: Some(token(1)), ..in_state(state, &policy) };
        for (name, event) in events(caller(1)) {
            let result = transition(Some(&action), &event, Policies::same(&policy), T0 + 20 * SECOND);
            // Its token is used up.
            let asks_again = matches!(state, State::Retryable | State::Approved) && name == "reserve";
            match result {
                Ok(_) => assert!(allowed(name).contains(&state) && !asks_again, "{name} in {state:?}"),
                Err(error) if asks_again => assert_eq!(error.code, Code::InvalidParameter),
                Err(error) => {
                    assert!(!allowed(name).contains(&state), "{name} in {state:?}: {error}");
                    assert_eq!(error.code, Code::IllegalMove, "{name} in {state:?}");
                }
            }
        }
    }
}

#[test]
fn strangers_and_superseded_attempts_are_told_that_they_lost() {
    let calls = |who| {
        [
            commit(who),
            Event::MarkUnknown(who),
            Event::Fail(refusal(who)),
            Event::Renew(who, None),
            Event::Release(who),
            dispatch(who),
        ]
    };
    for policy in [policy(Class::ReadOnly), windowed()] {
        let running = repeated(&policy, T0 + LEASE);
        let done = moved(&running, &commit(caller(2)), &policy, T0 + LEASE);
        for action in [running, done] {
            for who in [earlier(1), caller(900)] {
                for event in calls(who) {
                    let error =
                        transition(Some(&action), &event, Policies::same(&policy), T0 + LEASE).unwrap_err();
                    assert_eq!(error.code, Code::LostAttempt, "{event:?}");
                    assert!(error.hint.is_some());
                }
            }
        }
    }
}

#[test]
fn reconciling_attempts_do_nothing_that_belongs_to_an_attempt() {
    let policy = careful();
    let who = caller(100);
    for event in
        [commit(who), Event::MarkUnknown(who), Event::Fail(refusal(who)), Event::Release(who), dispatch(who)]
    {
        assert_eq!(refused(&probed(&policy, T0 + LEASE), &event, &policy, T0 + LEASE), Code::IllegalMove);
    }
}

#[test]
fn an_action_that_is_not_there_is_none_of_anybodys() {
    for (name, event) in events(caller(1)) {
        let result = transition(None, &event, Policies::same(&careful()), T0);
        if !matches!(event, Event::Reserve(_) | Event::Propose(_)) {
            assert_eq!(result.unwrap_err().code, Code::NoSuchAction, "{name}");
        }
    }
}
