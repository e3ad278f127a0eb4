/** The sockets of a pool, with and without TLS: on real servers and certificates, and on impostors. */

import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { readConfig } from '../../src/config/config.js';
import { closeDatabase, openDatabase } from '../../src/database/connect.js';
import { inTransaction } from '../../src/database/transaction.js';
import { UserError } from '../../src/userError.js';
import { hasOpenssl, makeAuthority } from '../support/certificates.js';
import { runProgram } from '../support/command.js';
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
    rmSync(folder, { recursive: true });
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
    ['ip', '127.0.0.1', 'sslmode=verify-full&sslrootcert=OTHER', /not trusted; add sslrootcert/],
    ['ip', '127.0.0.1', 'sslmode=verify-ca&sslrootcert=OTHER', /not trusted; add sslrootcert/],
    ['ip', '127.0.0.1', 'sslmode=require&sslrootcert=OTHER', /not trusted; add sslrootcert/],
    ['ip', '127.0.0.1', 'sslmode=verify_full', /not trusted; add sslrootcert/],
    ['ip', '127.0.0.1', 'sslmode=verify-full', /not trusted; add sslrootcert/],
    ['plain', '127.0.0.1', 'sslmode=require', /PostgreSQL at .* does not support TLS, but sslmode in .* requires it/],
  ] as const)('rejects the server "%s" at %s with "%s"', async (server, host, query, reason) => {
    const DATABASE_URL = urlOf(server, host, query);
    const { code, stderr } = await runProgram(['migrate'], '', { environment: { DATABASE_URL } });
    expect([code, stderr]).toEqual([1, expect.stringMatching(reason)]);
    expect(stderr.trim().split('\n')).toHaveLength(1);
  });

  it.each([
    ['sent, with sslmode=disable', 'disable', 0, 0],
    ['sent, with sslmode=require', 'require', 0, 0],
    ['running, with sslmode=disable', 'disable', 30, 300],
    ['running, with sslmode=require', 'require', 30, 300],
  ])('rejects statements if the connections are cut while they are %s, and then connects again', async (...row) => {
    const [, sslmode, seconds, ms] = row;
    const database = openDatabase(urlOf('ip', '127.0.0.1', `sslmode=${sslmode}`));
    const select = (duration = 0) =>
      Promise.allSettled(Array.from({ length: 10 }, () => database.$client`SELECT pg_sleep(${duration})`));
    await select();
    const cut = select(seconds);
    await (ms > 0 ? sleep(ms) : new Promise<void>((resolve) => process.nextTick(resolve)));
    database.sockets.reconnect();
    const outcomes = (await cut) as PromiseRejectedResult[];
    expect(outcomes.map(({ reason }) => reason?.code)).toEqual(Array(10).fill('CONNECTION_CLOSED'));
    const [first] = await select();
    expect(first?.status).toBe('fulfilled');
    await closeDatabase(database, 0);
  });

  it('keeps an idle connection that is used at once after a stall of this process', async () => {
    const database = openDatabase(urlOf('plain', '127.0.0.1', 'sslmode=disable'), {
      connections: 1,
      statementTimeout: 100,
    });
    const pid = async () => (await database.sockets.awaited(database.$client`SELECT pg_backend_pid() AS pid`))[0]?.pid;
    const before = await pid();
    // The socket's time limit and this timer both end during the stall.
    const used = sleep(650).then(pid);
    await sleep(400);
    for (const end = performance.now() + 400; performance.now() < end; );
    expect(await used).toBe(before);
    await closeDatabase(database, 0);
  });

  it('keeps a connection whose response arrived while this process was too busy to read it', async () => {
    const database = openDatabase(urlOf('ip', '127.0.0.1', 'sslmode=require'), { statementTimeout: 1000 });
    const pid = async (seconds: number) => {
      const select = database.$client`SELECT pg_backend_pid() AS pid, pg_sleep(${seconds})`;
      return (await database.sockets.awaited(select))[0]?.pid;
    };
    const before = await pid(0);
    const responding = pid(0.3);
    await sleep(50);
    for (const end = performance.now() + 2000; performance.now() < end; );
    expect(await responding).toBe(before);
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

describe('the sockets of a pool', () => {
  async function openPool(serve: Parameters<typeof openImpostor>[1], sslmode: string) {
    const impostor = await openImpostor(0, serve);
    const url = `postgres://postgres@127.0.0.1:${impostor.port}/x?sslmode=${sslmode}`;
    const database = openDatabase(url, { connections: 1 });
    const close = async () => {
      await closeDatabase(database, 0);
      impostor.close();
    };
    return { impostor, select: () => database.$client`SELECT 1`.then(() => {}), close };
  }

  it.each([
    ['closes every connection', (client: Socket) => client.destroy(), 'disable', 'closed the connection'],
    ['does not support TLS', respondWith('N'), 'require', 'does not support TLS'],
    ['responds to the request for TLS with an error', respondWith('Eno process\n\0'), 'prefer', 'no process'],
  ])('reject each statement after one attempt if the host %s, and leave none open', async (...row) => {
    const [, serve, sslmode, reason] = row;
    const { impostor, select, close } = await openPool(serve, sslmode);
    const begin = performance.now();
    for (let i = 0; i < 10; i++) await expect(select()).rejects.toThrow(reason);
    expect(impostor.accepted()).toBe(10);
    // The driver pauses before each attempt, for up to half a second.
    expect(performance.now() - begin).toBeGreaterThan(2000);
    await until(() => impostor.connections() === 0, 'all are closed');
    await close();
  });

  it('are not opened any more once the pool has ended, although the driver waits to connect again', async () => {
    const { impostor, select, close } = await openPool((client) => client.destroy(), 'disable');
    for (let i = 0; i < 5; i++) await expect(select()).rejects.toThrow();
    const waiting = select();
    // The driver has begun its pause, of half a second.
    const ended = nextTurn().then(close);
    await expect(waiting).rejects.toThrow('is not connected to any more');
    expect(impostor.accepted()).toBe(5);
    await ended;
  });

  it('send one StartupMessage each, although an earlier one failed before it was sent', async () => {
    const started: Buffer[] = [];
    let attempts = 0;
    const { select, close } = await openPool((client) => {
      // The first host closes the connection before TLS, the others support no TLS.
      const isFirst = attempts++ === 0;
      client.once('data', () => {
        if (isFirst) return void client.destroy();
        client.write('N');
        client.once('data', (bytes) => {
          started.push(bytes);
          client.destroy();
        });
      });
    }, 'prefer');
    for (let i = 0; i < 4; i++) await expect(select()).rejects.toThrow('closed the connection');
    expect(started).toHaveLength(3);
    for (const bytes of started) expect(bytes.readUInt32BE(0)).toBe(bytes.length);
    await close();
  });
});
