/** What a command reports of the sessions that block it. */
import { expect, it, vi } from 'vitest';
import { closeDatabase, openDatabase } from '../../../src/database/connect.js';
import { reportBlockers } from '../../../src/operator/numbers/blockers.js';
import { connectTo } from '../../support/connection.js';
import { useDatabase } from '../../support/database.js';
import { openToxicProxy } from '../../support/toxicProxy.js';

const created = useDatabase();

it('reports a blocker in two lines, although the connection’s previous response broke off', async () => {
  const proxy = await openToxicProxy(Number(new URL(created.url).port));
  const database = openDatabase(proxy.through(created.url), { connections: 1, statementTimeout: 1000 });
  const blocked = openDatabase(created.url);
  const other = connectTo(created.url);
  await other`BEGIN; LOCK TABLE items`.simple();
  const waiting = blocked.$client`SELECT FROM items`.execute();
  await database.$client`SELECT`;
  proxy.halveResponses();
  const broken = database.$client`SELECT repeat('x', size) FROM unnest(ARRAY[1, 10000]) AS size`;
  await expect(database.sockets.awaited(broken)).rejects.toMatchObject({ code: 'CONNECTION_CLOSED' });
  const printed = vi.spyOn(console, 'error').mockReturnValue();
  await reportBlockers(database, () => true, new AbortController().signal);
  const lines = printed.mock.calls.join().split('\n');
  printed.mockRestore();
  expect(lines).toEqual([
    'waiting for transactions of other programs to end:',
    expect.stringMatching(/^ {2}process \d+, /),
  ]);
  await other`COMMIT`;
  await waiting;
  await Promise.all([closeDatabase(database, 0), closeDatabase(blocked), other.end(), proxy.close()]);
});
