/** A PgBouncer with its defaults in front of PostgreSQL, as a provider may run it. */
import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runOn } from '../support/command.js';
import { connectTo } from '../support/connection.js';
import { inTransaction, useDatabase } from '../support/database.js';
import { ndjson } from '../support/ndjson.js';
import { entryWith, numberWith } from '../support/numbers.js';
import { startPgbouncer } from '../support/pgbouncer.js';
import { freePort } from '../support/port.js';
import { isInstalled } from '../support/programs.js';
import { useTemporaryFolder } from '../support/temporaryFolder.js';
import { repeat } from '../support/until.js';

const IGNORED = /^ignore_startup_parameters = .*$/m.exec(readFileSync('deploy/pgbouncer/pgbouncer.ini', 'utf8'))?.[0];

describe.runIf(isInstalled('pgbouncer'))('a command behind PgBouncer', () => {
  const database = useDatabase();
  const parent = useTemporaryFolder('branded-phone-numbers-');
  const stops: (() => Promise<void>)[] = [];
  let url: string;
  let ignoring: string;

  beforeAll(async () => {
    url = await start('auth_type = any');
    ignoring = await start(`auth_type = scram-sha-256\nauth_file = users\n${IGNORED}`);
  });
  afterAll(() => Promise.all(stops.map((stop) => stop())));

  /** Starts a PgBouncer with these settings and otherwise its defaults; returns the URL of its only database. */
  async function start(settings: string, connectQuery = 'SELECT 1'): Promise<string> {
    const { hostname, port, username, password, pathname } = new URL(database.url);
    const folder = await mkdtemp(join(parent.path, 'pgbouncer-'));
    for (const path of [parent.path, folder]) chmodSync(path, 0o755);
    const listenPort = await freePort();
    writeFileSync(join(folder, 'users'), '"numbers" "right"');
    writeFileSync(
      join(folder, 'pgbouncer.ini'),
      `[databases]
numbers = host=${hostname} port=${port} dbname=${pathname.slice(1)} user=${username}${password && ` password=${password}`} connect_query='${connectQuery}'
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${listenPort}
unix_socket_dir =
${settings.replace('users', join(folder, 'users'))}
`,
    );
    stops.push(await startPgbouncer(join(folder, 'pgbouncer.ini')));
    return `postgres://numbers:right@127.0.0.1:${listenPort}/numbers`;
  }

  it.each<[string, () => string, RegExp]>([
    [
      'with settings of a session',
      () => url,
      /^unsupported startup parameter: \w+: .*host of PostgreSQL itself.* deploy\/pgbouncer/,
    ],
    ['to an unknown database', () => ignoring.replace(/numbers$/, 'none'), /^no such database: none\n$/],
    ['with a wrong password', () => ignoring.replace('right', 'wrong'), /^SASL authentication failed\n$/],
  ])('exits with the reason if it is refused: %s', async (_what, address, reason) => {
    const { code, stdout, stderr } = await runOn(address(), ['migrate']);
    expect([code, stdout, stderr]).toEqual([1, '', expect.stringMatching(reason)]);
  });

  it('is not bound by the time limit that PgBouncer sets for pages', async () => {
    const settings = `auth_type = any\npool_mode = transaction\n${IGNORED}`;
    const url = await start(settings, 'SET statement_timeout = 1000');
    const show = inTransaction(`${url}?prepare=false`, 'READ COMMITTED', (sql) => sql`SHOW statement_timeout`);
    expect(await show).toEqual([{ statement_timeout: '0' }]);
  });

  it('writes and checks in steps on any of PgBouncer’s connections, which it shares with other programs', async () => {
    const unprepared = await start(`auth_type = any\npool_mode = transaction\ndefault_pool_size = 2\n${IGNORED}`);
    const url = `${unprepared}?prepare=false`;
    const lines = Array.from({ length: 300 }, (_, i) => numberWith({ phoneNumber: `+1${i}` }));
    const others = [1, 2].map(() => connectTo(url, { prepare: false }));
    const stop = repeat(2, async (i) => others[i]?.begin((sql) => sql`SELECT pg_sleep(0.01)`));
    const imported = await runOn(url, ['import', '--jobs', '4', '-'], ndjson(lines));
    expect([imported.code, imported.stdout]).toEqual([0, expect.stringMatching(/^imported 300 numbers/)]);
    expect(await runOn(url, ['check'])).toMatchObject({ code: 0 });
    await stop();
    await Promise.all(others.map((other) => other.end()));
  });

  it.each([
    ['lets the others wait', 'default_pool_size = 1'],
    ['ends their wait', 'default_pool_size = 1\nquery_wait_timeout = 1'],
    ['refuses them', 'max_client_conn = 2'],
  ])('writes with the jobs for which PgBouncer has a connection, if it %s', async (_how, settings) => {
    const url = await start(`auth_type = any\n${settings}\n${IGNORED}`);
    await database.sql.unsafe(`
      TRUNCATE branded_phone_numbers CASCADE;
      CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.1); RETURN NULL; END';
      CREATE TRIGGER slow AFTER INSERT ON branded_phone_numbers FOR EACH ROW EXECUTE FUNCTION slow()`);
    // So many that a step has few numbers.
    const carrierStatuses = Array.from({ length: 300 }, (_, i) =>
      entryWith(`${i}`, 'brandedCallerId', 'approved.optIn'),
    );
    const lines = Array.from({ length: 40 }, (_, i) => numberWith({ phoneNumber: `+2${i + 10}`, carrierStatuses }));
    const imported = await runOn(url, ['import', '--jobs', '3', '-'], ndjson(lines));
    await database.sql`DROP FUNCTION slow CASCADE`;
    expect(imported).toMatchObject({ code: 0, stdout: expect.stringMatching(/^imported 40 numbers/), stderr: '' });
  });
});
