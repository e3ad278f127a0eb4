/** The same faults under TLS, where the driver's sockets behave differently. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { closeDatabase, openDatabase } from '../../src/database/connect.js';
import { Reader } from '../../src/database/reads.js';
import { openLog } from '../../src/log.js';
import { createMetrics } from '../../src/metrics.js';
import { makeAuthority } from '../support/certificates.js';
import { type PostgresServer, startPostgres } from '../support/postgresServer.js';
import { openToxicProxy } from '../support/toxicProxy.js';

const hasOpenssl = spawnSync('openssl', ['version']).status === 0;
if (!hasOpenssl) console.warn('skipped: TLS to PostgreSQL needs openssl, which is not installed here');

describe.skipIf(!hasOpenssl)('connections under TLS', () => {
  let folder: string;
  let server: PostgresServer;
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'branded-phone-numbers-tls-'));
    const authority = makeAuthority(folder);
    authority.issue('server', '127.0.0.1');
    authority.own('server');
    const [certificate, key] = [authority.file('server.pem'), authority.file('server.key')];
    server = await startPostgres({ ssl: 'on', ssl_cert_file: certificate, ssl_key_file: key });
  });
  afterAll(async () => {
    await server.remove();
    rmSync(folder, { recursive: true });
  });

  it.each(['silent', 'refusing'] as const)('are replaced after the network was %s', async (behaviour) => {
    const proxy = await openToxicProxy(server.port);
    const database = openDatabase(`${proxy.through(server.url)}?sslmode=require`, { statementTimeout: 1000 });
    const reader = new Reader(database, openLog({ LOG_LEVEL: 'silent' }), createMetrics(1));
    const query = () => database.$client`SELECT pg_sleep(0.1)`.then(() => 'answered');
    const ask = () => reader.read(query, 5000).catch(({ message }: Error) => message);
    const askTogether = () => Promise.all(Array.from({ length: 4 }, ask));
    expect(await askTogether()).toEqual(Array(4).fill('answered'));
    const asked = askTogether();
    proxy.behave(behaviour);
    expect(await asked).toEqual(Array(4).fill("The database can't be reached."));
    proxy.behave('passing');
    expect(await askTogether()).toEqual(Array(4).fill('answered'));
    reader.close();
    await closeDatabase(database);
    await sleep(500);
    await proxy.close();
  });

  it('that are idle, or asked and answered, are kept', async () => {
    const database = openDatabase(`${server.url}?sslmode=require`, { connections: 1, statementTimeout: 500 });
    const processes = new Set<number>();
    for (let i = 0; i < 12; i++, await sleep(i % 4 === 0 ? 1500 : 50)) {
      const [row] = await database.$client`SELECT pg_backend_pid() AS pid, pg_sleep(0.3)`;
      processes.add(row?.pid);
    }
    expect(processes.size).toBe(1);
    await closeDatabase(database);
  });
});
