//! Outboxes: messages that carry an action, and their relays.

use idem_rules::action::{SECOND, Time};
use idem_rules::error::Code;
use idem_rules::outbox::{self, Carried, Claim, Message};
use idem_rules::policy::Policies;
use idem_rules::transition::{Answer, Ask, Caller, Commit, Event, Fail, Proof};
use idem_side_by_side::judged::judge;
use idem_side_by_side::row;
use postgres::{Client, Row};
use proptest::prelude::*;
use uuid::Uuid;

use crate::compare::Besides;
use crate::stage::{clock, fresh};
use crate::story::{Checked, Happening, PARENTS, Story};

/// Claims before a message is a dead letter.
const MAX_ATTEMPTS: i32 = 3;

/// The outbox of an action: one for each, so that a claim takes its message and no other.
fn outbox(key: usize) -> String {
    format!("public.side_by_side_{key}")
}

/// Makes the outboxes.
pub fn make_outboxes(client: &mut Client) {
    for key in 0..PARENTS {
        let call = format!("SELECT idem_create_outbox('{}', max_attempts => {MAX_ATTEMPTS})", outbox(key));
        client.batch_execute(&call).expect("makes an outbox");
    }
}

/// Empties the outboxes.
pub fn empty_outboxes(client: &mut Client) {
    for key in 0..PARENTS {
        client.batch_execute(&format!("TRUNCATE {}", outbox(key))).expect("empties an outbox");
    }
}

/// A message as it is stored.
struct Stored {
    id: Uuid,
    carries: bool,
    due_at: Option<Time>,
    claim_id: Option<Uuid>,
    fence: Option<i64>,
    message: Message,
}

impl Stored {
    fn read(row: &Row) -> Stored {
        Stored {
            id: row.get("id"),
            carries: row.get("carries"),
            due_at: row.get("due_at"),
            claim_id: row.get("claim_id"),
            fence: row.get("fence"),
            message: Message {
                attempts: row.get("attempts"),
                lease_expires_at: row.get("lease_expires_at"),
                delivered: false,
                dead: row.get("dead"),
            },
        }
    }
}

impl Story<'_> {
    /// The message of an action, as a session sees it. There is one at most.
    fn message(&mut self, session: usize, key: usize) -> Option<Stored> {
        // A dead letter is due at infinity.
        let micros = |column: &str| {
            format!("(extract(epoch FROM nullif({column}, 'infinity')) * 1000000)::bigint AS {column}")
        };
        let query = format!(
            "SELECT id, carries, attempts, claim_id, fence, dead_at IS NOT NULL AS dead, {}, {} FROM {}",
            micros("due_at"),
            micros("lease_expires_at"),
            outbox(key)
        );
        self.stage.sessions[session].query_opt(&query, &[]).expect("a look").as_ref().map(Stored::read)
    }

    /// Time passes for a message as for its action.
    pub fn time_passes_in_outbox(&mut self, key: usize, seconds: f64) {
        let query = format!(
            "UPDATE {} SET due_at = due_at - make_interval(secs => $1),
                lease_expires_at = lease_expires_at - make_interval(secs => $1), fence = fence - ($1 * 1000000)::bigint",
            outbox(key)
        );
        self.stage.observer.execute(&query, &[&seconds]).expect("time passes");
    }

    pub fn relays(&mut self, happening: Happening) -> Checked {
        let Happening { what, session, key, .. } = happening;
        let message = self.message(session, key);
        match message {
            None => self.puts(happening),
            Some(message) if message.message.dead && what % 2 == 0 => self.skips(happening, &message),
            Some(message) if message.claim_id.is_none() || what < 54 => self.claims(happening, &message),
            Some(message) if what < 56 => self.acks(happening, &message),
            Some(message) => self.nacks(happening, &message),
        }
    }

    fn puts(&mut self, happening: Happening) -> Checked {
        let Happening { session, key, .. } = happening;
        let inside = self.open.as_ref().is_some_and(|open| open.session == session);
        let known = &self.known[key];
        let owner = known.row.as_ref().and_then(|row| row.attempt_id);
        let here = inside && owner.is_some() && owner == known.granted_here;
        let call = format!(
            "SELECT idem_outbox_put('{}', 't', 'a', '1', '{{}}', action_id => '{}')::text",
            outbox(key),
            self.id(key)
        );
        self.compares(happening, &call, |_| Event::Carry { here })
    }

    /// What a claim comes to follows from the message, and from the action that it carries.
    fn claims(&mut self, happening: Happening, before: &Stored) -> Checked {
        let Happening { session, key, .. } = happening;
        self.stage.steps.set(self.stage.steps.get() + 1);
        let inside = self.notes(session, key);
        let (granted, current) = self.policies(key);
        let (id, action) = (self.id(key), self.known[key].row.clone());
        let call = format!(
            "SELECT attempt_id, fence FROM idem_outbox_claim('{}', 10, lease_seconds => 20, relay => 'r')",
            outbox(key)
        );
        let client = &mut self.stage.sessions[session];
        let earliest = clock(client);
        let claimed = client.query_opt(&call, &[]).expect("claims");
        let latest = clock(client);
        let stored = row::action(client, id).expect("a row");
        let after = self.message(session, key);
        let token: Option<Uuid> = claimed.as_ref().and_then(|row| row.get(0));
        let context = format!("{call}\nbefore {action:?}\nstored {stored:?}\nclaimed {claimed:?}");
        let word = match (&claimed, &after) {
            (Some(_), _) => "claimed",
            (None, None) => "gone",
            (None, Some(after)) if after.message.dead => "dead",
            (None, Some(_)) => "left",
        };
        *self.stage.tally.entry(format!("idem_outbox_claim {word}")).or_default() += 1;

        // The message first.
        let judge_message = |now| {
            (outbox::claim(&before.message, MAX_ATTEMPTS, now), before.due_at.is_none_or(|due| due <= now))
        };
        if judge_message(earliest) != judge_message(latest) {
            self.stage.boundaries.set(self.stage.boundaries.get() + 1);
            self.after_a_claim(session, key, inside, token);
            return Ok(());
        }
        let (claim, is_due) = judge_message(earliest);
        let looked_at = is_due && !before.message.dead;
        // A session looks for what failed before now and then only.
        let passed_by = word == "left" && before.due_at.is_some() && stored == action;
        if claim == Claim::Leave || !looked_at || passed_by {
            prop_assert!(claimed.is_none() && stored == action, "it is not to be had: {}", context);
            return Ok(());
        }
        if claim == Claim::Bury {
            prop_assert!(word == "dead" && stored == action, "it was its last attempt: {}", context);
            return Ok(());
        }
        if !before.carries {
            prop_assert!(
                word == "claimed" && token.is_none() && stored == action,
                "it only tells: {}",
                context
            );
            return Ok(());
        }
        let Some(row) = action.as_ref() else { return Ok(()) };
        if let Some(ended) = outbox::ended(row.state) {
            let expected = if ended == Carried::Done { "gone" } else { "dead" };
            prop_assert_eq!(word, expected, "the action has ended: {}", context);
            prop_assert_eq!(&stored, &action, "the action has ended: {}", context);
            return Ok(());
        }
        if !row.flags.carried {
            prop_assert!(
                word == "dead" && stored == action,
                "it has ended and was opened again, for anybody: {}",
                context
            );
            return Ok(());
        }
        let ask = Ask {
            fingerprint: row.fingerprint,
            scheme: row.scheme,
            attempt_id: token.unwrap_or_default(),
            attempt_id_used: false,
            lease: Some((20 * SECOND).min(current.max_lease)),
            ttl: None,
            can_reconcile: false,
            carried: false,
            held: self.is_held(key),
        };
        let policies = Policies { granted: &granted, current: &current };
        let judged = judge(Some(row), |_| Event::Reserve(ask), policies, (earliest, latest));
        match judged.step() {
            None => {
                self.stage.boundaries.set(self.stage.boundaries.get() + 1);
                self.after_a_claim(session, key, inside, token);
            }
            Some(Err(_)) => {
                prop_assert!(word == "left" && stored == action, "it is held: {}", context);
            }
            Some(Ok(step)) => {
                let Answer::Decided(decision, wait) = step.answer else { return Ok(()) };
                let expected = match outbox::carried(decision, wait, earliest, earliest) {
                    Carried::Granted => "claimed",
                    Carried::Dead => "dead",
                    _ => "left",
                };
                prop_assert_eq!(word, expected, "{:?}: {}", decision, context);
                let difference = judged.difference(Some(row), stored.as_ref());
                prop_assert!(difference.is_none(), "{}\n{}", context, difference.unwrap_or_default());
                let step = step.clone();
                self.enter(key, inside, &step, (token, false), stored.as_ref())?;
                self.known[key].row = stored;
            }
        }
        Ok(())
    }

    fn after_a_claim(&mut self, session: usize, key: usize, inside: bool, token: Option<Uuid>) {
        let id = self.id(key);
        self.known[key].row = row::action(&mut self.stage.sessions[session], id).expect("a row");
        if let Some(token) = token {
            self.known[key].tokens.push(token);
            self.known[key].granted_here = Some(token).filter(|_| inside);
        }
        self.after_a_boundary(session, key);
    }

    /// The attempt behind a message's last claim, and how it stands to the action.
    fn relays_attempt(&mut self, session: usize, key: usize, message: &Stored) -> Option<Caller> {
        let row = self.known[key].row.clone()?;
        if !(row.flags.carried || row.state.is_terminal()) {
            return None;
        }
        let fence = message.fence?;
        let current = row.attempt_id.filter(|_| row.fence == fence);
        let attempt_id = match current {
            Some(attempt_id) => attempt_id,
            None => {
                let query = "SELECT attempt_id FROM idem_attempt WHERE action_id = $1 AND fence = $2 AND NOT reconciling";
                let id = self.id(key);
                self.stage.sessions[session].query_opt(query, &[&id, &fence]).expect("a look")?.get(0)
            }
        };
        let known = [row.attempt_id, row.reconcile_id].contains(&Some(attempt_id));
        let earlier = !known && self.known[key].ended.contains(&(attempt_id, false));
        Some(Caller { attempt_id, earlier })
    }

    fn acks(&mut self, happening: Happening, message: &Stored) -> Checked {
        let Happening { session, key, choice, .. } = happening;
        let (Some(claim_id), true) = (message.claim_id, message.carries) else { return Ok(()) };
        let stranger = choice % 8 == 0;
        let claim_id = if stranger { fresh(choice) } else { claim_id };
        let resource = [None, Some("r1"), Some("r2")][choice as usize % 3];
        let call = format!(
            "SELECT idem_outbox_ack('{}', '{}', '{claim_id}', resource_id => {})",
            outbox(key),
            message.id,
            resource.map_or("NULL".to_owned(), |text| format!("'{text}'"))
        );
        if stranger {
            return self.says(happening, &call, "lost");
        }
        let Some(caller) = self.relays_attempt(session, key, message) else {
            return self.is_refused(happening, &call);
        };
        let commit = Commit { caller, resource_id: resource, record_when_lost: true };
        let besides = Besides { words: &["acked"], ..Besides::default() };
        self.compares_besides(happening, &call, |_| Event::Commit(commit.clone()), besides).map(drop)
    }

    fn nacks(&mut self, happening: Happening, message: &Stored) -> Checked {
        let Happening { session, key, choice, .. } = happening;
        // One that was given back before is another story: what is said of the action counts, and no more.
        let (Some(claim_id), Some(_), true) =
            (message.claim_id, message.message.lease_expires_at, message.carries)
        else {
            return Ok(());
        };
        let proof = [None, Some((Proof::NotSent, "not_sent")), Some((Proof::Refused, "refused"))]
            [choice as usize % 3];
        let call = format!(
            "SELECT idem_outbox_nack('{}', '{}', '{claim_id}', proof => {})",
            outbox(key),
            message.id,
            proof.map_or("NULL".to_owned(), |(_, word)| format!("'{word}'"))
        );
        let Some(caller) = self.relays_attempt(session, key, message) else {
            return self.is_refused(happening, &call);
        };
        let event = |random| match proof {
            None => Event::MarkUnknown(caller),
            Some((proof, _)) => Event::Fail(Fail {
                caller,
                proof,
                retryable: true,
                retry_after: None,
                new_provider_key: false,
                random,
            }),
        };
        let besides = Besides { words: &["retry", "waiting", "dead"], ..Besides::default() };
        self.compares_besides(happening, &call, event, besides).map(drop)
    }

    /// A dead letter is given up, and lets its action go.
    fn skips(&mut self, happening: Happening, message: &Stored) -> Checked {
        let key = happening.key;
        let call = format!(
            "SELECT outcome FROM idem_outbox_redrive('{}', ARRAY['{}'::uuid], skip => true)",
            outbox(key),
            message.id
        );
        let row = self.known[key].row.as_ref();
        let carried = row.is_some_and(|row| row.flags.carried || row.state.is_terminal());
        match message.carries && carried {
            false => self.says(happening, &call, "skipped"),
            true => {
                let besides = Besides { words: &["skipped"], ..Besides::default() };
                self.compares_besides(happening, &call, |_| Event::LetGo, besides).map(drop)
            }
        }
    }

    /// Makes a call that leaves the action as it is.
    fn says(&mut self, happening: Happening, call: &str, word: &str) -> Checked {
        let Happening { session, key, .. } = happening;
        self.notes(session, key);
        let id = self.id(key);
        let client = &mut self.stage.sessions[session];
        let said: String = client.query_one(call, &[]).expect("an answer").get(0);
        let stored = row::action(client, id).expect("a row");
        prop_assert_eq!(&said, word, "{}", call);
        prop_assert_eq!(&stored, &self.known[key].row, "{}", call);
        Ok(())
    }

    /// Makes a call for an attempt that is not known any more.
    fn is_refused(&mut self, happening: Happening, call: &str) -> Checked {
        let besides = Besides { refused: Some(Code::LostAttempt.sqlstate()), ..Besides::default() };
        self.compares_besides(happening, call, |_| Event::LetGo, besides).map(drop)
    }
}
