/** The same faults under TLS, where the driver's sockets behave differently. */

import { spawnSync } from 'node:child_process';
import { chmod, chown, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { closeDatabase, openDatabase } from '../../src/database/connect.js';
import { Generations } from '../../src/database/generations.js';
import { type PostgresServer, startPostgres } from '../postgresServer.js';
import { until } from '../until.js';
import { openToxicProxy } from './toxicProxy.js';

const hasOpenssl = spawnSync('openssl', ['version']).status === 0;
if (!hasOpenssl) console.warn('skipped: TLS to PostgreSQL needs openssl, which is not installed here');

describe.skipIf(!hasOpenssl)('connections under TLS', () => {
  let folder: string;
  let server: PostgresServer;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'branded-phone-numbers-tls-'));
    const [key, certificate] = [join(folder, 'key.pem'), join(folder, 'certificate.pem')];
    const names = ['-subj', '/CN=127.0.0.1', '-keyout', key, '-out', certificate];
    spawnSync('openssl', ['req', '-new', '-x509', '-days', '2', '-nodes', ...names]);
    await chmod(folder, 0o755);
    await chmod(key, 0o600);
    if (process.getuid?.() === 0) {
      const nobody = Number(spawnSync('id', ['-u', 'nobody']).stdout);
      for (const file of [key, certificate]) await chown(file, nobody, nobody);
    }
    server = await startPostgres({ ssl: 'on', ssl_cert_file: certificate, ssl_key_file: key });
  });
  afterAll(async () => {
    await server.remove();
    await rm(folder, { recursive: true });
  });

  it('are encrypted, and refused if the certificate has to be trusted and is not', async () => {
    const database = openDatabase(`${server.url}?sslmode=require`);
    const [row] = await database.$client`SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()`;
    expect(row?.ssl).toBe(true);
    await closeDatabase(database);
    const strict = openDatabase(`${server.url}?sslmode=verify-full`);
    await expect(strict.$client`SELECT 1`.then(() => 'connected')).rejects.toThrow(/certificate/);
    await closeDatabase(strict, 0);
  });

  it.each(['passing', 'silent', 'refusing'] as const)('can be abandoned while the network is %s', async (behaviour) => {
    const proxy = await openToxicProxy(server.port);
    const open = (host: string) => ({ database: openDatabase(host) });
    const generations = new Generations(`${proxy.through(server.url)}?sslmode=require`, open, { timeLimitMs: 1000 });
    const ask = (seconds: number) =>
      generations.current
        .ask(({ database }) => database.$client`SELECT pg_sleep(${seconds})`)
        .then(
          () => 'answered',
          () => 'failed',
        );
    const sleepers = Array.from({ length: 4 }, () => ask(30));
    await sleep(500);
    proxy.behave(behaviour);
    await sleep(1500);
    proxy.behave('passing');
    await until(async () => (await ask(0)) === 'answered', 'a query is answered again');
    expect(await Promise.all(sleepers)).toEqual(Array(4).fill('failed'));
    await generations.close(1000);
    await sleep(500);
    await proxy.close();
  });
});
