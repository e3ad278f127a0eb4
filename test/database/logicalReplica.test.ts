/** A logical replica of the sources, after the switch-over to it: triggers did not run there, and sequences are not copied. */
import { join } from 'node:path';
import type { Sql } from 'postgres';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { closeDatabase, openDatabase } from '../../src/database/connect.js';
import { migrateDatabase } from '../../src/database/migrations.js';
import { migrationsFolder, packageFolder } from '../../src/packageFolder.js';
import { useCommand } from '../commands/command.js';
import { connectTo } from '../connection.js';
import { entryWith, numberWith, write } from '../numbers.js';
import { type PostgresServer, startPostgres } from '../postgresServer.js';
import { until } from '../until.js';
import { expectDerivedToAgree } from './derived.js';

const command = useCommand();
const version = process.env.TEST_POSTGRES_VERSION;
const from = version && join(packageFolder, '.cache', 'postgres', version, 'package.json');
let publisher: PostgresServer;
let subscriber: PostgresServer;
let onPublisher: Sql;
let onSubscriber: Sql;

beforeAll(async () => {
  [publisher, subscriber] = await Promise.all([
    startPostgres({ wal_level: 'logical' }, from),
    startPostgres({ wal_level: 'logical' }, from),
  ]);
  [onPublisher, onSubscriber] = [connectTo(publisher.url), connectTo(subscriber.url)];
  for (const { url } of [publisher, subscriber]) await migrateDatabase(url, migrationsFolder);
});
afterAll(async () => {
  await Promise.all([onPublisher?.end(), onSubscriber?.end()]);
  await Promise.all([publisher?.remove(), subscriber?.remove()]);
});

test('A logical replica of the sources is right once check --repair has run, and takes writes', async () => {
  const database = openDatabase(publisher.url);
  const carrierStatuses = [entryWith('AT&T', 'brandedCallerId', 'approved.optIn')];
  const numbers = [10, 11, 12].map((i) => numberWith({ phoneNumber: `+141555501${i}`, carrierStatuses }));
  await write(database, numbers);
  await closeDatabase(database);
  await onPublisher`CREATE PUBLICATION sources FOR TABLE business_profiles, branded_phone_numbers, carrier_statuses`;
  await onSubscriber.unsafe(
    `CREATE SUBSCRIPTION sources CONNECTION 'host=127.0.0.1 port=${publisher.port} user=postgres' PUBLICATION sources`,
  );
  const copying = () => onSubscriber`SELECT FROM pg_subscription_rel WHERE srsubstate <> 'r'`;
  await until(async () => (await copying()).length === 0, 'the tables are copied', 30_000);
  await onPublisher`UPDATE carrier_statuses SET detailed_status = 'rejected.optIn' WHERE phone_number = '+14155550110'`;
  const decided = async () =>
    (await onSubscriber`SELECT FROM carrier_statuses WHERE detailed_status = 'rejected.optIn'`).length;
  await until(async () => (await decided()) === 1, 'a change is replicated', 30_000);
  await onSubscriber`DROP SUBSCRIPTION sources`;

  const check = (...options: string[]) =>
    command.start(['check', ...options], { DATABASE_URL: subscriber.url }).finished;
  const found = '3 numbers differ from what they are derived from: +14155550110, +14155550111, +14155550112\n';
  expect(await check()).toMatchObject({ code: 1, stdout: '', stderr: found });
  expect(await check('--repair')).toMatchObject({
    code: 0,
    stdout: `repaired: ${found}all that is derived is right\n`,
  });
  await expectDerivedToAgree(onSubscriber);

  await onSubscriber`UPDATE carrier_statuses SET carrier = 'Verizon'`;
  const line = JSON.stringify({ ...numberWith({ phoneNumber: '+14155550113', carrierStatuses }) });
  expect(await command.shell(`echo '${line}' | DATABASE_URL=${subscriber.url} $command import -`)).toMatchObject({
    code: 0,
    stdout: 'imported 1 numbers, 1 carrier statuses\n',
  });
  await expectDerivedToAgree(onSubscriber);
});
