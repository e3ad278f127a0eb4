/** Walks over a replica that stops replaying midway and then goes on, with pages from its primary in between. */
import type { Sql } from 'postgres';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { readConfig } from '../../src/config.js';
import { migrateDatabase } from '../../src/database/migrations.js';
import { openLog } from '../../src/log.js';
import { migrationsFolder } from '../../src/packageFolder.js';
import { type Service, startService } from '../../src/server.js';
import { connectTo } from '../connection.js';
import { PROFILES } from '../numbers.js';
import { type PostgresServer, startPostgres, startReplica } from '../postgresServer.js';
import { until } from '../until.js';

let primary: PostgresServer;
let replica: PostgresServer;
let onPrimary: Sql;
let onReplica: Sql;
const services: Service[] = [];

beforeAll(async () => {
  primary = await startPostgres({ synchronous_commit: 'local' });
  await migrateDatabase(primary.url, migrationsFolder);
  replica = await startReplica(primary);
  [onPrimary, onReplica] = [connectTo(primary.url), connectTo(replica.url)];
  for (const url of [primary.url, replica.url]) {
    const config = readConfig({ PORT: '0', LOG_LEVEL: 'silent', RATE_LIMIT_PER_SECOND: '0' });
    services.push(await startService(config, url, openLog(config)));
  }
});
afterAll(async () => {
  await Promise.all(services.map((service) => service.close()));
  await Promise.all([onPrimary?.end(), onReplica?.end()]);
  await Promise.all([replica?.remove(), primary?.remove()]);
});

it('A walk sees every number that exists throughout it once, whichever server answers', async () => {
  const profile = PROFILES[0]?.id ?? '';
  await onPrimary`INSERT INTO business_profiles VALUES (${profile}, 'Circle Bank', 'approved')`;
  // The numbers with an even end stay; the others come and go.
  await onPrimary`
    INSERT INTO branded_phone_numbers (phone_number, business_profile_id, reporting_group)
    SELECT '+1' || 2000 + i, ${profile}, 'Group ' || i % 2 FROM generate_series(0, 398, 2) AS i`;
  const count = async () => (await onReplica`SELECT FROM items`).length;
  await until(async () => (await count()) === 200, 'the numbers are replayed', 30_000);
  const staying = Array.from({ length: 200 }, (_, i) => `+1${2000 + 2 * i}`);
  const seen: string[] = [];
  let cursor: string | null = '';
  for (let page = 0; cursor !== null; page++) {
    // Three pages while it replays, three while it lags; every fifth comes from the primary.
    if (page % 3 === 0) await onReplica.unsafe(`SELECT pg_wal_replay_${page % 2 ? 'resume' : 'pause'}()`);
    const odd = 2001 + ((page * 38) % 398);
    await onPrimary`INSERT INTO branded_phone_numbers (phone_number, business_profile_id) VALUES (${`+1${odd}`}, ${profile})`;
    await onPrimary`DELETE FROM branded_phone_numbers WHERE phone_number = ${`+1${odd - 38}`}`;
    await onPrimary`UPDATE branded_phone_numbers SET internal_name = ${`Page ${page}`}, reporting_group = 'New'`;
    const { url } = services[page % 5 === 4 ? 0 : 1] as Service;
    const answer = await fetch(`${url}/v1/brandedPhoneNumbers?size=7${cursor && `&nextCursor=${cursor}`}`);
    const body = (await answer.json()) as { items: { phoneNumber: string }[]; nextCursor: string | null };
    seen.push(...body.items.map(({ phoneNumber }) => phoneNumber));
    cursor = body.nextCursor;
  }
  await onReplica`SELECT pg_wal_replay_resume()`;
  expect(seen.filter((phoneNumber) => staying.includes(phoneNumber))).toEqual(staying);
  expect(new Set(seen).size).toBe(seen.length);
});
