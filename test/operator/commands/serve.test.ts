import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdtemp, readdir, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { describe, expect, inject, it, onTestFinished } from 'vitest';
import { packageFolder } from '../../../src/packageFolder.js';
import { runServe, useCommand } from '../../support/command.js';
import { useConnection } from '../../support/connection.js';
import { createDatabase } from '../../support/database.js';
import { itemsOf, ndjson } from '../../support/ndjson.js';
import { entryWith, numberWith } from '../../support/numbers.js';
import { freePort } from '../../support/port.js';
import { byBytes } from '../../support/reference.js';
import { SERVE, startServer } from '../../support/serverProcess.js';
import { openToxicProxy } from '../../support/toxicProxy.js';
import { until } from '../../support/until.js';
import { walk } from '../../support/walk.js';

const command = useCommand();

const list = Array.from({ length: 300 }, (_, i) =>
  numberWith({
    phoneNumber: `+1415${1000 + i}`,
    carrierStatuses: [entryWith('AT&T', 'brandedCallerId', i % 2 ? 'approved.optIn' : 'pending.optIn')],
  }),
);

/** The phone numbers of the demo data, in order. */
const demo = itemsOf(readFileSync(join(packageFolder, 'demo', 'numbers.ndjson'), 'utf8'))
  .map(({ phoneNumber }) => phoneNumber)
  .sort(byBytes);

it('serve without any setting uses an embedded PostgreSQL, beside an import, and stops it when it stops', async () => {
  const options = { folder: command.folder };
  const { url, child, stop } = await startServer([...SERVE, '--demo'], { RATE_LIMIT_PER_SECOND: '0' }, options);
  await writeFile(join(command.folder, 'numbers.ndjson'), ndjson(list));
  expect(await command.run(['import', 'numbers.ndjson'], '', { environment: {} })).toEqual({
    code: 0,
    stdout: 'imported 300 numbers, 300 carrier statuses\n',
    stderr: '',
    database: expect.stringMatching(/^database: embedded PostgreSQL in .*\.data\n$/),
  });
  const filters = 'status=submitted+for+review&reportingGroup=Control&internalName=Main+Line&size=100';
  const items = (await walk(url, filters)).flat();
  expect(items.map(({ phoneNumber }) => phoneNumber)).toEqual(
    expect.arrayContaining(list.filter((_, i) => i % 2 === 0).map(({ phoneNumber }) => phoneNumber)),
  );
  await stop();
  expect(child.exitCode).toBe(0);
  expect(await readdir(join(command.folder, '.data', 'postgres', 'data'))).not.toContain('postmaster.pid');
});

describe('serve, before it can use PostgreSQL,', () => {
  /** Starts `serve` with a PostgreSQL that can't be reached; returns a function that makes it reachable. */
  async function startTooEarly(args: string[], url: string) {
    const port = await freePort();
    const later = Object.assign(new URL(url), { host: `127.0.0.1:${port}` });
    const service = await runServe(args, { DATABASE_URL: later.href, REDIS_URL: 'redis://127.0.0.1:1' });
    await service.untilAlive();
    const connect = async () => {
      const proxy = await openToxicProxy(Number(new URL(url).port), port);
      onTestFinished(() => proxy.close());
    };
    return { service, port, connect };
  }

  it('waits, and is ready when PostgreSQL starts', async () => {
    const url = await createDatabase();
    // Redis never starts: the limit is then counted per instance.
    const { service, port, connect } = await startTooEarly(['--demo'], url);
    const isWaiting = async () => (await service.get('/readyz'))?.body.includes('waiting') ?? false;
    await until(isWaiting, '/readyz says that it waits');
    expect(await service.get('/readyz')).toEqual({
      status: 503,
      body: '{"status":"waiting until PostgreSQL can be reached"}',
    });
    expect((await service.getAsOperator('/readyz'))?.body).toContain(`(connect ECONNREFUSED 127.0.0.1:${port})`);
    const list = await service.get('/v1/brandedPhoneNumbers');
    expect([list?.status, JSON.parse(list?.body ?? '')]).toEqual([
      503,
      expect.objectContaining({ type: '/problems/unavailable', status: 503 }),
    ]);
    expect((await service.get('/openapi.json'))?.status).toBe(200);
    await connect();
    await service.untilReady();
    const { items } = JSON.parse((await service.get('/v1/brandedPhoneNumbers'))?.body ?? '');
    expect(items).toHaveLength(25);
    service.stop();
    expect(await service.end()).toBe(0);
    const log = service.out.stdout.split('\n').flatMap((line) => (line.startsWith('{') ? JSON.parse(line).msg : []));
    expect(log.filter((line) => /^waiting until|^PostgreSQL is available|^listening/.test(line))).toEqual([
      'waiting until PostgreSQL can be reached',
      'PostgreSQL is available: starting',
      expect.stringMatching(/^listening on/),
    ]);
  });

  it('waits for its database to be created, and serves from it', async () => {
    const url = await createDatabase({ isEmpty: true });
    const later = `${url}_later`;
    const service = await runServe([], { DATABASE_URL: later });
    await service.untilAlive();
    const isNamed = async () => (await service.get('/readyz'))?.body.includes('until the database that') ?? false;
    await until(isNamed, '/readyz names the missing database');
    expect((await service.get('/readyz'))?.body).not.toContain('does not exist');
    expect((await service.getAsOperator('/readyz'))?.body).toContain('_later\\" does not exist');
    const sql = useConnection(url);
    const name = new URL(later).pathname.slice(1);
    await sql.unsafe(`CREATE DATABASE ${name} TEMPLATE template0`);
    await service.untilReady();
    expect((await service.get('/v1/brandedPhoneNumbers'))?.status).toBe(200);
    service.stop();
    expect(await service.end()).toBe(0);
    await sql.unsafe(`DROP DATABASE ${name} WITH (FORCE)`);
  });

  it('completes the demo data after a failure in the middle of its import', async () => {
    const url = await createDatabase();
    const sql = useConnection(url);
    await sql.unsafe(`
      CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE disk_full; END';
      CREATE TRIGGER fail BEFORE INSERT ON branded_phone_numbers FOR EACH ROW
      WHEN (NEW.phone_number = '${demo.at(-1)}') EXECUTE FUNCTION fail()`);
    const service = await runServe(['--demo'], { DATABASE_URL: url });
    await until(() => service.out.stdout.includes('until a temporary failure'), 'the import has failed');
    const count = async () => (await sql`SELECT FROM branded_phone_numbers`).length;
    expect(await count()).toBeGreaterThan(0);
    expect(await count()).toBeLessThan(demo.length);
    await sql`DROP FUNCTION fail CASCADE`;
    await service.untilReady();
    expect(await count()).toBe(demo.length);
  });

  it('exits at once after a signal, and has named its database without the password', async () => {
    const DATABASE_URL = 'postgres://numbers:secret@127.0.0.1:1/none?application_name=hidden';
    const service = await runServe([], { DATABASE_URL, DRAIN_SECONDS: '60' });
    await service.untilAlive();
    service.stop();
    expect([await service.end(), service.out.stderr]).toEqual([
      143,
      'database: postgres://127.0.0.1:1/none\nstopped by SIGTERM\n',
    ]);
  });

  it('exits with status 1 and logs the reason if PostgreSQL then refuses its login', async () => {
    const { service, connect } = await startTooEarly([], inject('postgresUrl').replace('postgres@', 'unknown@'));
    await connect();
    expect(await service.end()).toBe(1);
    expect(service.out.stderr).toContain('\nrole "unknown" does not exist\n');
    expect(service.out.stdout).toMatch(/^\{"level":60,.*"msg":"role \\"unknown\\" does not exist"/m);
  });
});

describe('serve reports in one line why it cannot start:', () => {
  it('a port that is in use, even while PostgreSQL cannot be reached', async () => {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const environment = { DATABASE_URL: 'postgres://127.0.0.1:1/none', PORT: String(port) };
    const { code, stderr } = await command.run(['serve'], '', { environment });
    server.close();
    expect([code, stderr]).toEqual([
      1,
      `listen EADDRINUSE: address already in use 127.0.0.1:${port}; choose another PORT or HOST\n`,
    ]);
  });

  it('a role that may not migrate', async () => {
    const url = await createDatabase({ isEmpty: true });
    const sql = useConnection(url);
    const role = new URL(url).pathname.slice(1);
    await sql.unsafe(`CREATE ROLE ${role} LOGIN PASSWORD '${role}'`);
    const DATABASE_URL = Object.assign(new URL(url), { username: role, password: role }).href;
    const { code, stderr } = await command.run(['serve'], '', { environment: { DATABASE_URL, PORT: '0' } });
    await sql.unsafe(`DROP ROLE ${role}`);
    expect([code, stderr]).toEqual([
      1,
      expect.stringMatching(/^permission denied for database \w+ \(SQL statement "CREATE SCHEMA .*"\)\n$/),
    ]);
  });

  it('a folder that the embedded PostgreSQL cannot use', async () => {
    const folder = await mkdtemp(join(command.folder, 'without-'));
    await writeFile(join(folder, '.data'), 'not a folder');
    const { code, stderr } = await command.run(['serve'], '', { environment: {}, folder });
    expect([code, stderr]).toEqual([1, expect.stringMatching(/^The embedded PostgreSQL cannot use .*\n$/)]);
  });
});
