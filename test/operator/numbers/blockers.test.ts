/** What a command reports of the sessions that block it. */
import type { Sql } from 'postgres';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { closeDatabase, type Database, openDatabase } from '../../../src/database/connect.js';
import { reportBlockers } from '../../../src/operator/numbers/blockers.js';
import { connectTo } from '../../support/connection.js';
import { useDatabase } from '../../support/database.js';
import { openToxicProxy, type ToxicProxy } from '../../support/toxicProxy.js';

const created = useDatabase();
const printed = vi.spyOn(console, 'error').mockReturnValue();
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
  printed.mockClear();
});
afterEach(() => Promise.all([closeDatabase(database, 0), blocking.end(), closeDatabase(blocked), proxy.close()]));

it('reports a blocker in two lines, although the connection’s previous response broke off', async () => {
  await database.$client`SELECT`;
  proxy.halveResponses();
  const broken = database.$client`SELECT repeat('x', size) FROM unnest(ARRAY[1, 10000]) AS size`;
  await expect(database.sockets.awaited(broken)).rejects.toMatchObject({ code: 'CONNECTION_CLOSED' });
  await reportBlockers(database, () => true, new AbortController().signal);
  expect(printed.mock.calls.join().split('\n')).toEqual([
    'waiting for transactions of other programs to end:',
    expect.stringMatching(/^ {2}process \d+, /),
  ]);
});

it('reports nothing once the command has ended', async () => {
  const end = new AbortController();
  const isBlocked = () => {
    end.abort();
    return true;
  };
  await expect(reportBlockers(database, isBlocked, end.signal)).rejects.toThrow('aborted');
  expect(printed).not.toHaveBeenCalled();
});
