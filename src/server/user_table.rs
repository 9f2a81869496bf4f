//! Tables that belong to users: finding one, what the caller may do with it, and whether it fits.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::ffi::{CStr, CString};

use idem_rules::error::{Code, Error, Result};
use pgrx::pg_sys;

use super::call::Call;
use super::catalog::mismatch;
use super::query::Relation;

/// What a caller has to be allowed to do with a table.
#[derive(Clone, Copy)]
pub enum Privilege {
    /// Add rows.
    Insert,
    /// Read, change and remove rows.
    Manage,
}

/// Finds the table that `name` means, as regclass does, and checks what the caller may do with it.
///
/// Errors: 42501 for a caller whom policies of the table keep from some of its rows. Raises 42P01, 42501.
pub fn user_table(name: &str, privilege: Privilege) -> Result<Relation> {
    let name =
        CString::new(name).map_err(|_| Error::new(Code::InvalidParameter, "a name has a NUL in it"))?;
    let wanted = match privilege {
        Privilege::Insert => pg_sys::ACL_INSERT,
        Privilege::Manage => pg_sys::ACL_SELECT | pg_sys::ACL_UPDATE | pg_sys::ACL_DELETE,
    };
    // SAFETY: the text is NUL-terminated and copied into PostgreSQL's memory; the look-up raises for a name that means
    // nothing, and the check for a missing privilege. All privileges of `wanted` are asked for together. The lock is
    // that of any statement that writes; taking it lets changes of the table's definition in.
    unsafe {
        let text = pg_sys::cstring_to_text(name.as_ptr());
        let names = pg_sys::textToQualifiedNameList(text);
        let variable = pg_sys::makeRangeVarFromNameList(names);
        let found =
            pg_sys::RangeVarGetRelidExtended(variable, pg_sys::NoLock as i32, 0, None, std::ptr::null_mut());
        let all = pg_sys::AclMaskHow::ACLMASK_ALL;
        let held = pg_sys::pg_class_aclmask(found, pg_sys::GetUserId(), wanted as pg_sys::AclMode, all);
        if held != wanted as pg_sys::AclMode {
            pg_sys::aclcheck_error(
                pg_sys::AclResult::ACLCHECK_NO_PRIV,
                pg_sys::ObjectType::OBJECT_TABLE,
                (*variable).relname,
            );
        }
        pg_sys::LockRelationOid(found, pg_sys::RowExclusiveLock as i32);
        // What follows is done as the owner, past the policies for the caller.
        let policies = pg_sys::check_enable_rls(found, pg_sys::GetUserId(), true);
        if policies == pg_sys::CheckEnableRlsResult::RLS_ENABLED as i32 {
            return Err(Error::new(
                Code::NotAllowed,
                format!("row-level security of {} applies to the role", qualified_name(found)?),
            )
            .detail("The functions work as the table's owner, past the policies that the role is under.")
            .hint("Make an outbox for each group of roles, or use a role that has BYPASSRLS."));
        }
        Ok(found)
    }
}

/// What became of looking at a table without waiting.
pub enum Look {
    /// It can be read until the transaction ends.
    Locked,
    /// Somebody is changing its definition.
    Busy,
    /// It has been dropped.
    Gone,
}

/// Locks `table` for reading, without waiting.
pub fn lock_for_a_look(table: Relation) -> Look {
    // SAFETY: the lock stays until the transaction ends; the name is looked up under it, and is NULL for a table that is
    // not there.
    unsafe {
        match pg_sys::ConditionalLockRelationOid(table, pg_sys::AccessShareLock as i32) {
            false => Look::Busy,
            true if pg_sys::get_rel_name(table).is_null() => Look::Gone,
            true => Look::Locked,
        }
    }
}

/// True when the calling role owns `table`.
pub fn owns(table: Relation) -> bool {
    super::version::owns_table(table)
}

/// What a table of a user's has to have.
pub struct Fit {
    /// The extension's row type whose columns it has.
    pub row_type: &'static CStr,
    /// Columns that are NOT NULL.
    pub not_null: &'static [&'static str],
    /// Columns that have a default or are an identity.
    pub filled: &'static [&'static str],
    /// A column with a unique index of its own.
    pub unique: &'static str,
}

/// How `table` differs from what `fit` asks for; `None` when it does not. Further columns are the user's own business.
///
/// Errors: 42809 for a table on which somebody else than its owner may create triggers, whatever its columns.
pub fn column_difference(call: &Call, table: Relation, fit: &Fit) -> Result<Option<String>> {
    refuse_triggers_of_others(table)?;
    let schema = call.schema()?;
    let mut differences = Vec::new();
    // SAFETY: both relations are open while their descriptors are read, and closed here.
    unsafe {
        let wanted = pg_sys::get_relname_relid(fit.row_type.as_ptr(), schema);
        if wanted == pg_sys::InvalidOid {
            return Err(mismatch());
        }
        let lock = pg_sys::AccessShareLock as i32;
        let (wanted, found) = (pg_sys::relation_open(wanted, lock), pg_sys::relation_open(table, lock));
        let form = (*found).rd_rel;
        if (*form).relkind as u8 != b'r' {
            differences.push("it is not an ordinary table".to_owned());
        } else if (*form).relpersistence as u8 != b'p' {
            differences.push("it is a temporary or unlogged table, which loses messages".to_owned());
        }
        let columns = |relation: pg_sys::Relation| {
            pgrx::PgTupleDesc::from_pg_unchecked((*relation).rd_att)
                .iter()
                .filter(|column| !column.attisdropped)
                .map(|column| (column.name().to_owned(), column.atttypid))
                .collect::<Vec<_>>()
        };
        let have: HashMap<_, _> = columns(found).into_iter().collect();
        for (name, wanted) in columns(wanted) {
            let wanted_word = type_name(wanted);
            match have.get(&name) {
                None => differences.push(format!("column {name} {wanted_word} is missing")),
                Some(found) if *found != wanted => {
                    differences.push(format!("column {name} is {}, not {wanted_word}", type_name(*found)));
                }
                Some(_) => {}
            }
        }
        // A view has none of this, and says so already.
        if (*form).relkind as u8 == b'r' {
            let descriptor = pgrx::PgTupleDesc::from_pg_unchecked((*found).rd_att);
            for column in descriptor.iter().filter(|column| !column.attisdropped) {
                let name = column.name();
                if fit.not_null.contains(&name) && !column.attnotnull {
                    differences.push(format!("column {name} is not NOT NULL"));
                }
                if fit.filled.contains(&name) && !column.atthasdef && column.attidentity == 0 {
                    differences.push(format!("column {name} has no default and is no identity"));
                }
                if name == fit.unique && !is_unique(found, column.attnum) {
                    differences.push(format!("column {name} has no valid unique index of its own"));
                }
            }
        }
        pg_sys::relation_close(found, lock);
        pg_sys::relation_close(wanted, lock);
    }
    Ok((!differences.is_empty()).then(|| differences.join("; ")))
}

/// Refuses a table on which somebody may create triggers who has not its owner's rights anyway: [`super::query::as_owner`] would lend
/// them to him.
fn refuse_triggers_of_others(table: Relation) -> Result<()> {
    let mut others = Vec::new();
    // SAFETY: the relation is open while its owner is read; its row in the catalog, which is there as long as it is
    // locked, while its privileges are. A list of privileges is copied when it is stored packed, and members are as many
    // as aclmembers says.
    unsafe {
        let lock = pg_sys::AccessShareLock as i32;
        let relation = pg_sys::relation_open(table, lock);
        let owner = (*(*relation).rd_rel).relowner;
        let place = pg_sys::SysCacheIdentifier::RELOID as i32;
        let row = pg_sys::SearchSysCache1(place, pg_sys::Datum::from(table));
        if row.is_null() {
            return Err(
                Error::new(Code::UndefinedObject, "the table has been dropped").hint("Look at its name.")
            );
        }
        let mut default = false;
        let column = pg_sys::Anum_pg_class_relacl as pg_sys::AttrNumber;
        let stored = pg_sys::SysCacheGetAttr(place, row, column, &mut default);
        if !default {
            let privileges = pg_sys::pg_detoast_datum(stored.cast_mut_ptr()).cast::<pg_sys::Acl>();
            let mut members = std::ptr::null_mut();
            let count = pg_sys::aclmembers(privileges, &mut members) as usize;
            // PUBLIC is not among the members; it goes by the number that no role has.
            let roles = (0..count).map(|n| *members.add(n)).chain([pg_sys::InvalidOid]);
            let wanted = pg_sys::ACL_TRIGGER as pg_sys::AclMode;
            let any = pg_sys::AclMaskHow::ACLMASK_ANY;
            others.extend(roles.filter(|role| {
                !pg_sys::has_privs_of_role(*role, owner)
                    && pg_sys::aclmask(privileges, *role, owner, wanted, any) != 0
            }));
        }
        pg_sys::ReleaseSysCache(row);
        pg_sys::relation_close(relation, lock);
    }
    if others.is_empty() {
        return Ok(());
    }
    let name = qualified_name(table)?;
    let names = others.into_iter().map(role_name).collect::<Result<Vec<_>>>()?.join(", ");
    Err(Error::new(Code::WrongObject, format!("{name} may get triggers from others than its owner"))
        .detail(format!("TRIGGER is granted to: {names}. Triggers of an outbox run with its owner's rights."))
        .hint(format!(
            "REVOKE TRIGGER ON {name} FROM {names}, and look at the triggers that the table has; \
             default privileges are revoked with ALTER DEFAULT PRIVILEGES."
        )))
}

/// A role's name, quoted; that of no role is PUBLIC.
fn role_name(role: pg_sys::Oid) -> Result<String> {
    if role == pg_sys::InvalidOid {
        return Ok("PUBLIC".to_owned());
    }
    // SAFETY: the look-up returns NULL for a role that has been dropped, else a palloc'd string, as quoting does.
    unsafe {
        let name = pg_sys::GetUserNameFromId(role, true);
        if name.is_null() {
            return Ok(role.to_u32().to_string());
        }
        let quoted = CStr::from_ptr(pg_sys::quote_identifier(name));
        super::values::utf8(quoted.to_bytes(), "a role's name").map(|name| name.into_owned())
    }
}

/// True when `table`, open, has a valid unique index on the column alone, for all rows and checked at once.
unsafe fn is_unique(table: pg_sys::Relation, column: i16) -> bool {
    // SAFETY: as required of the callers; an index is open while it is looked at.
    unsafe { indexes(table).any(|index| with_index(index, |index| is_unique_on(index, column))) }
}

/// True when `index`, open, is unique on the column alone, valid, for all rows and checked at once.
pub(super) unsafe fn is_unique_on(index: pg_sys::Relation, column: i16) -> bool {
    // SAFETY: the descriptor of an open index.
    unsafe {
        let form = (*index).rd_index;
        (*form).indisunique
            && (*form).indisvalid
            && (*form).indimmediate
            && (*form).indnkeyatts == 1
            && (*form).indkey.values.as_slice(1)[0] == column
            && pg_sys::RelationGetIndexPredicate(index).is_null()
    }
}

/// The indexes of a table.
pub(super) unsafe fn indexes(relation: pg_sys::Relation) -> impl Iterator<Item = pg_sys::Oid> {
    // SAFETY: the list is NULL or one of oids.
    unsafe {
        let indexes = pg_sys::RelationGetIndexList(relation);
        let count = if indexes.is_null() { 0 } else { (*indexes).length as usize };
        (0..count).map(move |n| (*(*indexes).elements.add(n)).oid_value)
    }
}

/// What `look` makes of an index, open.
pub(super) unsafe fn with_index<T>(index: pg_sys::Oid, look: impl FnOnce(pg_sys::Relation) -> T) -> T {
    // SAFETY: the index is one of a locked table's.
    unsafe {
        let lock = pg_sys::AccessShareLock as i32;
        let index = pg_sys::index_open(index, lock);
        let seen = look(index);
        pg_sys::index_close(index, lock);
        seen
    }
}

unsafe fn type_name(r#type: pg_sys::Oid) -> String {
    // SAFETY: format_type_be returns a palloc'd string for any oid.
    unsafe { CStr::from_ptr(pg_sys::format_type_be(r#type)) }.to_string_lossy().into_owned()
}

/// The table's name as it stands in a statement: quoted, with its schema.
pub fn qualified_name(table: Relation) -> Result<String> {
    // SAFETY: the look-ups return NULL for what has been dropped, palloc'd strings otherwise.
    unsafe {
        let name = pg_sys::get_rel_name(table);
        let schema = pg_sys::get_namespace_name(pg_sys::get_rel_namespace(table));
        if name.is_null() || schema.is_null() {
            return Err(
                Error::new(Code::UndefinedObject, "the table has been dropped").hint("Look at its name.")
            );
        }
        let quoted = pg_sys::quote_qualified_identifier(schema, name);
        super::values::utf8(CStr::from_ptr(quoted).to_bytes(), "a table's name").map(|name| name.into_owned())
    }
}

thread_local! {
    /// Tables whose definition is followed, and how often it may have changed.
    static FOLLOWED: RefCell<HashMap<pg_sys::Oid, u64>> = RefCell::default();
    static LISTENING: OnceCell<()> = const { OnceCell::new() };
}

/// Rises whenever the definition of `table`, or its name, may have changed.
pub fn version_of(table: Relation) -> u64 {
    LISTENING.with(|listening| {
        listening.get_or_init(|| {
            let schemas = pg_sys::SysCacheIdentifier::NAMESPACEOID as i32;
            // SAFETY: registered once a session; the callbacks touch only this thread's map and cannot raise.
            unsafe {
                pg_sys::CacheRegisterRelcacheCallback(Some(changed), pg_sys::Datum::from(0));
                pg_sys::CacheRegisterSyscacheCallback(schemas, Some(schema_changed), pg_sys::Datum::from(0));
            }
        });
    });
    FOLLOWED.with_borrow_mut(|followed| *followed.entry(table).or_default())
}

unsafe extern "C-unwind" fn changed(_arg: pg_sys::Datum, relation: pg_sys::Oid) {
    FOLLOWED.with_borrow_mut(|followed| {
        for (table, version) in followed.iter_mut() {
            if relation == pg_sys::InvalidOid || relation == *table {
                *version += 1;
            }
        }
    });
}

unsafe extern "C-unwind" fn schema_changed(_arg: pg_sys::Datum, _cache: i32, _hash: u32) {
    FOLLOWED.with_borrow_mut(|followed| followed.values_mut().for_each(|version| *version += 1));
}
