/** What a command finds out about the sessions that block it. */
import { beforeEach, expect, it } from 'vitest';
import { waitForBlockers } from '../../src/database/blockers.js';
import { useConnection } from '../support/connection.js';
import { useDatabase, usePool } from '../support/database.js';
import { type ToxicProxy, useProxy } from '../support/toxicProxy.js';

const created = useDatabase();
let proxy: ToxicProxy;
let url: string;

beforeEach(async () => {
  proxy = await useProxy(created.url);
  url = proxy.through(created.url);
  await useConnection(created.url)`BEGIN; LOCK TABLE items`.simple();
  usePool(created.url).$client`SELECT FROM items`.catch(() => {});
});

it('finds a blocker, although PostgreSQL could not be reached at first', async () => {
  proxy.behave('refusing');
  setTimeout(() => proxy.behave('passing'), 500);
  const blockers = await waitForBlockers(url, () => true, new AbortController().signal);
  expect(blockers).toEqual([expect.stringMatching(/^process \d+, /)]);
});

it('finds who holds the advisory lock that a migration tries to get', async () => {
  await useConnection(created.url)`SELECT pg_advisory_lock(7245983)`;
  const blockers = await waitForBlockers(created.url, () => true, new AbortController().signal, 7_245_983);
  expect(blockers).toContainEqual(expect.stringMatching(/^process \d+, postgres, postgres\.js, idle$/));
});

it('finds nothing once the command has ended', async () => {
  const end = new AbortController();
  const isBlocked = () => {
    end.abort();
    return true;
  };
  await expect(waitForBlockers(url, isBlocked, end.signal)).rejects.toThrow('aborted');
});
