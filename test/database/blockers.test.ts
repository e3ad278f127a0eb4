/** What a command finds out about the sessions that block it. */
import { setTimeout as sleep } from 'node:timers/promises';
import { beforeEach, expect, it, vi } from 'vitest';
import { watchingWaits } from '../../src/database/blockers.js';
import { useConnection } from '../support/connection.js';
import { useDatabase, usePool } from '../support/database.js';
import { type ToxicProxy, useProxy } from '../support/toxicProxy.js';
import { until } from '../support/until.js';

const created = useDatabase();
let proxy: ToxicProxy;
let url: string;

beforeEach(async () => {
  proxy = await useProxy(created.url);
  url = proxy.through(created.url);
  await useConnection(created.url)`BEGIN; LOCK TABLE items`.simple();
  usePool(created.url).$client`SELECT FROM items`.catch(() => {});
});

/** Returns the first blockers that are found. */
async function firstBlockers(address: string, lock = 0): Promise<string[]> {
  let found: string[] = [];
  const onFound = ({ blockers }: { blockers: string[] }) => (found = blockers);
  await watchingWaits(address, { mayBeBlocked: () => true, lock, onFound }, () => until(() => found.length > 0));
  return found;
}

it('finds a blocker, although PostgreSQL could not be reached at first', async () => {
  proxy.behave('refusing');
  setTimeout(() => proxy.behave('passing'), 500);
  const blockers = await firstBlockers(url);
  expect(blockers).toEqual([expect.stringMatching(/^process \d+, /)]);
});

it.each(['branded-phone-numbers', 'x'.repeat(63)])(
  'finds another container that holds the lock of migrations, although its process has the same number: %s',
  async (name) => {
    const connection = { application_name: `${name} ${process.pid}`.slice(0, 63) };
    await useConnection(created.url, { connection })`SELECT pg_advisory_lock(7245983)`;
    const named = `${created.url}?application_name=${name}`;
    const blockers = await firstBlockers(named, 7_245_983);
    expect(blockers).toContainEqual(expect.stringMatching(`^process \\d+, postgres, ${name}`));
  },
);

it('finds nothing once the command has ended', async () => {
  const onFound = vi.fn();
  let looks = 0;
  const mayBeBlocked = () => looks++ === 0;
  await watchingWaits(url, { mayBeBlocked, onFound }, () => until(() => looks > 0));
  await sleep(500);
  expect(onFound).not.toHaveBeenCalled();
});
