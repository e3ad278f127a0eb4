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
let database: Database;
let blocked: Database;
let blocking: Sql;

beforeEach(async () => {
  proxy = await openToxicProxy(Number(new URL(created.url).port));
  database = openDatabase(proxy.through(created.url), { connections: 1, statementTimeout: 1000 });
  blocked = openDatabase(created.url);
  blocking = connectTo(created.url);
  await blocking`BEGIN; LOCK TABLE items`.simple();
  blocked.$client`SELECT FROM items`.catch(() => {});
});
afterEach(() => Promise.all([closeDatabase(database, 0), blocking.end(), closeDatabase(blocked), proxy.close()]));

it('finds a blocker, although the connection’s previous response broke off', async () => {
  await database.$client`SELECT`;
  proxy.halveResponses();
  const broken = database.$client`SELECT repeat('x', size) FROM unnest(ARRAY[1, 10000]) AS size`;
  await expect(database.sockets.awaited(broken)).rejects.toMatchObject({ code: 'CONNECTION_CLOSED' });
  const blockers = await waitForBlockers(database, () => true, new AbortController().signal);
  expect(blockers).toEqual([expect.stringMatching(/^process \d+, /)]);
});

it('finds nothing once the command has ended', async () => {
  const end = new AbortController();
  const isBlocked = () => {
    end.abort();
    return true;
  };
  await expect(waitForBlockers(database, isBlocked, end.signal)).rejects.toThrow('aborted');
});
