/** What a command counts if its connection ends between a commit and the response. */
import { Readable } from 'node:stream';
import { expect, it } from 'vitest';
import { deriveAll } from '../../../src/operator/numbers/check.js';
import { deleteNumbers } from '../../../src/operator/numbers/delete.js';
import { useDatabase } from '../../support/database.js';
import { numberWith, write } from '../../support/numbers.js';
import { useProxy } from '../../support/toxicProxy.js';
import { until } from '../../support/until.js';

const database = useDatabase();

it.each<[string, number, (url: string) => Promise<number | undefined>]>([
  ['repaired', 2, async (url) => (await deriveAll(url, { keep: true }))[0]?.count],
  ['deleted', 0, async (url) => (await deleteNumbers(url, Readable.from([Buffer.from('+11\n+12')]))).deleted],
])('a number that was %s counts, although the response to the commit was lost', async (_verb, items, change) => {
  const { sql, drizzle } = database;
  if (items > 0) await write(drizzle, [numberWith({ phoneNumber: '+11' }), numberWith({ phoneNumber: '+12' })]);
  if (items > 0) await sql`DELETE FROM items`;
  const proxy = await useProxy(database.url);
  proxy.behave('slow', 200);
  const changing = change(proxy.through(database.url));
  await until(async () => (await sql`SELECT FROM items`).length === items, 'it is committed');
  proxy.behave('passing');
  proxy.reset();
  expect(await changing).toBe(2);
});
