// Canonical texts by npm's `canonicalize`: documents on standard input, each after a record separator (which no JSON
// text can hold, RFC 7464), their canonical texts on standard output in the same form.
const { readFileSync } = require('node:fs');
const canonicalize = require('canonicalize').default;

const SEPARATOR = '\x1e';
const [, ...documents] = readFileSync(0, 'utf8').split(SEPARATOR);
process.stdout.write(documents.map((text) => SEPARATOR + canonicalize(JSON.parse(text))).join(''));
