// What an application does with node-postgres, on an autocommit connection (the PG* variables say where). Prints one
// JSON object with everything it was told, as the types JavaScript saw. Argument: the document.
const { randomUUID } = require('node:crypto');
const { setTimeout } = require('node:timers/promises');
const { Client } = require('pg');

const text = process.argv[2];
const document = JSON.parse(text);

const client = new Client();
const one = async (sql, ...values) => (await client.query(sql, values)).rows[0];
const refused = async (sql, ...values) => {
  try {
    await client.query(sql, values);
    return null;
  } catch (error) {
    return { code: error.code, hint: error.hint };
  }
};
const fingerprint = async (value, cast = '') =>
  (await one(`SELECT encode(idem_fingerprint($1${cast}), 'hex') AS digest`, value)).digest;

async function reserveAndCommit() {
  const reserve = 'SELECT * FROM idem_reserve(key => $1, request => $2)';
  const granted = await one(reserve, 'node:1', document);
  const types = Object.fromEntries(Object.entries(granted).map(
    ([name, value]) => [name, value instanceof Date ? 'Date' : value === null ? 'null' : typeof value]));
  const commit = 'SELECT idem_commit($1, $2, response => $3, resource_id => $4) AS outcome';
  const response = { refund: 'rf_1', list: [1, 2.5] };
  const committed = await one(commit, granted.action_id, granted.attempt_id, response, 'rf_1');
  const replay = await one(reserve, 'node:1', JSON.stringify(document));
  const conflict = await one(reserve, 'node:1', { ...document, more: 1 });
  return { granted, types, committed, replay, conflict };
}

async function errors() {
  const commit = 'SELECT idem_commit($1, $2)';
  const lookup = "SELECT * FROM idem_reserve(key => 'node:2', action_type => 'lookup', lease_seconds => 0.01)";
  const lost = await one(lookup);
  await setTimeout(50);
  const owner = await one(lookup);
  const codes = {
    ID002: await refused(commit, lost.action_id, lost.attempt_id),
    ID004: await refused(commit, randomUUID(), owner.attempt_id),
    22023: await refused('SELECT * FROM idem_reserve(key => $1, request => $2)', 'node:3', JSON.stringify(text)),
  };
  await one(commit, owner.action_id, owner.attempt_id);
  codes.ID003 = await refused('SELECT idem_renew($1, $2)', owner.action_id, owner.attempt_id);
  // The connection is as good as before.
  return { codes, after: (await one('SELECT 1 AS one')).one };
}

async function main() {
  await client.connect();
  const fingerprints = {
    object: await fingerprint(document),
    'JSON.stringify': await fingerprint(JSON.stringify(document)),
    'JSON.stringify and a cast': await fingerprint(JSON.stringify(document), '::jsonb'),
    text: (await one("SELECT encode(idem_fingerprint_text($1), 'hex') AS digest", JSON.stringify(document))).digest,
  };
  const arrays = {
    stringified: await fingerprint(JSON.stringify([1, 'a'])),
    bare: await refused('SELECT idem_fingerprint($1)', [1, 'a']),
    emptyBare: await fingerprint([]),
  };
  console.log(JSON.stringify({ fingerprints, arrays, ...await reserveAndCommit(), errors: await errors() }));
  await client.end();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
