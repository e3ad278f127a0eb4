/** What a command finds out about the sessions that block it. */
import type { Sql } from 'postgres';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { waitForBlockers } from '../../src/database/blockers.js';
import { closeDatabase, type Database, openDatabase } from '../../src/database/connect.js';
import { connectTo } from '../support/connection.js';
import { useDatabase } from '../support/database.js';
import { openToxicProxy, type ToxicProxy } from '../support/toxicProxy.js';

const created = useDatabase();
let proxy: ToxicProxy;
let url: string;
let blocked: Database;
let blocking: Sql;

beforeEach(async () => {
  proxy = await openToxicProxy(Number(new URL(created.url).port));
  url = proxy.through(created.url);
  blocked = openDatabase(created.url);
  blocking = connectTo(created.url);
  await blocking`BEGIN; LOCK TABLE items`.simple();
  blocked.$client`SELECT FROM items`.catch(() => {});
});
afterEach(() => Promise.all([blocking.end(), closeDatabase(blocked), proxy.close()]));

it('finds a blocker, although PostgreSQL could not be reached at first', async () => {
  proxy.behave('refusing');
  setTimeout(() => proxy.behave('passing'), 500);
  const blockers = await waitForBlockers(url, () => true, new AbortController().signal);
  expect(blockers).toEqual([expect.stringMatching(/^process \d+, /)]);
});

it('finds nothing once the command has ended', async () => {
  const end = new AbortController();
  const isBlocked = () => {
    end.abort();
    return true;
  };
  await expect(waitForBlockers(url, isBlocked, end.signal)).rejects.toThrow('aborted');
});
