/** The commands on many numbers, while a client walks through the list and a program writes. */
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import {
  type BrandedPhoneNumber,
  DetailedStatus,
  Feature,
  type BrandedPhoneNumberPage as Page,
} from '../../../generated/types/models/index.js';
import { dice } from '../../../scripts/dice.js';
import { withoutProgress } from '../../support/command.js';
import { connectTo } from '../../support/connection.js';
import { createDatabase } from '../../support/database.js';
import { phoneNumberAt, profileId } from '../../support/generatedNumbers.js';
import { randomFilters } from '../../support/randomFilters.js';
import { find, overallStatus, type Query, searchOf } from '../../support/reference.js';
import { MAIN, SERVE, type Server, startServer } from '../../support/serverProcess.js';
import { fakeOneRowStatistics } from '../../support/statistics.js';
import { makeFolder } from '../../support/temporaryFolder.js';
import { walk } from '../../support/walk.js';

/** In this many numbers, a command that keeps its input's lines exceeds its memory. */
const COUNT = process.env.RELEASE === '1' ? 100_000 : 50_000;
const TIME = '2026-02-03T16:49:02.748Z';
/** The number that the program writes, which comes last in the list. */
const WRITTEN = '+19999999999';

test(`commands on ${COUNT} numbers use little memory, and delay neither pages nor writes`, async () => {
  // New for each try, so that CI's second one finds no numbers of the first.
  const url = await createDatabase();
  const folder = await makeFolder('branded-phone-numbers-operating-');
  const isKept = (index: number) => index % 3 > 0;
  const deleted = Math.floor(COUNT / 3);
  await writeFile(join(folder, 'numbers'), lines());
  const third = Array.from({ length: deleted }, (_, i) => `${phoneNumberAt(3 * (i + 1))}\n`);
  await writeFile(join(folder, 'third'), third.join(''));

  const environment = { DATABASE_URL: url, RATE_LIMIT_PER_SECOND: '0', LOG_LEVEL: 'silent' };
  const server = await startServer(SERVE, environment);
  const sql = connectTo(url);
  const client = walker(server);
  const [writes, pages] = [repeatedly(await writer(url)), repeatedly(client)];
  const run = async (line: string, expectedOutput: string) => {
    await writes.longest();
    const { seconds, memory, code, output } = await measured(line.split(' '), folder, url);
    const [write, unfinished] = [await writes.longest(), client.unfinished()];
    expect({ code, output, unfinished }, line).toEqual({ code: 0, output: expectedOutput, unfinished: 0 });
    // docs/performance.md: at any number of numbers.
    expect(memory, line).toBeLessThan(200);
    // docs/operations.md: no writer waits for the end of a command.
    expect(write, line).toBeLessThan(1000 + (seconds * 1000) / 3);
  };

  try {
    const imported = `imported ${COUNT} numbers, ${4 * COUNT} carrier statuses\n`;
    await run('import numbers', imported);
    await expectAll(server, () => true);
    const newest = await newestRow();
    await fakeOneRowStatistics(sql, 1 / 2);
    await run('import numbers', imported);
    assert.equal(await newestRow(), newest);

    const exported = `exported ${COUNT + 1} numbers, ${4 * COUNT + 1} carrier statuses\n`;
    await run('export exported', exported);
    const compare = `cmp <(grep -vF '"${WRITTEN}"' exported) numbers`;
    execFileSync('bash', ['-c', compare], { cwd: folder });

    await fakeOneRowStatistics(sql, 1 / 2);
    await run('delete third', `deleted ${deleted} numbers\n`);
    await expectAll(server, isKept);
    const matches = 'OK: the read model matches its sources\n';
    await run('check', matches);
    // Clients get incomplete pages until the repair, so they wait for its end.
    await pages.stop();
    const lost = process.env.RELEASE === '1' ? COUNT : COUNT / 5;
    for (const table of ['items', 'postings']) {
      await sql`DELETE FROM ${sql(table)} WHERE phone_number <= ${phoneNumberAt(lost)}`;
    }
    const examples = [1, 2, 4, 5, 7].map(phoneNumberAt).join(', ');
    const repaired = `repaired: ${lost - Math.floor(lost / 3)} numbers differ from their sources: ${examples}, …\n`;
    await run('check --repair', repaired + matches);
    await expectAll(server, isKept);
    await Promise.all([writes.stop(), pages.stop()]);
  } finally {
    await Promise.allSettled([writes.stop(), pages.stop()]);
    await sql.end({ timeout: 0 });
    await server.stop();
  }

  /** Returns the latest transaction that wrote to numbers of the import. */
  async function newestRow(): Promise<string> {
    const tables = ['branded_phone_numbers', 'carrier_statuses', 'items', 'postings'];
    const selects = tables.map((table) => `SELECT xmin FROM ${table} WHERE phone_number <> '${WRITTEN}'`);
    const [row] = await sql.unsafe(
      `SELECT max(xmin::text::bigint)::text FROM (${selects.join(' UNION ALL ')}) AS rows`,
    );
    return row?.max;
  }
}, 3_600_000);

/** Yields numbers as an export has them, in its order; values are as frequent as in the benchmark's. */
function* numbers(): Generator<BrandedPhoneNumber> {
  const random = dice(1);
  const skewed = (most: number) => Math.floor(most ** random());
  const statuses = Object.values(DetailedStatus);
  for (let index = 1; index <= COUNT; index++) {
    const rank = skewed(1000);
    const isApproved = random() < 0.8;
    const detailedStatus = () => (isApproved ? 'approved.optIn' : statuses[Math.floor(statuses.length * random())]);
    const carrierStatuses = ['AT&T', 'Verizon'].flatMap((carrier) =>
      Object.values(Feature).map((feature) => ({
        carrier,
        feature,
        detailedStatus: detailedStatus() as DetailedStatus,
        createdAt: TIME,
      })),
    );
    yield {
      id: `00000000-0000-4000-9000-${String(index).padStart(12, '0')}`,
      phoneNumber: phoneNumberAt(index),
      businessProfile: { id: profileId(rank), businessName: `Company ${rank}`, status: 'approved' },
      internalName: `Line ${skewed(5000)}`,
      brandingNameShort: 'Company',
      brandingNameLong: 'Company Long',
      reportingGroup: `Group ${skewed(500)}`,
      status: overallStatus(carrierStatuses),
      carrierStatuses,
      createdAt: TIME,
      updatedAt: TIME,
    };
  }
}

/** Yields lines of the numbers, about a megabyte at a time. */
function* lines(): Generator<string> {
  let block = '';
  for (const number of numbers()) {
    block += `${JSON.stringify(number)}\n`;
    if (block.length > 1_000_000) {
      yield block;
      block = '';
    }
  }
  yield block;
}

/** Runs the command to its end; `memory` is its peak in MB, `output` what it printed but its database and progress. */
async function measured(args: string[], cwd: string, DATABASE_URL: string) {
  const start = performance.now();
  const child = spawn(process.execPath, [MAIN, ...args], { cwd, env: { ...process.env, DATABASE_URL } });
  let printed = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (data) => (printed += data));
  let isRunning = true;
  const close = once(child, 'close').finally(() => (isRunning = false));
  let memory = 0;
  while (isRunning) {
    const status = await readFile(`/proc/${child.pid}/status`, 'utf8').catch(() => '');
    memory = Math.max(memory, Number(/VmHWM:\s+(\d+)/.exec(status)?.[1] ?? 0) / 1024);
    await Promise.race([close, sleep(50)]);
  }
  const [code] = await close;
  const output = withoutProgress(printed.replace(/^database: .*\n/gm, ''));
  return { code, output, seconds: (performance.now() - start) / 1000, memory };
}

/** Repeats `act` until `stop`. `longest` waits for the current one, and returns the longest since the previous call in ms. */
function repeatedly({ once: act, end }: { once(): Promise<void>; end(): Promise<void> }) {
  let [longest, isStopping] = [0, false];
  let current = Promise.resolve();
  const running = (async () => {
    for (; !isStopping; await sleep(100)) {
      const start = performance.now();
      current = act().finally(() => (longest = Math.max(longest, performance.now() - start)));
      await current;
    }
  })();
  running.catch(() => {});
  return {
    async longest() {
      await current;
      const milliseconds = longest;
      longest = 0;
      return milliseconds;
    },
    async stop() {
      isStopping = true;
      await running.finally(end);
    },
  };
}

/** A program that changes an entry of a number that no command touches. */
async function writer(url: string) {
  const sql = connectTo(url);
  const id = profileId(0);
  await sql`INSERT INTO business_profiles VALUES (${id}, 'Circle Bank', 'approved')`;
  await sql`INSERT INTO branded_phone_numbers (phone_number, business_profile_id) VALUES (${WRITTEN}, ${id})`;
  await sql`INSERT INTO carrier_statuses VALUES (${WRITTEN}, 'AT&T', 'brandedCallerId', 'approved.optIn')`;
  return {
    async once() {
      await sql`
        UPDATE carrier_statuses SET detailed_status = CASE detailed_status
          WHEN 'approved.optIn' THEN 'rejected.optIn' ELSE 'approved.optIn' END::detailed_status
        WHERE phone_number = ${WRITTEN}`;
    },
    end: () => sql.end(),
  };
}

/** A client that walks through up to 20 pages of one random filter after another, and compares them with the reference. */
function walker(server: Server) {
  const queries = [...randomFilters('one attribute', 100, 2), ...randomFilters('several attributes', 100, 3)];
  let [index, pagesLeft, last, cursor]: [number, number, string, string | null] = [-1, 0, '', null];
  let unfinished = 0;
  return {
    /** Returns the count since the previous call. */
    unfinished() {
      const count = unfinished;
      unfinished = 0;
      return count;
    },
    async once() {
      if (cursor === null || pagesLeft === 0)
        [index, pagesLeft, last, cursor] = [(index + 1) % queries.length, 20, '', null];
      const query = queries[index] as Query;
      const search = searchOf(cursor === null ? query : { ...query, nextCursor: cursor });
      const response = await fetch(`${server.url}/v1/brandedPhoneNumbers?${search}`);
      const body = await response.text();
      if (response.status === 503) {
        // The next page is of the next filter.
        [pagesLeft, unfinished] = [0, unfinished + 1];
        return;
      }
      assert.equal(response.status, 200, body);
      const { items, nextCursor }: Page = JSON.parse(body);
      const matching = find(items, query).filter(({ phoneNumber }) => phoneNumber > last);
      assert.deepEqual(items, matching, `a page of ${searchOf(query)} after '${last}'`);
      [pagesLeft, last, cursor] = [pagesLeft - 1, items.at(-1)?.phoneNumber ?? last, nextCursor];
    },
    async end() {},
  };
}

/** Walks through all pages of a filter; fails unless they have the numbers of `isKept` indexes that match it. */
async function expectAll(server: Server, isKept: (index: number) => boolean): Promise<void> {
  const query: Query = { reportingGroup: ['Group 7', 'Group 90'], feature: ['spamRemediation'], status: ['approved'] };
  const expected = [];
  let index = 0;
  for (const number of numbers()) if (isKept(++index)) expected.push(...find([number], query));
  assert.deepEqual((await walk(server.url, searchOf(query))).flat(), expected);
}
