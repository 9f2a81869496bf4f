"""What a caller of idem_reserve is told, and what whoever comes by is given."""

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
]
