/** The queue in front of PostgreSQL, with statements that take a known time. */
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it, onTestFinished } from 'vitest';
import { Connection, type Database } from '../../src/database/connection.js';
import type { Connect } from '../../src/database/pool.js';
import { Reader, readsPerConnection, type Signal } from '../../src/database/reads.js';
import { openLog } from '../../src/log.js';
import { whileLocked } from '../support/connection.js';
import { useDatabase } from '../support/database.js';
import { useServiceOn } from '../support/service.js';
import { type ToxicProxy, useProxy } from '../support/toxicProxy.js';
import { repeat } from '../support/until.js';

const TOO_MANY = 'Too many requests are being processed.';
const created = useDatabase();
let proxy: ToxicProxy;
let reader: Reader;
/** The names of the reads whose queries were called, in order. */
let sent: string[];
let pending: number;
/** The number of connections that were opened, or could not be. */
let opened = 0;

/** Opens a reader that sends `atOnce` reads for each connection. */
async function open(connections: number, atOnce: number): Promise<void> {
  proxy = await useProxy(created.url);
  const url = proxy.through(created.url);
  const setQueries = (count: number) => {
    pending = count;
  };
  const connect: Connect = (onBroken) => {
    opened++;
    return new Connection(url, { statementTimeout: 4000, queriesAtOnce: atOnce, onBroken });
  };
  reader = new Reader(connect, connections, openLog({ LOG_LEVEL: 'silent' }), { setQueries });
  onTestFinished(() => reader.close(0));
  // All connections are open, so that later statements take no longer than they say.
  await Promise.all(Array.from({ length: connections }, () => read(0.2)));
  [sent, opened] = [[], 0];
}

/** Reads for some seconds. */
function read(
  seconds: number,
  { name = '', limitMs = 10_000, ...options }: Parameters<Reader['read']>[2] & { name?: string; limitMs?: number } = {},
): Promise<unknown> {
  const query = ({ $client: sql }: Database) => {
    sent?.push(name);
    return sql`SELECT pg_sleep(${seconds})`;
  };
  return reader.read(query, performance.now() + limitMs, options);
}

describe('a read', () => {
  it('is sent in its order of arrival, but before all others if it is to be first', async () => {
    await open(1, 1);
    const reads = ['a', 'b', 'c'].map((name) => read(0.1, { name }));
    await Promise.all([...reads, read(0, { name: 'first', isFirst: true })]);
    expect(sent).toEqual(['a', 'first', 'b', 'c']);
  });

  it('is rejected after half a second, at its deadline or once it is no longer needed, and never sent', async () => {
    await open(1, 1);
    const running = read(1);
    const begin = performance.now();
    let isNeeded = true;
    const reasonOf = (options: Parameters<typeof read>[1]) =>
      read(0, { name: 'waiting', ...options }).catch(({ message }: Error) => message);
    const reasons = Promise.all([reasonOf({ isNeeded: () => isNeeded }), reasonOf({ limitMs: 100 }), reasonOf({})]);
    expect(pending).toBe(4);
    isNeeded = false;
    expect(await reasons).toEqual(['The request was abandoned.', 'The database did not respond in time.', TOO_MANY]);
    expect(performance.now() - begin).toBeGreaterThan(490);
    expect(pending).toBe(1);
    await running;
    await read(0);
    expect(sent).not.toContain('waiting');
    expect(pending).toBe(0);
  });

  it('sends no further statement after its deadline', async () => {
    await open(1, 1);
    let statements = 0;
    const query = async ({ $client: sql }: Database, signal: Signal) => {
      for (; ; statements++) {
        signal.throwIfAborted();
        await sql`SELECT pg_sleep(0.2)`;
      }
    };
    await expect(reader.read(query, performance.now() + 300)).rejects.toThrow('in time');
    // It is sent once the query has ended.
    await read(0);
    expect(statements).toBeGreaterThan(0);
  });

  it('that is no longer needed is not retried if its connection breaks', async () => {
    await open(1, 1);
    let isNeeded = true;
    const abandoned = read(5, { name: 'abandoned', isNeeded: () => isNeeded });
    isNeeded = false;
    proxy.behave('refusing');
    proxy.behave('passing');
    await expect(abandoned).rejects.toThrow('abandoned');
    await read(0);
    expect(sent).toEqual(['abandoned', '']);
  });
});

describe('reads', () => {
  it('are served at the rate of the database if more are requested, and at once afterwards', async () => {
    await open(10, 3);
    // 33 a second.
    const serve = () => read(0.3, { limitMs: 2500 });
    const SECONDS = 6;
    const begin = performance.now();
    const served: number[] = [];
    const reasons = new Set<string>();
    const client = async () => {
      for (let seconds = 0; seconds < SECONDS; seconds = (performance.now() - begin) / 1000) {
        try {
          await serve();
          served.push(seconds);
        } catch (error) {
          reasons.add((error as Error).message);
          await sleep(1000);
        }
      }
    };
    await Promise.all(Array.from({ length: 300 }, client));
    const end = performance.now();
    await serve();
    expect(performance.now() - end).toBeLessThan(2000);
    // Once the first deadlines have passed, too.
    const later = served.filter((seconds) => seconds >= SECONDS / 2);
    expect(later.length).toBeGreaterThanOrEqual((25 * SECONDS) / 2);
    expect([...reasons]).toContain(TOO_MANY);
  });

  it('are rejected two seconds after the database could be reached', async () => {
    await open(1, 1);
    proxy.behave('refusing');
    await expect(read(0, { limitMs: 6000 })).rejects.toThrow("can't be reached");
    // With an attempt each 300 ms.
    expect(opened).toBeGreaterThan(3);
    expect(opened).toBeLessThan(10);
  });

  it('are sent at once on another connection if theirs ends', async () => {
    await open(2, 1);
    const events: string[] = [];
    const query = async ({ $client: sql }: Database) => {
      events.push('sent');
      if (events.length > 1) return sql`SELECT`;
      return sql`SELECT pg_terminate_backend(pg_backend_pid())`.catch((error) => {
        setImmediate(() => events.push('a turn of the event loop later'));
        throw error;
      });
    };
    await reader.read(query, performance.now() + 5000);
    expect(events.slice(0, 2)).toEqual(['sent', 'sent']);
  });

  it('have half a second after an outage, too', async () => {
    await open(1, 1);
    proxy.behave('refusing');
    const waiting = Array.from({ length: 10 }, () => read(0.03));
    await sleep(1000);
    proxy.behave('passing');
    await Promise.all(waiting);
  });
});

it('/readyz reports that the service is ready while more pages are requested than the database can serve', async () => {
  const service = await useServiceOn(created.url, { DATABASE_CONNECTIONS: '2' });
  const stop = repeat(12, () => fetch(`${service.url}/v1/brandedPhoneNumbers`));
  const readiness: number[] = [];
  // Pages need this table, and the check does not.
  await whileLocked(created.url, 'LOCK business_profiles', async () => {
    for (let i = 0; i < 10; i++) {
      await sleep(200);
      readiness.push((await fetch(`${service.url}/readyz`)).status);
    }
  });
  await stop();
  // Behind pages, none would be ready. On a busy machine, some responses may be late.
  expect(readiness.filter((status) => status === 200).length).toBeGreaterThanOrEqual(7);
});

it.each([
  [10_000, 1000, 4],
  [4500, 1000, 4],
  [4499, 1000, 3],
  [2500, 1000, 2],
  [1500, 1000, 1],
  [500, 1000, 1],
])('within %i ms, with statements of up to %i ms, %i can end one after the other', (requestMs, statementMs, reads) => {
  expect(readsPerConnection(requestMs, statementMs)).toBe(reads);
});
