/** A logical replica that takes over: its triggers did not run, and its sequences were not copied. */
import type { Sql } from 'postgres';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { migrateDatabase } from '../../src/database/migrations.js';
import { migrationsFolder } from '../../src/packageFolder.js';
import { runOn } from '../support/command.js';
import { connectTo } from '../support/connection.js';
import { closeDatabase, openDatabase } from '../support/database.js';
import { expectDerivedToAgree } from '../support/derived.js';
import { entryWith, numberWith, write } from '../support/numbers.js';
import { type PostgresServer, startPostgres } from '../support/postgresServer.js';
import { until } from '../support/until.js';

const carrierStatuses = [entryWith('AT&T', 'brandedCallerId', 'approved.optIn')];
let publisher: PostgresServer;
let subscriber: PostgresServer;
let onPublisher: Sql;

beforeAll(async () => {
  const start = () => startPostgres({ wal_level: 'logical' });
  [publisher, subscriber] = await Promise.all([start(), start()]);
  await migrateDatabase(publisher.url, migrationsFolder);
  onPublisher = connectTo(publisher.url);
  const database = openDatabase(publisher.url);
  const numbers = [10, 11, 12].map((i) => numberWith({ phoneNumber: `+141555501${i}`, carrierStatuses }));
  await write(database, numbers);
  await closeDatabase(database);
});
afterAll(async () => {
  await onPublisher?.end();
  await Promise.all([publisher?.remove(), subscriber?.remove()]);
});

/** Makes a database of the subscriber that has replicated the existing rows of `tables`, and a change. */
async function replicaOf(name: string, tables: string): Promise<{ url: string; sql: Sql }> {
  const admin = connectTo(subscriber.url);
  await admin.unsafe(`CREATE DATABASE ${name}`);
  await admin.end();
  const url = subscriber.url.replace(/[^/]*$/, name);
  await migrateDatabase(url, migrationsFolder);
  const sql = connectTo(url);
  await onPublisher.unsafe(`CREATE PUBLICATION ${name} FOR ${tables}`);
  await sql.unsafe(
    `CREATE SUBSCRIPTION ${name} CONNECTION 'host=127.0.0.1 port=${publisher.port} user=postgres' PUBLICATION ${name}`,
  );
  const copying = () => sql`SELECT FROM pg_subscription_rel WHERE srsubstate <> 'r'`;
  await until(async () => (await copying()).length === 0, 'the tables are copied', 30_000);
  await onPublisher`UPDATE branded_phone_numbers SET internal_name = ${name} WHERE phone_number = '+14155550110'`;
  const changed = () => sql`SELECT FROM branded_phone_numbers WHERE internal_name = ${name}`;
  await until(async () => (await changed()).length === 1, 'a change is replicated', 30_000);
  // Earlier changes have been applied as well.
  await sql.unsafe(`DROP SUBSCRIPTION ${name}`);
  return { url, sql };
}

async function expectToAcceptWrites({ url, sql }: { url: string; sql: Sql }): Promise<void> {
  await expectDerivedToAgree(sql);
  await sql`UPDATE carrier_statuses SET carrier = 'Verizon'`;
  const line = JSON.stringify(numberWith({ phoneNumber: '+14155550113', carrierStatuses }));
  expect(await runOn(url, ['import', '-'], line)).toMatchObject({
    code: 0,
    stdout: 'imported 1 number, 1 carrier status\n',
  });
  await expectDerivedToAgree(sql);
  await sql.end();
}

test('a logical replica of the sources is right after check --repair, and accepts writes', async () => {
  const replica = await replicaOf('sources', 'TABLE business_profiles, branded_phone_numbers, carrier_statuses');
  const found = '3 numbers differ from their sources: +14155550110, +14155550111, +14155550112\n';
  expect(await runOn(replica.url, ['check'])).toMatchObject({ code: 1, stdout: '', stderr: found });
  expect(await runOn(replica.url, ['check', '--repair'])).toMatchObject({
    code: 0,
    stdout: `repaired: ${found}OK: the read model matches its sources\n`,
  });
  await expectToAcceptWrites(replica);
});

test('a logical replica of the whole schema is right without a repair, and accepts writes', async () => {
  await expectToAcceptWrites(await replicaOf('whole', 'TABLES IN SCHEMA public'));
});
