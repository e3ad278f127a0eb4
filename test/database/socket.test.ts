/** The sockets of connections, with and without TLS: on real servers and certificates, and on impostors. */

import { execFileSync } from 'node:child_process';
import { generateKeyPairSync } from 'node:crypto';
import { chmodSync, copyFileSync, mkdtempSync, truncateSync, writeFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { readConfig } from '../../src/config/config.js';
import { type Database, withConnection } from '../../src/database/connection.js';
import { UserError } from '../../src/userError.js';
import { hasOpenssl, makeAuthority } from '../support/certificates.js';
import { runOn } from '../support/command.js';
import { inTransaction, openDatabase, usePool } from '../support/database.js';
import { openImpostor, respondWith } from '../support/impostor.js';
import { type PostgresServer, startPostgres } from '../support/postgresServer.js';
import { until } from '../support/until.js';

/** The names in the certificates of the servers with TLS. */
const NAMES = { ip: 'IP:127.0.0.1', name: 'DNS:localhost' } as const;
type Server = keyof typeof NAMES | 'plain';

describe.skipIf(!hasOpenssl)('TLS to PostgreSQL', () => {
  const folder = mkdtempSync(join(tmpdir(), 'branded-phone-numbers-tls-'));
  const authority = makeAuthority(join(folder, 'own'));
  const other = makeAuthority(join(folder, 'other'));
  const [ca, otherCa] = [authority.file('ca.pem'), other.file('ca.pem')];
  const servers = {} as Record<keyof typeof NAMES, PostgresServer>;

  beforeAll(async () => {
    for (const [name, names] of Object.entries(NAMES)) authority.issue(name, '127.0.0.1', names);
    authority.issue('client', 'a client');
    writeFileSync(join(folder, 'nonsense.pem'), 'nonsense');
    writeFileSync(join(folder, 'empty.pem'), '');
    const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const passphrase = { cipher: 'aes-256-cbc', passphrase: 'secret' };
    writeFileSync(join(folder, 'locked.key'), privateKey.export({ type: 'pkcs8', format: 'pem', ...passphrase }));
    writeFileSync(join(folder, 'binary.key'), privateKey.export({ type: 'pkcs8', format: 'der' }));
    writeFileSync(join(folder, 'pg_hba.conf'), 'hostssl all encrypted all trust\nhost all postgres all trust\n');
    chmodSync(folder, 0o755);
    authority.own(...Object.keys(NAMES));
    const shared = { ssl: 'on', ssl_ca_file: ca, hba_file: join(folder, 'pg_hba.conf') };
    const starting = (Object.keys(NAMES) as (keyof typeof NAMES)[]).map(async (name) => {
      const [ssl_cert_file, ssl_key_file] = [authority.file(`${name}.pem`), authority.file(`${name}.key`)];
      servers[name] = await startPostgres({ ...shared, ssl_cert_file, ssl_key_file });
    });
    await Promise.all(starting);
  });
  afterAll(async () => {
    await Promise.all(Object.values(servers).map((server) => server.remove()));
  });

  const urlOf = (server: Server, host: string, query: string) =>
    (server === 'plain' ? inject('postgresUrl') : servers[server].url).replace('127.0.0.1', host) +
    `?${query}`
      .replaceAll('CA', ca)
      .replaceAll('OTHER', otherCa)
      .replace('FOLDER', folder)
      .replaceAll('OWN', authority.file('.'));

  /** Returns the name in the client certificate that the server saw, 'TLS' without a certificate, or 'no TLS'. */
  async function connect(server: Server, host: string, query: string): Promise<string> {
    const database = usePool(readConfig({ DATABASE_URL: urlOf(server, host, query) }).DATABASE_URL as string);
    return inTransaction(database.url, 'READ COMMITTED', async (sql) => {
      const [row] = await sql`SELECT ssl, client_dn FROM pg_stat_ssl WHERE pid = pg_backend_pid()`;
      return row?.ssl ? (row.client_dn ?? 'TLS') : 'no TLS';
    });
  }

  it.each([
    ['ip', '127.0.0.1', '', 'no TLS'],
    ['ip', '127.0.0.1', 'sslmode=disable', 'no TLS'],
    ['ip', '127.0.0.1', 'sslmode=prefer', 'TLS'],
    ['plain', '127.0.0.1', 'sslmode=prefer', 'no TLS'],
    ['name', '127.0.0.1', 'sslmode=require', 'TLS'],
    ['name', '127.0.0.1', 'sslmode=require&sslrootcert=CA', 'TLS'],
    ['name', '127.0.0.1', 'sslmode=verify-ca&sslrootcert=CA', 'TLS'],
    ['ip', '127.0.0.1', 'sslmode=verify-full&sslrootcert=CA', 'TLS'],
    ['name', 'localhost', 'sslmode=verify-full&sslrootcert=CA', 'TLS'],
    ['ip', '127.0.0.1', 'sslmode=require&sslcert=OWN/client.pem&sslkey=OWN/client.key', '/CN=a client'],
  ] as const)('connects to the server "%s" at %s with "%s": %s', async (server, host, query, expected) => {
    expect(await connect(server, host, query)).toBe(expected);
  });

  it.each([
    ['name', '127.0.0.1', 'sslmode=verify-full&sslrootcert=CA', /does not match.*: IP: 127\.0\.0\.1 is not/],
    ['ip', 'localhost', 'sslmode=verify-full&sslrootcert=CA', /does not match.*: Host: localhost\. is not/],
    ['ip', '127.0.0.1', 'sslmode=verify-full&sslrootcert=OTHER', /not trusted; add sslrootcert/],
    ['ip', '127.0.0.1', 'sslmode=verify-ca&sslrootcert=OTHER', /not trusted; add sslrootcert/],
    ['ip', '127.0.0.1', 'sslmode=require&sslrootcert=OTHER', /not trusted; add sslrootcert/],
    ['ip', '127.0.0.1', 'sslmode=verify_full', /not trusted; add sslrootcert/],
    ['ip', '127.0.0.1', 'sslmode=verify-full', /not trusted; add sslrootcert/],
    ['plain', '127.0.0.1', 'sslmode=require', /PostgreSQL at .* does not support TLS, but sslmode in .* requires it/],
  ] as const)('rejects the server "%s" at %s with "%s"', async (server, host, query, reason) => {
    const { code, stderr } = await runOn(urlOf(server, host, query), ['migrate']);
    expect([code, stderr]).toEqual([1, expect.stringMatching(reason)]);
    expect(stderr.trim().split('\n')).toHaveLength(1);
  });

  it('keeps an idle connection that is used at once after a stall of this process', async () => {
    const database = usePool(urlOf('plain', '127.0.0.1', 'sslmode=disable'), { statementTimeout: 100 });
    const pid = async () =>
      (await database.connection.run(({ $client }) => $client`SELECT pg_backend_pid() AS pid`))[0]?.pid;
    const before = await pid();
    // The time limit and this timer both end during the stall.
    const used = sleep(650).then(pid);
    await sleep(400);
    for (const end = performance.now() + 400; performance.now() < end; );
    expect(await used).toBe(before);
  });

  it('keeps a connection whose first response arrived while this process was too busy to read it', async () => {
    const database = usePool(urlOf('ip', '127.0.0.1', 'sslmode=require'), { statementTimeout: 2000 });
    const pid = async (seconds: number) => {
      const select = ({ $client: sql }: Database) => sql`SELECT pg_backend_pid() AS pid, pg_sleep(${seconds})`;
      return (await database.connection.run(select))[0]?.pid;
    };
    const before = await pid(0);
    // The second response arrives after the stall.
    const responding = [pid(1), pid(1.9)];
    await sleep(50);
    for (const end = performance.now() + 2600; performance.now() < end; );
    expect(await Promise.all(responding)).toEqual([before, before]);
  });

  it('is opened by a service although a certificate file is only half written since its start', async () => {
    const names = { sslrootcert: ca, sslcert: authority.file('client.pem'), sslkey: authority.file('client.key') };
    for (const changed of ['sslrootcert', 'sslcert', 'sslkey'] as const) {
      const copies = mkdtempSync(join(folder, 'copies-'));
      const query = new URLSearchParams({ sslmode: 'verify-full' });
      for (const [name, file] of Object.entries(names)) {
        copyFileSync(file, join(copies, name));
        query.set(name, join(copies, name));
      }
      const { DATABASE_URL } = readConfig({ DATABASE_URL: `${servers.ip.url}?${query}` });
      truncateSync(join(copies, changed), 100);
      await withConnection(DATABASE_URL as string, (connection) => connection.open());
    }
  });

  it('is advised by a command if the server requires it', async () => {
    const url = servers.ip.url.replace('postgres@', 'encrypted@');
    expect((await runOn(url, ['migrate'])).stderr).toMatch(
      /^no pg_hba\.conf entry .*, no encryption: add sslmode=require to DATABASE_URL/,
    );
    expect((await runOn(`${url}?sslmode=require`, ['migrate'])).stderr).toBe('role "encrypted" does not exist\n');
  });

  it.each([
    ['sslmode=verify-full&sslrootcert=/none.pem', /certificates that can't be used: sslrootcert: ENOENT: no such file/],
    ['sslmode=verify-full&sslrootcert=OWN/client.key', /sslrootcert must be a certificate in PEM form/],
    ['sslmode=require&sslcert=FOLDER/nonsense.pem&sslkey=OWN/client.key', /sslcert must be a certificate in PEM form/],
    ['sslmode=require&sslcert=OWN/client.pem&sslkey=FOLDER/locked.key', /sslkey must be .*, without a passphrase/],
    ['sslmode=require&sslcert=OWN/client.pem&sslkey=FOLDER/binary.key', /sslkey must be a private key in PEM form/],
    ['sslmode=require&sslcert=OWN/ip.pem&sslkey=OWN/client.key', /certificates that can't be used/],
    // Node would trust its own authorities instead.
    ['sslmode=verify-full&sslrootcert=FOLDER/empty.pem', /sslrootcert must be a certificate in PEM form/],
    ['sslmode=verify-full&sslrootcert=', /sslrootcert must be a certificate in PEM form/],
  ])('needs certificate files that can be used: rejects %s', (query, reason) => {
    const read = () => readConfig({ DATABASE_URL: urlOf('ip', '127.0.0.1', query) });
    expect(read).toThrow(UserError);
    expect(read).toThrow(reason);
  });
});

it.each([
  ['closes every connection', (client: Socket) => client.destroy(), 'disable', 'closed the connection'],
  ['closes every connection before TLS', (client: Socket) => client.destroy(), 'prefer', 'closed the connection'],
  ['does not support TLS', respondWith('N'), 'require', 'does not support TLS'],
  ['responds to the request for TLS with an error', respondWith('Eno process\n\0'), 'prefer', 'no process'],
])('a connection is opened once and left closed if the host %s', async (...row) => {
  const [, serve, sslmode, reason] = row;
  const impostor = await openImpostor(0, serve);
  const database = openDatabase(`postgres://postgres@127.0.0.1:${impostor.port}/x?sslmode=${sslmode}`);
  const select = () => database.$client`SELECT 1`.then(String, ({ message }: Error) => message);
  expect(await select()).toContain(reason);
  expect(await select()).toContain('CONNECTION_ENDED');
  // Without closeDatabase: the connection has ended its driver.
  await until(() => impostor.connections() === 0, 'it is closed');
  impostor.close();
  expect(impostor.accepted()).toBe(1);
});

it('a connection is a failed attempt, and nothing worse, while no file descriptor is free', () => {
  const program = `
    const [{ Connection }, { failureOf }, { run }, { openSync }] = await Promise.all(
      ['dist/src/database/connection.js', 'dist/src/database/errors.js', 'dist/src/operator/embeddedPostgres/programs.js', 'node:fs']
        .map((name) => import(name.includes(':') ? name : process.cwd() + '/' + name)));
    const codes = [];
    process.on('uncaughtException', ({ message }) => codes.push(message));
    try { for (;;) openSync('/dev/null'); } catch {}
    const parameters = ['sslmode=disable', 'sslmode=prefer', 'sslmode=require', 'sslmode=require&sslnegotiation=direct'];
    for (const url of [
      ...parameters.map((parameter) => 'postgres://someone@127.0.0.1:1/some?' + parameter),
      ...parameters.map((parameter) => 'postgres://someone@localhost:1/some?' + parameter),
      'postgres://someone@/some?host=/tmp',
    ]) {
      const connection = new Connection(url);
      codes.push(await connection.open().then(() => 'opened', failureOf));
    }
    codes.push(await run({ environment: {} }, '/bin/true', [], '/').catch(({ code }) => code));
    await new Promise((resolve) => setTimeout(resolve, 50));
    process._rawDebug(codes.join());`;
  const shell = `ulimit -n 500; exec "$0" --input-type=module --eval "$1" 2>&1`;
  const output = execFileSync('sh', ['-c', shell, process.execPath, program], { encoding: 'utf8' });
  expect(output.trim()).toBe([...Array(9).fill('unreachable'), 'EMFILE'].join());
});
