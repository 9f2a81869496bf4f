//! Calls about one action: reserving, ending, finding out, deciding.

use idem_rules::action::SECOND;
use idem_rules::transition::{
    Approve, Ask, Commit, Decide, Event, Evidence, Fail, Finding, Person, Proof, Resolve, Verdict,
};

use uuid::Uuid;

use crate::stage::fresh;
use crate::story::{Checked, Happening, Story};

impl Story<'_> {
    pub fn calls(&mut self, happening: Happening) -> Checked {
        let Happening { what, key, choice, .. } = happening;
        let bit = |n: u32| choice & (1 << n) != 0;
        let (who, whoever) = (self.caller(happening, false), self.caller(happening, true));
        let resource = [None, Some("r1"), Some("r2")][choice as usize % 3];
        let finding = [
            Finding::NotApplied,
            Finding::Applied,
            Finding::NotApplied,
            Finding::Inconclusive,
            Finding::Ambiguous,
            Finding::PartiallyApplied,
        ][(choice >> 4) as usize % 6];
        let (id, token, held) = (self.id(key), who.attempt_id, self.is_held(key));
        let quoted = |text: Option<&str>| text.map_or("NULL".to_owned(), |text| format!("'{text}'"));
        let ending = |name: &str, more: &str| format!("SELECT {name}('{id}', '{token}'{more})::text");
        let person = |name: &str, more: &str| format!("SELECT {name}('{id}'{more}, note => 'because')::text");
        let boss = Person { role: "boss", session_role: "boss", name: None };
        match what {
            0..=11 => self.reserves(happening),
            12..=14 => {
                let on_lost = if bit(8) { "record" } else { "error" };
                let call = ending(
                    "idem_commit",
                    &format!(", resource_id => {}, on_lost => '{on_lost}'", quoted(resource)),
                );
                let commit = Commit { caller: who, resource_id: resource, record_when_lost: bit(8) };
                self.compares(happening, &call, |_| Event::Commit(commit.clone()))
            }
            15 => self.compares(happening, &ending("idem_mark_unknown", ""), |_| Event::MarkUnknown(who)),
            16..=18 => {
                let (proof, word) =
                    if bit(8) { (Proof::NotSent, "not_sent") } else { (Proof::Refused, "refused") };
                let retry_after = bit(9).then_some(10 * SECOND);
                let call = ending(
                    "idem_fail",
                    &format!(
                        ", '{word}', retryable => {}, retry_after_seconds => {}, new_provider_key => {}",
                        bit(10) || bit(11),
                        if bit(9) { "10" } else { "NULL" },
                        bit(12)
                    ),
                );
                self.compares(happening, &call, |random| {
                    let (retryable, new_provider_key) = (bit(10) || bit(11), bit(12));
                    Event::Fail(Fail { caller: who, proof, retryable, retry_after, new_provider_key, random })
                })
            }
            19..=20 => {
                let lease = bit(8).then_some(120 * SECOND);
                let call = ending("idem_renew", if bit(8) { ", 120" } else { "" });
                self.compares(happening, &call, |_| Event::Renew(who, lease))
            }
            21 => self.compares(happening, &ending("idem_release", ""), |_| Event::Release(who)),
            22..=24 => self
                .compares(happening, &ending("idem_dispatch", ""), |_| Event::Dispatch { caller: who, held }),
            25..=26 => {
                let more = format!(", '{}', resource_id => {}", finding.word(), quoted(resource));
                let evidence = Evidence { caller: whoever, finding, resource_id: resource };
                self.compares(happening, &ending("idem_add_evidence", &more), |_| {
                    Event::Evidence(evidence.clone())
                })
            }
            27..=31 => {
                let more = format!(", '{}', resource_id => {}", finding.word(), quoted(resource));
                let call = format!("SELECT state FROM idem_resolve('{id}', '{token}'{more})");
                self.compares(happening, &call, |random| {
                    Event::Resolve(Resolve {
                        caller: whoever,
                        finding,
                        resource_id: resource,
                        next_probe: None,
                        random,
                    })
                })
            }
            32 => self.compares(happening, &person("idem_escalate", ""), |_| Event::Escalate),
            33 => {
                let (verdict, word) = [
                    (Verdict::Applied, "applied"),
                    (Verdict::NotApplied, "not_applied"),
                    (Verdict::Retry, "retry"),
                ][choice as usize / 8 % 3];
                let call = person("idem_decide", &format!(", '{word}', resource_id => {}", quoted(resource)));
                self.compares(happening, &call, |_| Event::Decide(Decide { verdict, resource_id: resource }))
            }
            34 => self.compares(happening, &person("idem_reopen", ""), |_| Event::Reopen),
            35..=37 => {
                let seen = self.fingerprint(key, choice % 9 == 0);
                let hex: String = seen.iter().map(|byte| format!("{byte:02x}")).collect();
                let call = person("idem_approve", &format!(", '\\x{hex}'"));
                self.compares(happening, &call, |_| {
                    let (proposer, approver) = (Some(boss), boss);
                    Event::Approve(Approve {
                        fingerprint: &seen,
                        policy_version: None,
                        valid: None,
                        proposer,
                        approver,
                    })
                })
            }
            38 => self.compares(happening, &person("idem_reject", ""), |_| Event::Reject),
            39 => {
                let name = if bit(8) { "idem_withdraw" } else { "idem_cancel" };
                self.compares(happening, &person(name, ""), |_| Event::Withdraw)
            }
            63 => self.proposes(happening),
            _ => Ok(()),
        }
    }

    fn proposes(&mut self, happening: Happening) -> Checked {
        let Happening { key, choice, .. } = happening;
        let ask = Ask {
            fingerprint: self.fingerprint(key, choice % 16 == 2),
            scheme: 1,
            attempt_id: Uuid::nil(),
            attempt_id_used: false,
            lease: None,
            ttl: None,
            can_reconcile: false,
            carried: false,
            held: self.is_held(key),
        };
        let call = format!(
            "SELECT decision || ' ' || granted || ' ' FROM idem_propose('{}', '{{\"n\": {}}}', tenant => '{}',
                action_type => '{}')",
            self.key(key),
            if choice % 16 == 2 { 2 } else { 1 },
            self.tenant(),
            self.action_type(key),
        );
        self.compares(happening, &call, |_| Event::Propose(ask))
    }

    pub fn reserves(&mut self, happening: Happening) -> Checked {
        let Happening { key, choice, .. } = happening;
        let bit = |n: u32| choice & (1 << n) != 0;
        let (again, other, can_reconcile, short) = (bit(0) && bit(1), choice % 16 == 2, bit(4), bit(5));
        let token = if again { self.token(happening) } else { fresh(choice) };
        let known = &self.known[key];
        let used = known.ended.iter().any(|(ended, _)| *ended == token)
            || known
                .row
                .as_ref()
                .is_some_and(|row| [row.attempt_id, row.reconcile_id].contains(&Some(token)));
        let ask = Ask {
            fingerprint: self.fingerprint(key, other),
            scheme: 1,
            attempt_id: token,
            attempt_id_used: used && !known.row.as_ref().is_some_and(|row| row.state.is_terminal()),
            lease: short.then_some(20 * SECOND),
            ttl: None,
            can_reconcile,
            carried: known.row.as_ref().is_some_and(|row| row.flags.carried),
            held: self.is_held(key),
        };
        let call = format!(
            "SELECT decision || ' ' || granted || ' ' || coalesce(attempt_id::text, '') FROM idem_reserve('{}',
                '{{\"n\": {}}}', tenant => '{}', action_type => '{}', attempt_id => '{token}', lease_seconds => {},
                can_reconcile => {can_reconcile}, store_request => {})",
            self.key(key),
            if other { 2 } else { 1 },
            self.tenant(),
            self.action_type(key),
            if short { "20" } else { "NULL" },
            // Needed by whoever carries it out without having asked for it.
            if bit(6) { "true" } else { "NULL" },
        );
        self.compares(happening, &call, |_| Event::Reserve(ask))
    }
}
