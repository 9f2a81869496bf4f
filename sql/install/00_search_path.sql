-- For this script only, and to its end: every name that follows without a schema is PostgreSQL's own.
SET LOCAL search_path TO pg_catalog, pg_temp;
