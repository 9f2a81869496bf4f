//! The binding of roles to tenants: `idem_bound`, one row a change, of which the last is in force. Read once a session
//! and again after a change, of it or of any role.
//!
//! Three roles count: the one that called the outermost function, so that SECURITY DEFINER lends no tenant; the one that
//! logged in, so that SET ROLE sheds no binding; and the one whose rights the call has, so that a bound role's functions
//! and triggers do not see with the eyes of whoever runs them. Each is bound by its own bindings and by those of the roles whose
//! privileges it inherits; a superuser is bound by none.

use std::cell::RefCell;
use std::collections::BTreeSet;

use idem_rules::error::{Code, Error, Result};
use pgrx::pg_sys::Datum;

use crate::server::{self, Call, Column, Index, Role, Row, Spec, Table, Type, Values};

const SPEC: Spec = Spec {
    place: 13,
    name: c"idem_bound",
    columns: &[
        Column("role", Type::Role),
        Column("tenant", Type::Text),
        Column("n", Type::Int),
        Column("bound", Type::Bool),
        Column("at", Type::Time),
        Column("by_role", Type::Text),
        Column("by_session_role", Type::Text),
    ],
    indexes: &[Index::unique(c"idem_bound_pkey", &["role", "tenant", "n"])],
};

const ROLE: usize = 0;
const TENANT: usize = 1;
const N: usize = 2;
const BOUND: usize = 3;
const AT: usize = 4;
const BY_ROLE: usize = 5;
const BY_SESSION_ROLE: usize = 6;

/// Tenants in the database's encoding.
type Tenants = BTreeSet<Vec<u8>>;

/// What the tenants that a caller sees depend on, besides the table.
type Caller = (u64, [Role; 3]);

#[derive(Default)]
struct Cache {
    generation: u64,
    /// Bindings in force.
    bindings: BTreeSet<(Role, Vec<u8>)>,
    /// The tenants of the last caller; `None` when it sees all.
    seen: Option<(Caller, Option<Tenants>)>,
}

thread_local! {
    static CACHE: RefCell<Cache> = RefCell::default();
}

/// True when the calling role sees `tenant` (in the database's encoding); `None` asks whether it sees all.
pub fn sees(call: &Call, tenant: Option<&[u8]>) -> Result<bool> {
    server::take_in_changes();
    if CACHE.with_borrow(|cache| cache.generation != server::generation()) {
        load(call)?;
    }
    // Nobody is bound: no role need be looked at.
    if CACHE.with_borrow(|cache| cache.bindings.is_empty()) {
        return Ok(true);
    }
    let caller = (server::role_generation(), [call.user(), server::outer_role(), server::session_role()]);
    let known = CACHE.with_borrow(|cache| cache.seen.as_ref().is_some_and(|(who, _)| *who == caller));
    if !known {
        let tenants = tenants_of(caller);
        CACHE.with_borrow_mut(|cache| cache.seen = Some((caller, tenants)));
    }
    Ok(CACHE.with_borrow(|cache| match (&cache.seen, tenant) {
        (Some((_, Some(tenants))), Some(tenant)) => tenants.contains(tenant),
        (Some((_, Some(_))), None) => false,
        _ => true,
    }))
}

/// The tenants that a caller sees; `None` for all.
fn tenants_of((_, mut roles): Caller) -> Option<Tenants> {
    // Looking a role up can run into the catalog: the cache must not be borrowed meanwhile.
    let bindings = CACHE.with_borrow(|cache| cache.bindings.clone());
    let of = |role| {
        let own = |bound| server::inherits(role, bound);
        let tenants: Tenants =
            bindings.iter().filter(|(bound, _)| own(*bound)).map(|(_, tenant)| tenant.clone()).collect();
        Some(tenants).filter(|tenants| !tenants.is_empty())
    };
    // Mostly it is one role three times.
    roles.sort_unstable();
    roles
        .chunk_by(|one, other| one == other)
        .filter_map(|same| of(same[0]))
        .reduce(|one, other| &one & &other)
}

fn load(call: &Call) -> Result<()> {
    // As for holds: the lock takes in every message sent before, and the table is read as it is now.
    let table = Table::open(call, &SPEC)?;
    let generation = server::generation();
    let mut bindings = BTreeSet::new();
    table.each_now(0, &[], |row| {
        let values = &row.values;
        let binding = (values.role(ROLE), values.raw_text(TENANT).unwrap_or_default().to_vec());
        match values.flag(BOUND) {
            true => bindings.insert(binding),
            false => bindings.remove(&binding),
        };
        Ok(true)
    })?;
    CACHE.set(Cache { generation, bindings, seen: None });
    Ok(())
}

/// The refusal of a tenant that the calling role does not see.
pub fn foreign() -> Error {
    let role = server::outer_role().name();
    Error::new(Code::NotAllowed, "the role is not bound to this tenant")
        .detail(format!(
            "Role \"{role}\", the role that logged in, or the owner of the function or trigger that asks is bound to other tenants."
        ))
        .hint("Use a role of that tenant, or have this one bound to it too with idem_bind_tenant.")
}

/// The refusal of what concerns all tenants, for a role that is bound to some.
pub fn not_for_bound_roles() -> Error {
    Error::new(Code::NotAllowed, "a role that is bound to tenants cannot do what concerns all of them")
        .hint("Use a role without bindings.")
}

/// Writes down that `role` is bound to `tenant` from the COMMIT of this transaction on, or no more. False when it
/// was so already.
pub fn change(call: &Call, role: Role, tenant: &[u8], stored: Datum, bound: bool) -> Result<bool> {
    let table = Table::open(call, &SPEC)?;
    // One change at a time, so that changes of one binding follow one another.
    table.lock_changes();
    let mut last: Option<Row> = None;
    table.each_now(0, &[], |row| {
        if row.values.role(ROLE) == role && row.values.raw_text(TENANT) == Some(tenant) {
            last = Some(row);
        }
        Ok(true)
    })?;
    if last.as_ref().is_some_and(|row| row.values.flag(BOUND)) == bound {
        return Ok(false);
    }
    let mut values = Values::new();
    values.set_role(ROLE, role);
    values.set(TENANT, Some(stored));
    values.set(N, Some(Datum::from(last.map_or(1, |row| row.values.count(N) + 1))));
    values.set_flag(BOUND, bound);
    values.set_time(AT, Some(server::clock()));
    values.set_text(BY_ROLE, Some(&call.recorded_as().name()));
    values.set_text(BY_SESSION_ROLE, Some(&server::session_user_name()));
    table.insert(&values);
    table.invalidate();
    Ok(true)
}
