/** The same faults under TLS, where the driver's sockets behave differently. */
import { spawnSync } from 'node:child_process';
import { chmod, chown, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type PostgresServer, startPostgres } from '../../cluster/postgresServer.js';
import { closeDatabase, openDatabase } from '../../src/database.js';
import { openToxicProxy } from './toxicProxy.js';

const hasOpenssl = spawnSync('openssl', ['version']).status === 0;
if (!hasOpenssl) console.warn('skipped: TLS to PostgreSQL needs openssl, which is not installed here');
const pause = (milliseconds: number) => new Promise((resolve) => setTimeout(resolve, milliseconds));

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

  it('are encrypted, and refused where the certificate should be one that is known', async () => {
    const database = openDatabase(`${server.url}?sslmode=require`);
    const [row] = await database.$client`SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()`;
    expect(row?.ssl).toBe(true);
    await closeDatabase(database);
    const strict = openDatabase(`${server.url}?sslmode=verify-full`);
    await expect(strict.$client`SELECT 1`.then(() => 'connected')).rejects.toThrow(/certificate/);
    await closeDatabase(strict, 0);
  });

  it.each(['passing', 'silent', 'refusing'] as const)('can be given up while the network is %s', async (behaviour) => {
    const proxy = await openToxicProxy(server.port);
    const database = openDatabase(`${proxy.through(server.url)}?sslmode=require`);
    const sleepers = Array.from({ length: 4 }, () =>
      database.$client`SELECT pg_sleep(5)`.then(
        () => 'done',
        () => 'failed',
      ),
    );
    await pause(500);
    proxy.behave(behaviour);
    await database.renew({ waiting: 100, isSilent: true });
    await database.renew({ waiting: 100, isSilent: true });
    expect(await Promise.all(sleepers)).toEqual(Array(4).fill('failed'));
    proxy.behave('passing');
    await database.renew({ waiting: 0, isSilent: false });
    await pause(1000);
    const [row] = await database.$client`SELECT 1 AS one`;
    expect(row?.one).toBe(1);
    await closeDatabase(database);
    await pause(500);
    await proxy.close();
  });
});
