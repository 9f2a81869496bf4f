"""What an extension made, as lines that two databases can be compared by."""

from sessions import rows

MEMBERS = """WITH members AS (
    SELECT d.classid, d.objid FROM pg_depend AS d JOIN pg_extension AS e ON d.refobjid = e.oid
    WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND e.extname = 'pg_idem'),
relations AS (SELECT c.* FROM members JOIN pg_class AS c ON classid = 'pg_class'::regclass AND objid = c.oid),
tables AS (SELECT * FROM relations WHERE relkind = 'r')
"""


def privileges(acl, kind, owner):
    """NULL stands for the default, which a GRANT and its REVOKE write out."""
    return f"(SELECT array_agg(a::text ORDER BY 1) FROM unnest(coalesce({acl}, acldefault('{kind}', {owner}))) AS a)"


PARTS = {
    "member": "SELECT pg_describe_object(classid, objid, 0) FROM members",
    "comment": """SELECT pg_describe_object(m.classid, m.objid, 0), d.objsubid, d.description FROM members AS m
        JOIN pg_description AS d ON (d.classoid, d.objoid) = (m.classid, m.objid)""",
    "function": f"""SELECT pg_get_functiondef(p.oid), {privileges('proacl', 'f', 'proowner')} FROM members
        JOIN pg_proc AS p ON classid = 'pg_proc'::regclass AND objid = p.oid""",
    "relation": f"""SELECT oid::regclass, relkind, relpersistence, relreplident, reloptions, relrowsecurity,
        {privileges('relacl', 'r', 'relowner')} FROM relations""",
    "column": """SELECT a.attrelid::regclass, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
        a.attisdropped, a.attcollation::regcollation, a.attstorage, a.attacl, pg_get_expr(d.adbin, d.adrelid)
        FROM pg_attribute AS a LEFT JOIN pg_attrdef AS d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
        WHERE a.attrelid IN (SELECT oid FROM relations) AND a.attnum > 0""",
    "view": "SELECT oid::regclass, pg_get_viewdef(oid) FROM relations WHERE relkind = 'v'",
    "index": """SELECT i.indexrelid::regclass, pg_get_indexdef(i.indexrelid), obj_description(i.indexrelid, 'pg_class')
        FROM pg_index AS i WHERE i.indrelid IN (SELECT oid FROM tables)""",
    "constraint": """SELECT conrelid::regclass, conname, pg_get_constraintdef(c.oid) FROM pg_constraint AS c
        WHERE conrelid IN (SELECT oid FROM tables)""",
    "trigger": """SELECT pg_get_triggerdef(t.oid), t.tgenabled FROM pg_trigger AS t
        WHERE tgrelid IN (SELECT oid FROM tables) AND NOT tgisinternal""",
    "event trigger": """SELECT t.evtname, t.evtevent, t.evtfoid::regproc, t.evtenabled, t.evttags FROM members
        JOIN pg_event_trigger AS t ON classid = 'pg_event_trigger'::regclass AND objid = t.oid""",
    "dumped": """SELECT c::regclass, condition FROM pg_extension AS e, unnest(extconfig, extcondition) AS t (c, condition)
        WHERE e.extname = 'pg_idem'""",
    "extension": "SELECT extversion, extnamespace::regnamespace, extrelocatable FROM pg_extension WHERE extname = 'pg_idem'",
}


def catalog(conn):
    """Every property of every member, as a sorted list of lines."""
    return sorted(f"{part}: {tuple(row)}" for part, query in PARTS.items() for row in rows(conn, MEMBERS + query))
