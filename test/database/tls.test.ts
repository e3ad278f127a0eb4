/** TLS to PostgreSQL: each parameter of DATABASE_URL has its effect, with real servers and certificates. */
import { spawnSync } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readConfig } from '../../src/config/config.js';
import { closeDatabase, openDatabase } from '../../src/database/connect.js';
import { inTransaction } from '../../src/database/transaction.js';
import { UserError } from '../../src/userError.js';
import { makeAuthority } from '../support/certificates.js';
import { runProgram } from '../support/command.js';
import { type PostgresServer, startPostgres } from '../support/postgresServer.js';

const hasOpenssl = spawnSync('openssl', ['version']).status === 0;
if (!hasOpenssl) console.warn('skipped: TLS to PostgreSQL needs openssl, which is not installed here');

/** The names in the certificates of the servers with TLS. */
const NAMES = { ip: 'IP:127.0.0.1', name: 'DNS:localhost' } as const;
type Server = keyof typeof NAMES | 'plain';

describe.skipIf(!hasOpenssl)('TLS to PostgreSQL', () => {
  const folder = mkdtempSync(join(tmpdir(), 'branded-phone-numbers-tls-'));
  const authority = makeAuthority(join(folder, 'own'));
  const other = makeAuthority(join(folder, 'other'));
  const [ca, otherCa] = [authority.file('ca.pem'), other.file('ca.pem')];
  const servers = {} as Record<Server, PostgresServer>;

  beforeAll(async () => {
    for (const [name, names] of Object.entries(NAMES)) authority.issue(name, '127.0.0.1', names);
    authority.issue('client', 'a client');
    writeFileSync(join(folder, 'nonsense.pem'), 'nonsense');
    writeFileSync(join(folder, 'pg_hba.conf'), 'hostssl all encrypted all trust\nhost all postgres all trust\n');
    chmodSync(folder, 0o755);
    authority.own(...Object.keys(NAMES));
    const start = async (name: Server, settings: Record<string, string>) => {
      servers[name] = await startPostgres(settings);
    };
    const shared = { ssl: 'on', ssl_ca_file: ca, hba_file: join(folder, 'pg_hba.conf') };
    const withTls = (Object.keys(NAMES) as (keyof typeof NAMES)[]).map((name) => {
      const [ssl_cert_file, ssl_key_file] = [authority.file(`${name}.pem`), authority.file(`${name}.key`)];
      return start(name, { ...shared, ssl_cert_file, ssl_key_file });
    });
    await Promise.all([start('plain', {}), ...withTls]);
  });
  afterAll(async () => {
    await Promise.all(Object.values(servers).map((server) => server.remove()));
    rmSync(folder, { recursive: true });
  });

  const urlOf = (server: Server, host: string, query: string) =>
    servers[server].url.replace('127.0.0.1', host) +
    `?${query}`
      .replaceAll('CA', ca)
      .replaceAll('OTHER', otherCa)
      .replace('FOLDER', folder)
      .replaceAll('OWN', authority.file('.'));

  /** Returns the name in the client certificate that the server saw, 'TLS' without a certificate, or 'no TLS'. */
  async function connect(server: Server, host: string, query: string): Promise<string> {
    const database = openDatabase(readConfig({ DATABASE_URL: urlOf(server, host, query) }).DATABASE_URL as string);
    try {
      return await inTransaction(database, 'READ COMMITTED', async (sql) => {
        const [row] = await sql`SELECT ssl, client_dn FROM pg_stat_ssl WHERE pid = pg_backend_pid()`;
        return row?.ssl ? (row.client_dn ?? 'TLS') : 'no TLS';
      });
    } finally {
      await closeDatabase(database, 0);
    }
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
    ['ip', '127.0.0.1', 'sslmode=verify-full&sslrootcert=OTHER', /not trusted .*sslrootcert/],
    ['ip', '127.0.0.1', 'sslmode=verify-ca&sslrootcert=OTHER', /not trusted .*sslrootcert/],
    ['ip', '127.0.0.1', 'sslmode=require&sslrootcert=OTHER', /not trusted .*sslrootcert/],
    ['ip', '127.0.0.1', 'sslmode=verify_full', /not trusted .*sslrootcert/],
    ['ip', '127.0.0.1', 'sslmode=verify-full', /not trusted .*sslrootcert/],
    ['plain', '127.0.0.1', 'sslmode=require', /PostgreSQL at .* does not support TLS, but sslmode in .* requires it/],
  ] as const)('rejects the server "%s" at %s with "%s"', async (server, host, query, reason) => {
    const DATABASE_URL = urlOf(server, host, query);
    const { code, stderr } = await runProgram(['migrate'], '', { environment: { DATABASE_URL } });
    expect([code, stderr]).toEqual([1, expect.stringMatching(reason)]);
    expect(stderr.trim().split('\n')).toHaveLength(1);
  });

  it('rejects statements if the connections are cut while they are sent, and then connects again', async () => {
    const database = openDatabase(urlOf('ip', '127.0.0.1', 'sslmode=require'));
    const select = () => Promise.allSettled(Array.from({ length: 10 }, () => database.$client`SELECT 1`));
    await select();
    const cut = select();
    await new Promise<void>((resolve) => process.nextTick(resolve));
    database.sockets.reconnect();
    const outcomes = (await cut) as PromiseRejectedResult[];
    expect(outcomes.map(({ reason }) => reason?.code)).toEqual(Array(10).fill('CONNECTION_CLOSED'));
    const [first] = await select();
    expect(first?.status).toBe('fulfilled');
    await closeDatabase(database, 0);
  });

  it('is advised by a command if the server requires it', async () => {
    const url = servers.ip.url.replace('postgres@', 'encrypted@');
    const run = (DATABASE_URL: string) => runProgram(['migrate'], '', { environment: { DATABASE_URL } });
    expect((await run(url)).stderr).toMatch(
      /^no pg_hba\.conf entry .*, no encryption: add sslmode=require to DATABASE_URL/,
    );
    expect((await run(`${url}?sslmode=require`)).stderr).toBe('role "encrypted" does not exist\n');
  });

  it.each([
    ['sslmode=verify-full&sslrootcert=/none.pem', /certificates that can't be used: sslrootcert: ENOENT: no such file/],
    ['sslmode=verify-full&sslrootcert=FOLDER/nonsense.pem', /certificates that can't be used/],
    ['sslmode=require&sslcert=FOLDER/nonsense.pem&sslkey=OWN/client.key', /certificates that can't be used/],
    ['sslmode=require&sslcert=OWN/ip.pem&sslkey=OWN/client.key', /certificates that can't be used/],
  ])('needs certificate files that can be used: rejects %s', (query, reason) => {
    const read = () => readConfig({ DATABASE_URL: urlOf('ip', '127.0.0.1', query) });
    expect(read).toThrow(UserError);
    expect(read).toThrow(reason);
  });
});
