/** `require_auth=scram-sha-256` keeps the password in DATABASE_URL from a server that does not use SCRAM. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { codeOf, failureOf, reasonOf } from '../../src/database/errors.js';
import { connectTo, useConnection } from '../support/connection.js';
import { usePool } from '../support/database.js';
import { authentication, message, OK, openImpostor, READY, respondWith, SASL } from '../support/impostor.js';
import { type PostgresServer, startPostgres } from '../support/postgresServer.js';

const SECRET = 'not-for-impostors';
const CLEAR_TEXT = authentication(3);

/** Returns the error of a query to an impostor, with the password in its URL, and the bytes that the impostor received. */
async function errorOf(serve: Parameters<typeof openImpostor>[1], parameters = '') {
  const { port, received, close } = await openImpostor(0, serve);
  const database = usePool(`postgres://someone:${SECRET}@127.0.0.1:${port}/some${parameters}`);
  const error = await database.$client`SELECT 1`.catch((reason: unknown) => reason);
  close();
  return { error, received: received() };
}

describe('a password that SASLprep changes', () => {
  let server: PostgresServer;
  beforeAll(async () => {
    server = await startPostgres();
    const rules = join(server.data, 'pg_hba.conf');
    writeFileSync(rules, `host all prepared 127.0.0.1/32 scram-sha-256\n${readFileSync(rules)}`);
    const owner = connectTo(server.url);
    await owner`CREATE ROLE prepared LOGIN`;
    await owner`SELECT pg_reload_conf()`;
    await owner.end();
  });
  afterAll(() => server?.remove());

  it.each([
    ['compatibility characters', 'x™y½ﬁ１'],
    ['spaces', 'a\u00a0b\u1680c\u200bd'],
    ['invisible characters', 'a\u00adb\u2060❤\ufe0f'],
    ['decomposed letters', 'e\u0301'],
    ['forbidden characters, so that PostgreSQL uses it unchanged', '™\u202e\u00a0'],
    ['emoji, so that PostgreSQL uses it unchanged', '😀\ufe0fﬁ'],
    ['only invisible characters', '\u00ad'],
  ])('is accepted: %s', async (_what, password) => {
    await useConnection(server.url).unsafe(`ALTER ROLE prepared PASSWORD '${password}'`);
    const url = Object.assign(new URL(`${server.url}?require_auth=scram-sha-256`), { username: 'prepared', password });
    expect(await usePool(url.href).$client`SELECT current_user::text AS name`).toEqual([{ name: 'prepared' }]);
  });
});

describe('a login', () => {
  // Each ended the process, was an error of this program, or was found only at the time limit.
  it.each([
    ['an authentication request without a kind', ['R\0\0\0\x04']],
    ['a length of 0', ['R\0\0\0\0']],
    ['an unknown authentication request', [authentication(6)]],
    ['a challenge of SCRAM without its parts', [SASL, authentication(11, 'nonsense')]],
    ['a challenge of SCRAM that would take hours', [SASL, authentication(11, 'r=x,s=eA==,i=2147483647')]],
    ['keys that are too short', [OK, message('K', 'short')]],
    ['an error without a code', [message('E', 'nonsense\0')]],
    ['an error whose code is too short', [message('E', 'SFATAL\0C123\0Mnonsense\0\0')]],
    ['the greeting of MySQL', ['K\0\0\0\x0a8.4.3\0\x08\0\0\0salt']],
  ])('fails as if PostgreSQL could not be reached if the server sends %s', async (_what, messages) => {
    const { error } = await errorOf(respondWith(...messages));
    expect([failureOf(error), reasonOf(error)]).toEqual(['unreachable', expect.stringContaining('another program')]);
  });
});

it.each([2, 7, 9])('a login is refused if the server asks for Kerberos, by authentication request %i', async (kind) => {
  const { error } = await errorOf(respondWith(authentication(kind)));
  expect([failureOf(error), reasonOf(error)]).toEqual(['refused', expect.stringContaining('asks for Kerberos')]);
});

it('a login is refused if the server does not prove that it knows the password', async () => {
  const messages = [SASL, authentication(11, 'r=x,s=c2FsdA==,i=1'), authentication(12, 'v=wrong')].values();
  const { error } = await errorOf((client) => client.on('data', () => client.write(messages.next().value ?? '')));
  expect([failureOf(error), reasonOf(error)]).toEqual(['refused', expect.stringContaining('correct signature')]);
});

describe('require_auth=scram-sha-256', () => {
  it.each([
    ['the password in clear text', [CLEAR_TEXT]],
    ['its MD5', [authentication(5, 'salt')]],
    ['no password', [OK]],
    ['no login', [READY]],
    ['SCRAM and then clear text, in one write', [Buffer.concat([SASL, CLEAR_TEXT])]],
    ['clear text, in two writes', [CLEAR_TEXT.subarray(0, 7), CLEAR_TEXT.subarray(7)]],
  ])('closes the connection if the server requests %s', async (_what, requests) => {
    const { error, received } = await errorOf(respondWith(...requests), '?require_auth=scram-sha-256');
    expect([codeOf(error), failureOf(error)]).toEqual(['SCRAM_NOT_OFFERED', 'refused']);
    for (const text of [SECRET, 'md5', 'SELECT']) expect(received).not.toContain(text);
  });
});
