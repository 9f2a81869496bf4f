//! What can happen next.

use idem_rules::transition::Verdict;

use crate::setting::Setting;
use crate::world::{Request, World};

/// One step of the story. Workers and reconcilers go by their number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Happening {
    /// Time passes.
    Tick,
    /// A caller asks with a fresh token; true when it can reconcile.
    Ask(bool),
    /// A caller who lost its answer asks with a worker's token.
    AskAgain(usize),
    /// A worker comes to the last gate.
    Dispatch(usize),
    /// A worker sends.
    Send(usize),
    /// A request takes effect.
    Effect(usize),
    /// The provider refuses a request.
    Refusal(usize),
    /// A worker knows that it happened; true when it has a lost commit recorded.
    Commit(usize, bool),
    /// A worker was refused. Whether it may be tried again, and under a new provider key.
    Refused(usize, bool, bool),
    /// A worker has not sent and will not, and says that it failed.
    NotSent(usize),
    /// A worker has not sent and will not, and gives the action back.
    Release(usize),
    /// A worker cannot tell.
    MarkUnknown(usize),
    /// A worker needs more time.
    Renew(usize),
    /// A worker hands over that it happened.
    Evidence(usize),
    /// A reconciler looks at what the provider has.
    Look(usize),
    /// A reconciler tells what it saw.
    Report(usize),
    /// A reconciler can say nothing.
    Inconclusive(usize),
    /// A reconciler finds several things that might be it.
    Ambiguous(usize),
    /// The sweep comes by.
    Visit,
    /// The type's next version comes into force.
    Change,
    /// A person approves.
    Approve,
    /// A person rejects.
    Reject,
    /// A person withdraws.
    Withdraw,
    /// A person asks for a person.
    Escalate,
    /// A person decides.
    Decide(Verdict),
    /// A person reopens.
    Reopen,
}

/// What can happen in `world`. What changes nothing may be among it.
pub fn possible(setting: &Setting, world: &World, out: &mut Vec<Happening>) {
    use Happening::*;
    let cast = setting.cast;
    if world.now < setting.end() {
        out.push(Tick);
    }
    if usize::from(world.books.attempts()) < setting.attempts {
        out.push(Ask(false));
    }
    let Some(row) = &world.action else { return };
    let over = row.state.is_terminal();
    if world.reconcilers.len() < setting.reconcilers {
        out.push(Ask(true));
    }
    out.push(Visit);
    if world.version + 1 < setting.policies.len() {
        out.push(Change);
    }
    for (n, worker) in world.workers.iter().enumerate() {
        let untouched = worker.request == Request::Unsent && !worker.silent;
        if untouched {
            out.extend([Dispatch(n), Send(n), NotSent(n), Release(n)]);
        }
        match worker.request {
            Request::Underway(_) => {
                out.push(Effect(n));
                if cast.refusing {
                    out.push(Refusal(n));
                }
            }
            Request::Answered(true) => {
                out.push(Commit(n, false));
                if cast.witnesses {
                    out.extend([Commit(n, true), Evidence(n)]);
                }
            }
            Request::Answered(false) => {
                out.extend([Refused(n, false, false), Refused(n, true, false), Refused(n, true, true)]);
            }
            Request::Unsent | Request::Lost => {}
        }
        if !worker.silent {
            out.push(MarkUnknown(n));
        }
        if cast.renewing {
            out.push(Renew(n));
        }
        if cast.forgetful && world.workers.len() < setting.attempts {
            out.push(AskAgain(n));
        }
    }
    for (n, reconciler) in world.reconcilers.iter().enumerate() {
        // A look at what is over already shows nothing that a report could change.
        if over && reconciler.seen.is_none() {
            continue;
        }
        out.push(if reconciler.seen.is_none() { Look(n) } else { Report(n) });
        if cast.vague && !reconciler.reported {
            out.extend([Inconclusive(n), Ambiguous(n)]);
        }
    }
    if cast.approver {
        out.extend([Approve, Reject, Withdraw]);
    }
    if cast.operator {
        out.push(Escalate);
    }
    if cast.operator && world.books.persons < setting.decisions {
        out.push(Reopen);
        out.extend([Verdict::Applied, Verdict::NotApplied, Verdict::Retry].map(Decide));
    }
}
