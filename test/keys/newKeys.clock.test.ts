/** Keys that an instance has not seen yet: valid ones are recognized, and unknown ones cause few statements. */
import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { closeDatabase, openDatabase } from '../../src/database/connect.js';
import { prepareFindKeys } from '../../src/keys/identify.js';
import { createApiKey } from '../../src/keys/keys.js';
import { useCountedServices } from '../support/countedService.js';
import { listenOn } from '../support/listening.js';
import { openToxicProxy } from '../support/toxicProxy.js';
import { until } from '../support/until.js';

const services = useCountedServices();
const ADDRESS = '192.0.2.1';
const STATEMENTS_PER_SECOND = 100;
const invented = () => `bpn_${randomBytes(32).toString('base64url')}`;

async function statusOf(url: string, key: string, address = ADDRESS): Promise<number> {
  const response = await fetch(url, { headers: { Authorization: key, 'X-Forwarded-For': address } });
  await response.arrayBuffer();
  return response.status;
}

describe('look-ups of keys while one address floods the service with unknown keys', () => {
  it('find ten valid keys from that address that are new to the instance', async () => {
    const { reader, listen } = await services.open({ AUTH: 'api-key' });
    const url = await listen();
    const keys = await Promise.all(
      Array.from({ length: 10 }, async (_, i) => (await createApiKey(services.database, `good ${i}`)).key),
    );
    const begin = performance.now();
    let isOver = false;
    const statuses: number[] = [];
    const flood = Array.from({ length: 40 }, async () => {
      while (!isOver) statuses.push(await statusOf(url, invented()));
    });
    await sleep(1000);
    const asked = performance.now();
    const good = await Promise.all(
      keys.map(async (key, i) => {
        await sleep(100 * i);
        const status = await statusOf(url, key);
        return { status, milliseconds: performance.now() - asked - 100 * i };
      }),
    );
    isOver = true;
    await Promise.all(flood);
    const seconds = (performance.now() - begin) / 1000;

    expect(good.map(({ status }) => status)).toEqual(Array(10).fill(200));
    // A round trip each to the keys, the limit and the page, beside forty clients.
    expect(Math.max(...good.map(({ milliseconds }) => milliseconds))).toBeLessThan(3000);
    expect([...new Set(statuses)].sort()).toEqual([401, 429]);
    expect(statuses.filter((status) => status === 401).length).toBeLessThanOrEqual(10 * (1 + Math.ceil(seconds)));
    const lookups = reader.reads - good.length;
    expect(lookups).toBeLessThanOrEqual(STATEMENTS_PER_SECOND * seconds + 1);
    expect(lookups).toBeLessThan(statuses.length);
  });

  it('are not repeated for an unknown key', async () => {
    const { reader, get } = await services.open({ AUTH: 'api-key' });
    const key = invented();
    const statuses: number[] = [];
    for (let i = 0; i < 5; i++) statuses.push((await get('192.0.2.2').set('Authorization', key)).status);
    expect([statuses, reader.reads]).toEqual([Array(5).fill(401), 1]);
  });
});

it('accepts valid keys during a flood of unknown ones, even if PostgreSQL is 200 ms away and more look-ups wait than slots exist', async () => {
  const keys = await Promise.all(
    Array.from({ length: 12 }, async (_, i) => (await createApiKey(services.database, `far ${i}`)).key),
  );
  const proxy = await openToxicProxy(Number(new URL(services.databaseUrl).port));
  const settings = { AUTH: 'api-key', MAX_REQUESTS_IN_FLIGHT: '20', RATE_LIMIT_PER_SECOND: '10', TRUST_PROXY: '1' };
  const service = await listenOn(proxy.through(services.databaseUrl), settings);
  const url = `${service.url}/v1/brandedPhoneNumbers`;
  proxy.behave('slow', 200);
  let isOver = false;
  const flooded = new Set<number>();
  const flood = Array.from({ length: 60 }, async (_, i) => {
    while (!isOver) flooded.add(await statusOf(url, invented(), `198.51.100.${i}`));
  });
  await sleep(500);
  // Fewer at once than pages may be read, however slow the machine is.
  const good = keys.map(async (key) => {
    const statuses: number[] = [];
    for (let i = 0; i < 4; i++) statuses.push(await statusOf(url, key));
    return statuses;
  });
  expect((await Promise.all(good)).flat()).toEqual(Array(48).fill(200));
  isOver = true;
  await Promise.all(flood);
  expect([...flooded].filter((status) => status !== 401 && status !== 429)).toEqual([]);
  await service.close();
  await proxy.close();
});

it('looks up many keys in a few statements if they arrive at once', async () => {
  const { reader, listen } = await services.open({ AUTH: 'api-key', RATE_LIMIT_PER_SECOND: '0' });
  const url = await listen();
  const keys = await Promise.all(
    Array.from({ length: 100 }, async (_, i) => (await createApiKey(services.database, `many ${i}`)).key),
  );
  const begin = performance.now();
  const statuses = await Promise.all(keys.map((key) => statusOf(url, key)));
  const seconds = (performance.now() - begin) / 1000;
  expect(statuses).toEqual(Array(100).fill(200));
  expect(reader.reads - keys.length).toBeLessThanOrEqual(STATEMENTS_PER_SECOND * seconds + 1);
});

it('records the use of a key later if its row is locked, and does not wait for the lock', async () => {
  const { created } = await createApiKey(services.database, 'locked');
  const sql = services.database.$client;
  const [key] = await sql`SELECT hash FROM api_keys WHERE id = ${created.id}`;
  const lookUps = openDatabase(services.databaseUrl, { connections: 1 });
  const find = prepareFindKeys(lookUps);
  await sql.begin(async (holder) => {
    await holder`SELECT FROM api_keys FOR UPDATE`;
    for (let i = 0; i < 5; i++) expect((await find([key?.hash])).size).toBe(1);
  });
  await until(async () => {
    await find([key?.hash]);
    return (await sql`SELECT FROM api_keys WHERE id = ${created.id} AND last_used_on IS NOT NULL`).length === 1;
  });
  await closeDatabase(lookUps);
});
