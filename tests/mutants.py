#!/usr/bin/env python3
"""Breaks each rule once and sees that some test notices.

Works on a copy of the workspace in a temporary directory, with a build directory of its own that all mutants
share, and never touches the root package, which needs a server's headers. Run by `make mutants`; a word on the
command line takes only the mutants whose label contains it.

Exit status: 0 when every mutant was killed, 1 when one survived, could not be built, or no longer fits the source.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
RULES = "crates/idem_rules/src"
# The second group is built only for what the first one did not notice.
TESTS = (["--test", "decision_table", "--test", "moves"], ["--lib", "--test", "messages"])

# (file, text that stands there exactly once, what stands there instead, which rule that breaks)
MUTANTS = [
    # The decision table, row by row.
    ("reserve.rs", "        return first(ask, policies.current.lease_for(ask.lease)?, policies, now);",
     "        return Ok(told(Decision::Pending));", "row: nothing, no approval needed: execute"),
    ("reserve.rs", "if action.fingerprint != ask.fingerprint ||", "if false ||",
     "row: any, other fingerprint: conflict"),
    ("reserve.rs", "|| action.scheme != ask.scheme {", "{", "row: any, other scheme: conflict"),
    ("reserve.rs", """    if action.fingerprint != ask.fingerprint || action.scheme != ask.scheme {
        return Ok(told(Decision::Conflict));
    }
    if action.state.is_terminal() {""", """    if action.fingerprint != ask.fingerprint && !action.state.is_terminal() {
        return Ok(told(Decision::Conflict));
    }
    if action.state.is_terminal() {""", "row: conflict comes first, before the terminal states"),
    ("reserve.rs", "if action.approval_expires_at.is_some_and(|lapses| lapses <= now) {",
     "if action.approval_expires_at.is_some_and(|lapses| lapses < now) {",
     "row: proposed, approved, lapsed: rejected (boundary)"),
    ("reserve.rs", """        return Ok(rejected(action, policies, now, "lapsed"));""",
     """        return Ok(told(Decision::Rejected));""", "row: proposed, approved, lapsed: the change is stored"),
    ("reserve.rs", "    if policy.requires_approval {", "    if false {",
     "row: nothing, approval needed: awaiting_approval"),
    ("reserve.rs", "    if action.state == State::Proposed {\n        return Ok(told(Decision::AwaitingApproval));",
     "    if false {\n        return Ok(told(Decision::AwaitingApproval));", "row: proposed: awaiting_approval"),
    ("reserve.rs", "if action.policy_version != policies.current.version {", "if false {",
     "approved under another policy version: proposed again"),
    ("reserve.rs", """    if ask.carried {
        return Ok(told(Decision::Pending));
    }
    match action.state {""", "    match action.state {", "row: carried by a message: pending"),
    ("reserve.rs", """    if ask.carried {
        return Ok(told(Decision::Pending));
    }
    execute(""", "    execute(", "row: approved and carried by a message: pending"),
    ("reserve.rs", "if still_here && (undispatched || may_repeat(action, rest, policies, now)) {",
     "if (undispatched || may_repeat(action, rest, policies, now)) {", "row: resume only with the same attempt_id"),
    ("reserve.rs", "if still_here && (undispatched || may_repeat(action, rest, policies, now)) {",
     "if still_here {", "row: resume only undispatched or repeatable"),
    ("reserve.rs", "if still_here && (undispatched || may_repeat(action, rest, policies, now)) {",
     "if still_here && may_repeat(action, rest, policies, now) && !undispatched {",
     "row: resume of an attempt that has not marked its dispatch"),
    ("reserve.rs", "if still_here && (undispatched || may_repeat(action, rest, policies, now)) {",
     "if still_here && undispatched {", "row: resume where the type may repeat"),
    ("reserve.rs", "if still_here && (undispatched || may_repeat(action, rest, policies, now)) {",
     "if still_here && (undispatched || may_repeat(action, lease, policies, now)) {",
     "resume gives back the rest of the lease, not the lease asked for"),
    ("reserve.rs", "policies.granted.marks_dispatch && action.dispatched_at.is_none();",
     "policies.granted.marks_dispatch;", "row: resume not after the mark"),
    ("reserve.rs", "policies.granted.marks_dispatch && action.dispatched_at.is_none();",
     "action.dispatched_at.is_none();", "row: resume only where a mark is asked for"),
    ("reserve.rs", "return Ok(wait(Decision::Pending, action.lease_expires_at, now));",
     "return Ok(told(Decision::Unknown));", "row: started, lease alive: pending"),
    ("action.rs", "self.state == State::Started && self.lease_expires_at.is_some_and(|end| now < end)",
     "self.state == State::Started && self.lease_expires_at.is_some_and(|end| now <= end)",
     "a lease is over at its end"),
    ("reserve.rs", """        return Ok(wait(Decision::Pending, action.lease_expires_at, now));
    }
    if may_repeat(action, lease, policies, now) && !action.flags.positive_evidence {""",
     """        return Ok(wait(Decision::Pending, action.lease_expires_at, now));
    }
    if true {""", "row: started, lease over, may not repeat: as unknown"),
    ("reserve.rs", """        return Ok(wait(Decision::Pending, action.lease_expires_at, now));
    }
    if may_repeat(action, lease, policies, now) && !action.flags.positive_evidence {""",
     """        return Ok(wait(Decision::Pending, action.lease_expires_at, now));
    }
    if false {""", "row: started, lease over, may repeat: execute"),
    ("reserve.rs", "    step.next.get_or_insert(lapsed);\n", "", "row: started, lease over, otherwise: unknown is stored"),
    ("reserve.rs", "    if action.needs_review(now) {", "    if false {", "row: unknown past its deadline: review"),
    ("action.rs", "self.flags.escalated || self.deadline_at.is_some_and(|deadline| deadline <= now)",
     "self.flags.escalated || self.deadline_at.is_some_and(|deadline| deadline < now)",
     "row: unknown past its deadline (boundary)"),
    ("action.rs", "self.flags.escalated || self.deadline_at.is_some_and(|deadline| deadline <= now)",
     "self.deadline_at.is_some_and(|deadline| deadline <= now)", "row: unknown, escalated: review"),
    ("reserve.rs", "\n    if action.reconciler_alive(now) {", "\n    if false {",
     "row: unknown, a reconciler's lease alive: unknown"),
    ("action.rs", "self.state == State::Unknown && self.reconcile_lease_expires_at.is_some_and(|end| now < end)",
     "self.state == State::Unknown && self.reconcile_lease_expires_at.is_some_and(|end| now <= end)",
     "a reconciler's lease is over at its end"),
    ("reserve.rs", "\n    if !action.is_due(now) {\n", "\n    if false {\n", "row: unknown, not due: unknown"),
    ("action.rs", "self.due_at.is_none_or(|due| due <= now)", "self.due_at.is_none_or(|due| due < now)",
     "due at its instant"),
    ("reserve.rs", """    if let Some(step) = not_now(action, now) {
        return Ok(step);
    }
    if may_repeat(action, lease, policies, now) && !action.flags.positive_evidence {""",
     """    if let Some(step) = not_now(action, now) {
        return Ok(step);
    }
    if !action.flags.positive_evidence {""", "row: unknown, may not repeat: no execute"),
    ("reserve.rs", """    if let Some(step) = not_now(action, now) {
        return Ok(step);
    }
    if may_repeat(action, lease, policies, now) && !action.flags.positive_evidence {""",
     """    if let Some(step) = not_now(action, now) {
        return Ok(step);
    }
    if may_repeat(action, lease, policies, now) {""", "row: unknown, positive evidence: no execute"),
    ("reserve.rs", """    if let Some(step) = not_now(action, now) {
        return Ok(step);
    }
    if may_repeat(action, lease, policies, now) && !action.flags.positive_evidence {""",
     """    if let Some(step) = not_now(action, now) {
        return Ok(step);
    }
    if false {""", "row: unknown, may repeat: execute"),
    ("reserve.rs", "    if ask.can_reconcile {", "    if true {", "row: reconcile only who can"),
    ("reserve.rs", "    if ask.can_reconcile {", "    if false {", "row: unknown, can_reconcile: reconcile"),
    ("reserve.rs", "now.checked_add(policies.granted.probe_interval), now))", "None, now))",
     "row: unknown, otherwise: when to come back"),
    ("reserve.rs", "    if action.is_due(now) {\n        return execute(", "    if true {\n        return execute(",
     "row: retryable, not due: pending"),
    ("reserve.rs", "    if action.is_due(now) {\n        return execute(", "    if false {\n        return execute(",
     "row: retryable, due: execute"),
    ("reserve.rs", "Ok(wait(Decision::Pending, action.due_at, now))", "Ok(told(Decision::Pending))",
     "row: retryable, not due: when to come back"),
    ("reserve.rs", "State::Committed => Decision::Replay,", "State::Committed => Decision::Failed,",
     "row: committed: replay"),
    ("reserve.rs", "State::Failed => Decision::Failed,", "State::Failed => Decision::Rejected,", "row: failed: failed"),
    ("reserve.rs", "State::Rejected => Decision::Rejected,", "State::Rejected => Decision::Failed,",
     "row: rejected: rejected"),
    ("reserve.rs", "_ => Decision::Expired,", "_ => Decision::Failed,", "row: expired: expired"),
    ("reserve.rs", "Ok(told(match action.state_at(now) {", "Ok(told(match action.state {",
     "expiry is judged at read time"),
    ("action.rs", "self.state.is_terminal() && self.expires_at.is_some_and(|end| end <= now)",
     "self.state.is_terminal() && self.expires_at.is_some_and(|end| end < now)", "expiry (boundary)"),
    ("expiry.rs", "_ if open_children || action.undecided() =>", "_ if open_children =>",
     "expiry: contradicting reports are kept until a person has decided"),
    ("reconcile.rs", "if !action.undecided() && action.retention_over(now)", "if action.retention_over(now)",
     "decide: contradicting reports, however late"),
    ("expiry.rs", "_ if open_children || action.undecided() =>", "_ if action.undecided() =>",
     "expiry: a record with open children stays"),

    # Reconcilers who come by themselves, and compensation.
    ("reserve.rs", "        None if action.flags.discrepancy => Ok(told(Decision::Review)),\n", "",
     "reconcile: what a person has to decide is not a reconciler's"),
    ("reserve.rs", "State::Started if !action.lease_alive(now) => lapsing(", "State::Started => lapsing(",
     "reconcile: an attempt that is alive is left alone"),
    ("reserve.rs", "    step.next.get_or_insert(lapsed);\n", "", "reconcile: a dead attempt is noticed whatever follows"),
    ("expiry.rs", "    if action.flags.discrepancy {\n        let visit_at", "    if false {\n        let visit_at",
     "queue: contradicting reports wait for a person"),
    ("expiry.rs", "            State::Started => Some(action.lease_expires_at),\n", "            State::Started => Some(None),\n",
     "queue: a lease ends although reports contradict each other"),
    ("expiry.rs", "action.due_at.max(action.reconcile_lease_expires_at)", "action.due_at",
     "queue: not due while a reconciler is at it"),
    ("expiry.rs", "if action.state == State::Committed && action.flags.needs_compensation {", "if false {",
     "queue: what happened in part waits to be compensated"),
    ("compensation.rs", "        _ if itself => refuse(", "        _ if false => refuse(", "compensate: none of a compensation"),
    ("compensation.rs", "State::Committed if live => refuse(", "State::Committed if false => refuse(",
     "compensate: one live one"),
    ("compensation.rs", "        State::Started | State::Unknown => refuse(", "        State::Started => refuse(",
     "compensate: an unclear outcome is reconciled first"),
    ("compensation.rs", "match parent.state_at(now) {\n        _ if", "match parent.state {\n        _ if",
     "compensate: expiry is judged at read time"),
    ("compensation.rs", "!matches!(child, State::Failed | State::Rejected)", "!matches!(child, State::Failed)",
     "compensate: a rejected one makes room"),
    ("compensation.rs", "    !child.is_terminal()", "    child == State::Started", "compensate: open until it has ended"),
    # What every grant needs.
    ("reserve.rs", "action.flags.discrepancy.then(|| told(Decision::Review))", "None",
     "grant: no open discrepancy"),
    ("approval.rs", "    if action.flags.withdrawn {\n        return Approval::Withdrawn;", "    if false {\n        return Approval::Withdrawn;",
     "grant: not withdrawn"),
    ("approval.rs", "Some(lapses) if lapses <= now => Approval::Lapsed,", "Some(lapses) if lapses < now => Approval::Lapsed,",
     "grant: approval valid (boundary)"),
    ("approval.rs", "Some(_) if action.approval_policy_version == Some(under.version) => Approval::Valid,",
     "Some(_) => Approval::Valid,", "grant: the approval is for this version of the policy"),
    ("approval.rs", "        _ => Approval::Missing,", "        _ => Approval::Valid,", "grant: some approval was given"),
    ("approval.rs", "if !policies.current.requires_approval && !policies.granted.requires_approval {",
     "if !policies.granted.requires_approval {", "grant: the present policy's need for approval"),
    ("approval.rs", "if !policies.current.requires_approval && !policies.granted.requires_approval {",
     "if !policies.current.requires_approval {", "dispatch: the need for approval it was granted under"),
    ("reserve.rs", "stopped(action, policies.current, policies, now)", "stopped(action, policies.granted, policies, now)",
     "grant: approved for the present policy"),
    ("reserve.rs", "stopped(action, policies.granted, policies, now)", "stopped(action, policies.current, policies, now)",
     "resume: approved for the policy it was granted under"),
    ("reserve.rs", "            _ => proposed_again(action, policies, now),",
     """            _ => rejected(action, policies, now, "lapsed"),""", "grant: a missing approval is asked for"),
    ("reserve.rs", "        approval_policy_version: None,\n", "", "proposed again: without the old approval"),
    ("reserve.rs", "        flags: closed(action.flags),\n", "", "proposed again: nothing is open"),
    ("reserve.rs", "    Policy::check_lease(ask.lease)?;\n", "", "a lease of no length is refused everywhere"),
    ("reserve.rs", "reserve(action, &Ask { carried: true, ..*ask }, policies, now)", "reserve(action, ask, policies, now)",
     "propose: grants nothing"),
    ("reserve.rs", "if action.is_none() && !policies.current.requires_approval {", "if false {",
     "propose: for types that need approval"),
    ("reserve.rs", "        if ever_dispatched(action, policies.granted) {\n            return Some(told(Decision::Review));",
     "        if false {\n            return Some(told(Decision::Review));",
     "grant: review, not rejected, once something was dispatched"),
    ("reserve.rs", "action.counted_attempts() >= policies.current.max_attempts",
     "action.counted_attempts() > policies.current.max_attempts", "grant: attempts left (boundary)"),
    ("reserve.rs", "Action { flags, reconcile_lease_expires_at: None, ..lapsed }", "lapsed",
     "attempts run out with an outcome open: escalated"),
    ("reserve.rs", "    if lapsed.state == State::Unknown {", "    if false {",
     "attempts run out with an outcome open: never failed"),
    ("reserve.rs", """    if ask.held {
        return Err(held());
    }
    fresh(""", "    fresh(", "grant: not held"),
    ("reserve.rs", """    if ask.held {
        return Err(held());
    }
    let mut started""", "    let mut started", "first grant: not held"),
    ("reserve.rs", "                None if ask.held => Err(held()),\n", "", "resume: not held"),
    ("reserve.rs", "if !ask.attempt_id_used && !stored {", "if !stored {", "an attempt_id of the history serves once"),
    ("reserve.rs", "if !ask.attempt_id_used && !stored {", "if !ask.attempt_id_used {",
     "an attempt_id of the row serves once"),
    ("reserve.rs", "new.ttl = ask.ttl.filter(|ttl| *ttl > policy.ttl);", "new.ttl = ask.ttl;",
     "a call never shortens the type's ttl (proposal)"),
    ("lease.rs", "action.ttl.max(ask.ttl.filter(|ttl| *ttl > policies.current.ttl))", "action.ttl",
     "a later call may lengthen the ttl"),
    # Leases, fences and windows.
    ("lease.rs", "now.max(last.saturating_add(1))", "now", "fence rises when the clock does not"),
    ("lease.rs", "now.max(last.saturating_add(1))", "last.saturating_add(1)", "fence is as great as the clock"),
    ("reserve.rs", "        fence: next_fence(action.fence, now),\n", "", "a reconciling attempt raises the fence"),
    ("lease.rs", "now.saturating_add(lease) <= end", "now.saturating_add(lease) < end", "window edge (allowed)"),
    ("lease.rs", "now.saturating_add(lease) <= end", "now <= end", "window: the whole lease has to fit"),
    ("lease.rs", "if policies.granted.class.repeats_freely() && policies.current.class.repeats_freely() {",
     "if policies.current.class.repeats_freely() {", "may repeat: also by the policy it was granted under"),
    ("lease.rs", "if policies.granted.class.repeats_freely() && policies.current.class.repeats_freely() {",
     "if policies.granted.class.repeats_freely() {", "may repeat: also by the present policy"),
    ("lease.rs", "if !any_dispatched(action, policies.granted) {", "if false {",
     "may repeat: nothing was dispatched since the last disproof"),
    ("lease.rs", "policies.granted.provider_key_window.min(policies.current.provider_key_window)",
     "policies.granted.provider_key_window", "window: the shorter of two policies'"),
    ("restore.rs", "if action.state.is_terminal() {", "if action.state != State::Started {",
     "a restore makes every open action unknown"),
    ("restore.rs", "        attempt_id: None,\n", "", "attempts of before a restore own nothing"),
    ("restore.rs", "        reconcile_id: None,\n", "", "reconcilers of before a restore own nothing"),
    ("restore.rs", "        approval_expires_at: None,\n", "", "an approval of before a restore is none"),
    ("restore.rs", "            restored: true,\n", "", "a restored outcome lies outside every window"),
    ("restore.rs", "            open_before: true,\n", "", "after a restore a new attempt's failure closes nothing"),
    ("restore.rs", "            own_closed: false,\n", "", "after a restore no outcome is closed"),
    ("restore.rs", "[action.lease_expires_at, action.settle_from, Some(now)]", "[Some(now)]",
     "a worker of before a restore may send until its lease ends"),
    ("restore.rs", "State::Started => ended(action, \"restored\"),", "State::Started => None,",
     "an attempt that a restore ends stands in the history"),
    ("attempt.rs", "let counts = standing == Standing::Current || (known && !action.flags.restored);",
     "let counts = known;", "a late commit of before a restore is evidence"),
    ("durable.rs", "if tells && after.state == State::Committed {", "if false {",
     "durable: an unmarked commit"),
    ("durable.rs", "granted.marks_dispatch && before.dispatched_at.is_none() &&", "before.dispatched_at.is_none() &&",
     "durable: a first-try commit is free of it"),
    ("durable.rs", "    (before.dispatched_at.is_none() && after.dispatched_at.is_some())", "    false",
     "durable: the mark"),
    ("durable.rs", "        || (is.ever_dispatched && !was.ever_dispatched)\n", "",
     "durable: that a provider was asked"),
    ("durable.rs", "        || (is.escalated && !was.escalated)\n", "",
     "durable: an escalation"),
    ("durable.rs", "Answer::Superseded | Answer::Discrepancy | Answer::Recorded)", "Answer::Superseded | Answer::Discrepancy)",
     "durable: a report"),
    ("hold.rs", "let error = Error::new(Code::Held,", "let error = Error::new(Code::WrongState,",
     "a hold's refusal is ID008"),
    ("lease.rs", "if window <= 0 || action.flags.restored {", "if window <= 0 {",
     "window: none for what a restore forgot"),
    ("lease.rs", "    action.flags.restored\n        || ", "    ", "a restored outcome counts as dispatched"),
    ("lease.rs", "next.generation > 0 || (action.attempt == 0 && now > next.created_at)",
     "next.generation > 0 || now > next.created_at", "window: does not slide with a later grant"),
    ("lease.rs", "next.generation > 0 || (action.attempt == 0 && now > next.created_at)",
     "next.generation > 0", "window: begins with the first grant, not with the proposal"),
    ("lease.rs", "open_before: open && (action.flags.open_before || !action.flags.own_closed),",
     "open_before: open && action.flags.open_before,", "a grant keeps the last attempt's outcome open"),
    ("lease.rs", "open_before: open && (action.flags.open_before || !action.flags.own_closed),",
     "open_before: open && !action.flags.own_closed,", "a grant keeps the earlier attempts' outcomes open"),
    ("lease.rs", "            open_dispatched: any_dispatched(action, policies.granted),\n", "",
     "a grant remembers that an attempt was dispatched"),
    ("lease.rs", "(!granted.marks_dispatch || action.dispatched_at.is_some())", "action.dispatched_at.is_some()",
     "an attempt that need not mark counts as dispatched"),
    ("lease.rs", "deadline_at: action.deadline_at.or(", "deadline_at: None.or(",
     "the deadline counts from the oldest open outcome"),
    ("lease.rs", "let latest = [action.lease_expires_at, action.dispatched_at, action.settle_from, Some(ended_at)];",
     "let latest = [action.settle_from, Some(ended_at)];", "settle delay: counts from the lease's end at the earliest"),
    ("lease.rs", "let latest = [action.lease_expires_at, action.dispatched_at, action.settle_from, Some(ended_at)];",
     "let latest = [action.lease_expires_at, action.dispatched_at, Some(ended_at)];",
     "settle delay: counts from the latest of all open attempts"),
    ("lease.rs", "settle_from: if open { settles_from(action, policies) } else { None },", "settle_from: None,",
     "settle delay: a grant does not forget the attempt before"),
    ("lease.rs", "    if shorter_by <= 0 {", "    if true {", "settle delay: a shorter one is not for those granted before"),
    ("lease.rs", "    let latest =\n        [action.settle_from, action.lease_expires_at, action.dispatched_at].into_iter()",
     "    let latest =\n        [action.settle_from].into_iter()", "settle delay: a shorter one, from a lease that lapsed unseen"),
    ("lease.rs", "action.lease_expires_at.map_or(ended_at, |end| end.min(ended_at))", "ended_at",
     "deadline: not put off by a mark after the lease's end"),
    ("lease.rs", "        probes: 0,\n        probe_tries: 0,\n        probed_at: None,\n        reconcile_id: None,\n", "",
     "a grant forgets the probes before it"),
    # Ending an attempt.
    ("attempt.rs", "State::Started => standing == Standing::Current,", "State::Started => known,",
     "commit: not by an earlier attempt while another is started"),
    ("attempt.rs", "State::Unknown => counts && !action.reconciler_alive(now),", "State::Unknown => counts,",
     "commit: not under a reconciler's lease"),
    ("attempt.rs", "State::Unknown => counts && !action.reconciler_alive(now),", "State::Unknown => false,",
     "commit: a late answer is an answer"),
    ("attempt.rs", "if differs(action.resource_id.as_deref(), commit.resource_id) {", "if false {",
     "commit: another resource is a discrepancy"),
    ("attempt.rs", "if standing == Standing::Current {\n            return Ok(Step::unchanged(Answer::AlreadyCommitted));",
     "if false {\n            return Ok(Step::unchanged(Answer::AlreadyCommitted));", "commit: already_committed"),
    ("attempt.rs", "if standing == Standing::Current {\n            return Ok(Step::unchanged(Answer::AlreadyCommitted));",
     "if true {\n            return Ok(Step::unchanged(Answer::AlreadyCommitted));",
     "commit: already_committed only for the attempt that did"),
    ("attempt.rs", "commit.record_when_lost && standing != Standing::Stranger", "commit.record_when_lost",
     "commit: a stranger records nothing"),
    ("attempt.rs", "commit.record_when_lost && standing != Standing::Stranger", "false",
     "commit: on_lost record keeps the result"),
    ("attempt.rs", "&& action.state != State::Expired {", "{", "commit: a tombstone records nothing"),
    ("attempt.rs", "if action.reconciler_alive(now) && known { Standing::Earlier } else { standing }", "standing",
     "commit: a reconciler took over, so the attempt is lost"),
    ("reserve.rs", """    step.events.insert(0, "lapsed");\n""", "", "the lapse found by a caller is history"),
    ("attempt.rs", "    window_end(action, Policies::same(policies.granted)).filter(|end| action.lease_expires_at <= Some(*end))",
     "    None", "renew: an attempt that may have been resumed ends with the window"),
    ("attempt.rs", ".filter(|end| action.lease_expires_at <= Some(*end))", "",
     "renew: a lease longer than the window is no resumed one"),
    ("attempt.rs", "    if policies.granted.marks_dispatch {\n        return None;", "    if false {\n        return None;",
     "renew: who marks his dispatch sends once"),
    ("attempt.rs", "window_end(action, Policies::same(policies.granted))", "window_end(action, policies)",
     "renew: resumed under the window of its grant"),
    ("attempt.rs", "matches!((stored, reported), (Some(stored), Some(reported)) if stored != reported)",
     "stored != reported", "a resource that nobody named contradicts nothing"),
    ("attempt.rs", "action.dispatched_at.or(policies.granted.marks_dispatch.then_some(now))", "action.dispatched_at",
     "mark_unknown counts as the mark of a dispatch"),
    ("attempt.rs", "policies.granted.marks_dispatch.then_some(now)", "Some(now)",
     "mark_unknown is no mark where none is asked for"),
    ("attempt.rs", "Flags { open_dispatched: true, ever_dispatched: true, said_unknown: true, ..action.flags };",
     "Flags { said_unknown: true, ..action.flags };", "mark_unknown after the lease counts as the mark as well"),
    ("attempt.rs", "settle_from: action.settle_from.max(Some(now)),", "",
     "settle delay: counts from a late mark"),
    ("attempt.rs", "State::Unknown if action.reconcile_id.is_some() => {", "State::Unknown if false => {",
     "fail: not once somebody took over"),
    ("attempt.rs", "    if fail.proof == Proof::NotSent && action.dispatched_at.is_some() {", "    if false {",
     "fail: not_sent is refused after dispatch"),
    ("attempt.rs", "granted.marks_dispatch || action.state == State::Started)", "granted.marks_dispatch)",
     "fail: a volunteered mark holds"),
    ("attempt.rs", """    if action.flags.open_before || action.flags.positive_evidence {
        let mut step = still_unknown(&Action {""", """    if action.flags.positive_evidence {
        let mut step = still_unknown(&Action {""", "sticky: a failure does not close an earlier outcome"),
    ("attempt.rs", """    if action.flags.open_before || action.flags.positive_evidence {
        let mut step = still_unknown(&Action {""", """    if action.flags.open_before {
        let mut step = still_unknown(&Action {""", "fail: does not overrule positive evidence"),
    ("attempt.rs", "            true => Action { due_at: Some(now.saturating_add(wait)), ..next },", "            true => next,",
     "sticky: whoever repeats it waits"),
    ("attempt.rs", "may_repeat(next, granted.lease, policies, now) && !next.flags.positive_evidence;", "true;",
     "sticky: whoever looks it up does not wait"),
    ("attempt.rs", "!fail.retryable || !attempts_left || action.flags.withdrawn {", "!fail.retryable || !attempts_left {",
     "fail: what was withdrawn is not retried"),
    ("attempt.rs", "if fail.retryable && action.flags.withdrawn { never_again(&settled) }", "if false { never_again(&settled) }",
     "fail: rejected where nothing was ever sent"),
    ("attempt.rs", "        true => end(&settled, never_again(&settled), policies.granted, now),",
     "        true => to_retryable(&settled, now),", "release: what was withdrawn is not retried"),
    ("reconcile.rs", "    if action.flags.withdrawn {", "    if false {", "resolve: what was withdrawn is not retried"),
    ("reconcile.rs", "        Verdict::Retry if action.flags.withdrawn => anew(&base, policies, now),\n", "",
     "decide: what was withdrawn starts over"),
    ("attempt.rs", "            next.flags.said_unknown = true;\n", "", "mark_unknown: said in time, it is said once"),
    ("lease.rs", "            said_unknown: false,\n", "", "mark_unknown: of the last attempt only"),
    ("attempt.rs", "if !action.flags.said_unknown && !action.flags.own_closed => {",
     "if action.dispatched_at.is_none() && !action.flags.own_closed => {",
     "mark_unknown: moves the settle delay after a dispatch, too"),
    ("attempt.rs", "            if until <= now {", "            if until < now {", "renew: some time is left (boundary)"),
    ("attempt.rs", "return Ok(if unmarked { step.event(UNMARKED) } else { step });", "return Ok(step);",
     "commit: an unmarked one is written down"),
    ("attempt.rs", "            && policies.granted.marks_dispatch\n", "", "commit: unmarked where a mark is asked for"),
    ("attempt.rs", "    unknown.flags.own_closed = true;\n", "", "sticky: closes its own outcome"),
    ("attempt.rs", "    unknown.flags.open_dispatched = before.flags.open_dispatched;\n",
     "    unknown.flags.open_dispatched = false;\n", "sticky: the earlier outcome stays dispatched"),
    ("attempt.rs", "let attempts_left = action.counted_attempts() < granted.max_attempts;",
     "let attempts_left = action.counted_attempts() <= granted.max_attempts;", "fail: attempts left (boundary)"),
    ("attempt.rs", "    if fail.new_provider_key {", "    if true {", "fail: a new provider key only when asked"),
    ("attempt.rs", "        settled.generation_granted_at = None;\n", "", "fail: a new key's window begins anew"),
    ("attempt.rs", "fail.retry_after.unwrap_or_else(||", "Some(0).unwrap_or_else(||", "fail: the time to retry"),
    ("attempt.rs", "    if action.dispatched_at.is_some() {\n        return Err(", "    if false {\n        return Err(",
     "release: not after dispatch"),
    ("attempt.rs", "forgiven: action.forgiven.saturating_add(1),", "", "release: not counted"),
    ("attempt.rs", """    if action.flags.open_before || action.flags.positive_evidence {
        let mut step = still_unknown(&uncounted""", """    if action.flags.positive_evidence {
        let mut step = still_unknown(&uncounted""", "sticky: a release does not close an earlier outcome"),
    ("attempt.rs", """    if action.flags.open_before || action.flags.positive_evidence {
        let mut step = still_unknown(&uncounted""", """    if action.flags.open_before {
        let mut step = still_unknown(&uncounted""", "release: does not overrule positive evidence"),
    ("attempt.rs", "until = until.min(last_moment(action, policies).unwrap_or(until));", "",
     "renew: not past the window"),
    ("attempt.rs", "window_end(action, policies).or(action.lease_expires_at)", "window_end(action, policies)",
     "renew: no window, no more time"),
    ("attempt.rs", "            if !granted.class.repeats_freely() {\n", "            if true {\n",
     "renew: what may be repeated needs no window"),
    ("attempt.rs", "let until = action.lease_expires_at.map_or(until, |present| present.max(until));", "",
     "renew: never shortens"),
    ("policy.rs", "Some(lease) if lease > self.max_lease =>", "Some(lease) if lease > 2 * self.max_lease =>",
     "renew: up to max_lease"),
    # Dispatch, gate by gate.
    ("attempt.rs", "if action.state != State::Started || standing != Standing::Current {",
     "if action.state != State::Started {", "dispatch: only by the present attempt"),
    ("attempt.rs", "    if action.dispatched_at.is_some() {\n        return too_late", "    if false {\n        return too_late",
     "dispatch: once"),
    ("attempt.rs", "    if !action.lease_alive(now) {", "    if false {", "dispatch: within the lease"),
    ("attempt.rs", "    if let Some(message) = not_approved {", "    if let (Some(message), true) = (not_approved, false) {",
     "dispatch: approval valid and not withdrawn"),
    ("attempt.rs", "    if action.flags.discrepancy {\n        return Err(discrepancy());", "    if false {\n        return Err(discrepancy());",
     "dispatch: no open discrepancy"),
    ("attempt.rs", "    if is_held {", "    if false {", "dispatch: not held"),
    ("attempt.rs", "let flags = Flags { ever_dispatched: true, ..action.flags };", "let flags = action.flags;",
     "dispatch: stays on record"),
    # Evidence and reconciliation.
    ("reconcile.rs", "if evidence.caller.standing(action) == Standing::Stranger {", "if false {",
     "evidence: not from a stranger"),
    ("reconcile.rs", "    if action.state == State::Expired {", "    if false {", "evidence: not in a tombstone"),
    ("reconcile.rs", "    if decide.verdict != Verdict::Applied {", "    if false {",
     "decide: what did not happen made nothing"),
    ("reconcile.rs", "State::Committed => positive && differs(action.resource_id.as_deref(), resource),",
     "State::Committed => positive,", "evidence: the same resource is no discrepancy"),
    ("reconcile.rs", "State::Committed => positive && differs(action.resource_id.as_deref(), resource),",
     "State::Committed => false,", "evidence: another resource is a discrepancy"),
    ("reconcile.rs", "State::Unknown | State::Expired => false,", "State::Expired => false,",
     "evidence: no discrepancy in unknown"),
    ("reconcile.rs", "        _ => positive,\n", "        _ => false,\n", "evidence: a discrepancy in every other state"),
    ("reconcile.rs", "positive_evidence: action.flags.positive_evidence || (positive && !action.state.is_terminal()),",
     "", "evidence: kept"),
    ("reconcile.rs", "ever_dispatched: action.flags.ever_dispatched || positive,", "",
     "evidence: counts as the mark of a dispatch"),
    ("reconcile.rs", """    if action.flags.positive_evidence {
        return Step""", """    if false {
        return Step""", "not_applied: shut out by positive evidence"),
    ("reconcile.rs", "    if now < settled_at {", "    if false {", "not_applied: settle delay"),
    ("reconcile.rs", "    if now < settled_at {", "    if now <= settled_at {", "not_applied: settle delay (boundary)"),
    ("reconcile.rs", "    if action.fence < settled_at {", "    if false {", "not_applied: from a probe that began in time"),
    ("reconcile.rs", "    if action.fence < settled_at {", "    if action.fence <= settled_at {",
     "not_applied: from a probe that began in time (boundary)"),
    ("reconcile.rs", "apart.filter(|counts_at| now < *counts_at)", "apart.filter(|_| false)",
     "not_applied: probe interval"),
    ("reconcile.rs", "apart.filter(|counts_at| now < *counts_at)", "apart.filter(|counts_at| now <= *counts_at)",
     "not_applied: probe interval (boundary)"),
    ("reconcile.rs", "    if probes < granted.probes_required {", "    if false {", "not_applied: probes required"),
    ("reconcile.rs", "    if probes < granted.probes_required {", "    if probes <= granted.probes_required {",
     "not_applied: probes required (boundary)"),
    ("reconcile.rs", "action.reconcile_lease_expires_at.is_none() && !resolve.finding.is_positive()", "false",
     "resolve: one reconciling attempt is one probe"),
    ("reconcile.rs", "action.reconcile_lease_expires_at.is_none() && !resolve.finding.is_positive()",
     "action.reconcile_lease_expires_at.is_none()", "resolve: found after all is news"),
    ("reconcile.rs", "State::Retryable | State::Failed | State::Rejected if resolve.finding == Finding::NotApplied => {",
     "State::Retryable | State::Failed | State::Rejected if false => {", "resolve: repeats its answer"),
    ("reconcile.rs", "let attempts_left = action.counted_attempts() < policies.current.max_attempts;",
     "let attempts_left = action.counted_attempts() <= policies.current.max_attempts;",
     "not_applied: attempts left (boundary)"),
    ("reconcile.rs", "    if attempts_left && repeats_after_disproof(policies) {", "    if attempts_left {",
     "not_applied: the type allows the same key"),
    ("reconcile.rs", "Action { flags: closed(action.flags), probes,", "Action { probes,",
     "not_applied: a disproof closes the outcome"),
    ("reconcile.rs", "    if standing != Standing::Reconciler {", "    if standing == Standing::Stranger {",
     "resolve: only the present reconciling attempt"),
    ("reconcile.rs", "next.flags.needs_compensation |= partially;", "", "partially_applied: needs compensation"),
    ("reconcile.rs", "Finding::Ambiguous => Step::to(escalated(action),", "Finding::Ambiguous => Step::to(action.clone(),",
     "ambiguous: a person has to look"),
    ("reconcile.rs", "probe_backoff(action, policies.granted, resolve.random)", "0", "inconclusive: back-off"),
    ("reconcile.rs", "    if action.state != State::Unknown {\n        return Err(refused(action, Standing::Current, \"escalated\"))",
     "    if false {\n        return Err(refused(action, Standing::Current, \"escalated\"))", "escalate: only from unknown"),
    # People.
    ("reconcile.rs", "if !action.undecided() && action.retention_over(now) || action.state == State::Expired {",
     "if false {", "decide: not from expired"),
    ("reconcile.rs", "if !action.undecided() && action.retention_over(now) || action.state == State::Expired {",
     "if action.state == State::Expired {", "decide: expiry is judged at read time"),
    ("reconcile.rs", "    base.flags.discrepancy = false;\n", "", "decide: closes a discrepancy"),
    ("reconcile.rs", "    base.flags.positive_evidence = false;\n", "", "decide: settles positive evidence"),
    ("reconcile.rs", "_ => anew(&base, policies, now),", "_ => again(&base, now),", "decide: to retry is no approval"),
    ("reconcile.rs", "next.forgiven = action.attempt;", "", "retry and reopen give max_attempts anew"),
    ("approval.rs", "if approve.fingerprint != action.fingerprint {", "if false {", "approve: bound to the fingerprint"),
    ("approval.rs", "if approve.policy_version.is_some_and(|version| version != current.version) {", "if false {",
     "approve: bound to the policy version"),
    ("approval.rs", "    if same_person(current.distinct_approver, approve.proposer, approve.approver) {", "    if false {",
     "approve: two people"),
    ("approval.rs", "else { return distinct != Distinct::None };", "else { return false };",
     "approve: who is not on record is not apart"),
    ("approval.rs", "proposer.role == approver.role || proposer.session_role", "proposer.role == approver.role && proposer.session_role",
     "approve: two roles and two logins"),
    ("approval.rs", "            _ => true,\n", "            _ => false,\n", "approve: by name, two names"),
    ("approval.rs", "        approval_policy_version: Some(current.version),\n", "        approval_policy_version: action.approval_policy_version,\n",
     "approve: a renewal is for the present policy"),
    ("approval.rs", "if action.flags.ever_dispatched { State::Failed } else { State::Rejected }", "State::Failed",
     "never again: rejected where nothing was ever sent"),
    ("approval.rs", "let lapsed = action.approval_expires_at.is_some_and(|lapses| lapses <= now);",
     "let lapsed = action.approval_expires_at.is_some_and(|lapses| lapses < now);", "approve: not lapsed (boundary)"),
    ("approval.rs", "if action.flags.withdrawn || !(open || renewable) {", "if !(open || renewable) {",
     "approve: not withdrawn"),
    ("approval.rs", "matches!(action.state, State::Retryable | State::Unknown);", "false;",
     "approve: renewed while retryable or unknown"),
    ("approval.rs", "    if valid <= 0 {", "    if valid < 0 {", "approve: for some time"),
    ("approval.rs", "State::Started | State::Unknown if ever_dispatched(action, policies.granted) => {",
     "State::Started | State::Unknown if false => {", "withdraw: too late after dispatch"),
    ("approval.rs", "        State::Started => Ok(Step::to(withdrawn, Answer::Stopped)",
     "        State::Started => Ok(Step::to(action.clone(), Answer::Stopped)", "withdraw: no later dispatch passes"),
    ("approval.rs", "_ if action.flags.discrepancy => Ok(", "_ if false => Ok(", "withdraw: does not end a dispute"),
    ("approval.rs", "    refuse_discrepancy(action)?;\n", "", "reopen: refused while a discrepancy is open"),
    ("approval.rs", "if !matches!(action.state_at(now), State::Failed | State::Rejected) {",
     "if !matches!(action.state, State::Failed | State::Rejected) {", "reopen: not once retention is over"),
    ("approval.rs", "    if policies.current.requires_approval {\n        next.state", "    if false {\n        next.state",
     "reopen: proposed where the type needs approval"),
    ("approval.rs", "    next.flags.withdrawn = false;\n", "", "reopen: forgets the withdrawal"),
    # Time alone.
    ("expiry.rs", "State::Started if !action.lease_alive(now) => {", "State::Started if false => {",
     "visit: started, lease over: unknown"),
    ("expiry.rs", "State::Proposed | State::Approved if lapsed(action, now) => {", "State::Proposed | State::Approved if false => {",
     "visit: proposed, approved, lapsed: rejected"),
    ("expiry.rs", "!action.lease_alive(now) && action.flags.withdrawn && !ever_dispatched(action, granted) =>", "false =>",
     "visit: withdrawn before the gate: rejected"),
    ("expiry.rs", "State::Unknown if action.needs_review(now) && !action.flags.escalated => {",
     "State::Unknown if false => {", "visit: unknown past its deadline: escalated"),
    ("expiry.rs", "State::Expired if action.retention_over(now) =>", "State::Expired =>",
     "visit: a tombstone stays for its time"),
    ("expiry.rs", "State::Committed | State::Failed | State::Rejected if action.retention_over(now) => {",
     "State::Committed | State::Failed | State::Rejected => {", "visit: kept for its retention"),
    ("expiry.rs", "let retention_end = action.expires_at.unwrap_or(now);", "let retention_end = now;",
     "visit: a tombstone's time begins when retention ended"),
    ("expiry.rs", "                resource_id: None,\n", "", "visit: scrubs the resource"),
    ("expiry.rs", "action.ttl.map_or(granted.ttl, |ttl| ttl.max(granted.ttl))", "granted.ttl",
     "retention: as long as a call asked for"),
    ("expiry.rs", "        lease_expires_at: None,\n", "", "an ended action has no lease"),
    ("expiry.rs", "if action.lease_expires_at == Some(action.visit_at) => None,", "=> None,",
     "open: a renewed lease is followed"),
    ("expiry.rs", "if action.lease_expires_at == Some(action.visit_at) => None,",
     "if action.lease_expires_at <= Some(action.visit_at) => None,", "open: a lease that ends before the visit is followed"),
    ("expiry.rs", "(visited && !in_time)", "(visited && false)", "open: retention that no cursor meets is noted"),
    ("expiry.rs", "due_at <= passes && passes", "passes", "open: retention longer than the cursor waits is noted"),
    # Messages that carry an action, and messages themselves.
    ("carry.rs", "if action.state.is_terminal() || policies.current.effect == Effect::Local {",
     "if action.state.is_terminal() {", "message: of a local effect it only tells"),
    ("carry.rs", "if action.state.is_terminal() || policies.current.effect == Effect::Local {",
     "if policies.current.effect == Effect::Local {", "message: of what has ended it only tells"),
    ("carry.rs", "    if action.flags.carried {\n        return Err", "    if false {\n        return Err",
     "message: two cannot carry one action"),
    ("carry.rs", "(State::Started, Some(attempt_id)) if here =>", "(State::Started, Some(attempt_id)) =>",
     "message: it does not take over another transaction's attempt"),
    ("carry.rs", "    next.flags = Flags { carried: !next.state.is_terminal(), ..next.flags };", "", "message: it carries the action"),
    ("carry.rs", "let flags = Flags { carried: false, ..action.flags };", "let flags = action.flags;",
     "message: gone, it lets the action go"),
    ("expiry.rs", "State::Retryable if action.flags.carried => None,", "State::Retryable if false => None,",
     "message: a carried action is in no queue"),
    ("expiry.rs", "escalated: false, carried: false,", "escalated: false,", "message: an ended action is not carried"),
    ("outbox.rs", "is_some_and(|end| now < end);", "is_some_and(|end| now <= end);", "message: held until its lease ends"),
    ("outbox.rs", "match message.delivered || message.dead || held {", "match message.delivered || held {",
     "message: a dead letter is not claimed"),
    ("outbox.rs", "false if message.attempts >= max_attempts => Claim::Bury,", "false if false => Claim::Bury,",
     "message: never more than max attempts"),
    ("outbox.rs", "    if message.attempts >= max_attempts {\n        return Failed::Dead;",
     "    if false {\n        return Failed::Dead;", "message: the last failure makes a dead letter"),
    ("outbox.rs", ".max(SHORTEST_REST);", ";", "message: a failure always rests"),
    ("outbox.rs", "true if message.delivered => Standing::Repeated,", "true if false => Standing::Repeated,",
     "message: a report told twice is a repeat"),
    ("outbox.rs", "Decision::Replay => Carried::Done,", "Decision::Replay => Carried::Dead,",
     "message: done when its action is committed"),
    ("outbox.rs", "    max / 2 + if", "    max + if", "message: failing ones get at most half of a claim"),
    ("inbox.rs", "if stored != given =>", "if false =>", "message: another payload under one id is a conflict"),
]


def workspace(where: pathlib.Path) -> pathlib.Path:
    """A copy of everything that cargo reads for `-p idem_rules`; the root package is there but not built."""
    copy = where / "workspace"
    shutil.copytree(ROOT / "crates", copy / "crates", ignore=shutil.ignore_patterns("target"))
    shutil.copytree(ROOT / "src", copy / "src")
    for name in ("Cargo.toml", "Cargo.lock"):
        shutil.copy(ROOT / name, copy / name)
    return copy


def cargo(copy: pathlib.Path, target: pathlib.Path, *words: str) -> subprocess.CompletedProcess:
    """Runs cargo in the copy. A rule that never ends must not hold up the others, so there is a limit."""
    command = ["cargo", "test", "--quiet", "--locked", "--package", "idem_rules", "--target-dir", str(target)]
    # Nobody debugs a mutant; without the information it links in half the time.
    quick = {**os.environ, "CARGO_PROFILE_DEV_DEBUG": "0", "RUST_BACKTRACE": "0"}
    return subprocess.run(
        [*command, *words], cwd=copy, env=quick, capture_output=True, text=True, timeout=600, check=False
    )


def run(copy: pathlib.Path, target: pathlib.Path) -> tuple[str, str]:
    """killed, survived or not built; and what cargo said last."""
    for tests in TESTS:
        for words in ([*tests, "--no-run"], tests):
            result = cargo(copy, target, *words)
            if result.returncode != 0:
                fate = "not built" if "--no-run" in words else "killed"
                return fate, result.stdout + result.stderr
    return "survived", ""


def judge(copy: pathlib.Path, target: pathlib.Path, mutant: tuple) -> tuple[str, str]:
    """killed, survived, not built, timed out or stale; and what cargo said last. The source is as it was afterwards."""
    file, old, new, _ = mutant
    path = copy / RULES / file
    source = path.read_text()
    if source.count(old) != 1:
        return "stale", ""
    path.write_text(source.replace(old, new))
    try:
        return run(copy, target)
    except subprocess.TimeoutExpired:
        # A slow machine looks the same, so it is not counted as noticed.
        return "timed out", ""
    finally:
        path.write_text(source)


def main() -> int:
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    mutants = [mutant for mutant in MUTANTS if wanted in mutant[3]]
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pg_idem_mutants_") as place:
        copy, target = workspace(pathlib.Path(place)), pathlib.Path(place) / "target"
        fate, said = run(copy, target)
        if fate != "survived":
            print(f"{said}\nwithout any mutant the rules do not pass their tests")
            return 1
        fates = []
        for mutant in mutants:
            fate, said = judge(copy, target, mutant)
            fates.append((fate, said, mutant))
            print(f"{fate:9}  {mutant[0]:13} {mutant[3]}", flush=True)
    counts = {fate: sum(1 for found, _, _ in fates if found == fate) for fate in ("killed", "survived", "not built", "timed out", "stale")}
    took = time.monotonic() - begun
    print(f"\n{len(mutants)} mutants in {took:.0f} s: " + ", ".join(f"{n} {fate}" for fate, n in counts.items()))
    for fate, said, (file, old, new, label) in fates:
        if fate != "killed":
            print(f"\n{fate}: {label} ({file})\n- {old}\n+ {new}\n{said}")
    return 0 if mutants and counts["killed"] == len(mutants) else 1


if __name__ == "__main__":
    sys.exit(main())
