/** The commands at a size that operators have, while a client walks through the list and a program writes to it. */
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Sql } from 'postgres';
import { expect, test } from 'vitest';
import { type BrandedPhoneNumber, DetailedStatus, Feature } from '../../../generated/types/models/index.js';
import { packageFolder } from '../../../src/packageFolder.js';
import { connectTo } from '../../support/connection.js';
import { createDatabase } from '../../support/database.js';
import { dice, phoneNumberAt, profileId } from '../../support/generatedNumbers.js';
import { type Server, startServer } from '../../support/measuredServer.js';
import { randomFilters } from '../../support/randomFilters.js';
import { find, overallStatus, type Query, searchOf } from '../../support/reference.js';
import { fakeOneRowStatistics } from '../../support/statistics.js';

const MAIN = join(packageFolder, 'dist/src/main.js');
const COUNT = 100_000;
const TIME = '2026-02-03T16:49:02.748Z';
/** The number that the program writes, after all others. */
const WRITTEN = '+19999999999';

/** A command that was run, and what happened meanwhile. */
interface Operation {
  what: string;
  seconds: number;
  /** The most memory that it took, in MB. */
  memory: number;
  /** The longest that a write took, in milliseconds. */
  write: number;
  /** How many pages PostgreSQL did not finish in their second. */
  unfinished: number;
}

test(`${COUNT} numbers are imported, checked, repaired, exported, deleted and restored while pages are read`, async () => {
  const [database, restored] = [await createDatabase(), await createDatabase()];
  const folder = await mkdtemp(join(tmpdir(), 'branded-phone-numbers-operating-'));
  try {
    for (const { what, seconds, memory, write, unfinished } of await operate(
      database.url,
      restored.url,
      COUNT,
      folder,
    )) {
      expect([what, unfinished]).toEqual([what, 0]);
      // docs/performance.md: whatever the size.
      expect([what, memory]).toEqual([what, expect.toSatisfy((value: number) => value < 200)]);
      // docs/operations.md: no writer waits for a command.
      expect([what, write]).toEqual([what, expect.toSatisfy((value: number) => value < 1000 + (seconds * 1000) / 3)]);
    }
  } finally {
    await rm(folder, { recursive: true, force: true });
    await Promise.all([database.drop(), restored.drop()]);
  }
}, 3_600_000);

/**
 * Fills the migrated, empty database at `url` with `count` numbers of four entries, and the one at `restoredUrl` with a dump
 * of what is left of it in the end. Throws unless each command does and says what it should, and each page is right.
 */
async function operate(url: string, restoredUrl: string, count: number, folder: string): Promise<Operation[]> {
  const isLeft = (index: number) => index % 3 > 0;
  const left = count - Math.floor(count / 3);
  await writeFile(
    join(folder, 'numbers'),
    lines(count, () => true),
  );
  await writeFile(join(folder, 'left'), lines(count, isLeft));
  const third = Array.from({ length: count - left }, (_, i) => `${phoneNumberAt(3 * (i + 1))}\n`);
  await writeFile(join(folder, 'third'), third.join(''));

  const environment = { DATABASE_URL: url, RATE_LIMIT_PER_SECOND: '0', LOG_LEVEL: 'silent' };
  const server = await startServer([MAIN, 'serve'], '/readyz', environment);
  const sql = connectTo(url);
  const walk = walker(server);
  const [writes, pages] = [repeatedly(await writer(url)), repeatedly(walk)];
  const operations: Operation[] = [];
  const run = async (what: string, args: string[], said: string, { code = 0, database = url } = {}) => {
    await writes.longest();
    const { seconds, memory, ...ended } = await measured(args, folder, database);
    operations.push({ what, seconds, memory, write: await writes.longest(), unfinished: walk.unfinished() });
    assert.deepEqual(ended, { code, said });
  };
  /** Compares what was exported, without the number that the program writes. */
  const isExported = (name: string, wanted: string) =>
    execFileSync('bash', ['-c', `cmp <(grep -vF '"${WRITTEN}"' ${name}) ${wanted}`], { cwd: folder });

  try {
    const imported = `imported ${count} numbers, ${4 * count} carrier statuses\n`;
    await run('import', ['import', 'numbers'], imported);
    await expectAll(server, count, () => true);
    const newest = await newestRow();
    await fakeOneRowStatistics(sql, 1 / 2);
    await run('the same again', ['import', 'numbers'], imported);
    assert.equal(await newestRow(), newest);

    const [item = '', missing = '', stray = ''] = [1, count >> 1, count].map(phoneNumberAt);
    await sql`UPDATE items SET reporting_group = 'spoilt' WHERE phone_number = ${item}`;
    await sql`DELETE FROM postings WHERE phone_number = ${missing}`;
    await sql`INSERT INTO postings SELECT 99, phone_number, id FROM items WHERE phone_number = ${stray}`;
    const differ = (found: number, examples: string) => `${found} numbers differ from their sources: ${examples}\n`;
    const found = [differ(2, `${item}, ${missing}`), `1 numbers have stale index entries: ${stray}\n`] as const;
    await run('check', ['check'], found.join(''), { code: 1 });
    const right = 'OK: the read model matches its sources\n';
    const repaired = (each: string) => `repaired: ${each}`;
    await run('check --repair', ['check', '--repair'], found.map(repaired).join('') + right);
    await run('export', ['export', 'exported'], `exported ${count + 1} numbers, ${4 * count + 1} carrier statuses\n`);
    isExported('exported', 'numbers');

    await fakeOneRowStatistics(sql, 1 / 2);
    await run('delete of a third', ['delete', 'third'], `deleted ${count - left} numbers\n`);
    await expectAll(server, count, isLeft);
    await run('check of the rest', ['check'], right);
    await restoreSources(sql, restoredUrl);
    const examples = `${[1, 2, 4, 5, 7].map(phoneNumberAt).join(', ')}, …`;
    const ofDump = { database: restoredUrl };
    await run('dump: check --repair', ['check', '--repair'], repaired(differ(left + 1, examples)) + right, ofDump);
    const restored = `exported ${left + 1} numbers, ${4 * left + 1} carrier statuses\n`;
    await run('dump: export', ['export', 'restored'], restored, ofDump);
    isExported('restored', 'left');
    await Promise.all([writes.stop(), pages.stop()]);
    return operations;
  } finally {
    await Promise.allSettled([writes.stop(), pages.stop()]);
    await sql.end({ timeout: 0 });
    await server.stop();
  }

  /** The transaction that wrote last to the other numbers. */
  async function newestRow(): Promise<string> {
    const tables = ['branded_phone_numbers', 'carrier_statuses', 'items', 'postings'];
    const each = tables.map((table) => `SELECT xmin FROM ${table} WHERE phone_number <> '${WRITTEN}'`);
    const [row] = await sql.unsafe(`SELECT max(xmin::text::bigint)::text FROM (${each.join(' UNION ALL ')}) AS rows`);
    return row?.max;
  }
}

/** Numbers as an export has them, in its order; each value is as frequent as in the bench's. */
function* numbers(count: number): Generator<BrandedPhoneNumber> {
  const random = dice(1);
  const skewed = (most: number) => Math.floor(most ** random());
  const statuses = Object.values(DetailedStatus);
  for (let index = 1; index <= count; index++) {
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

function* lines(count: number, isWanted: (index: number) => boolean): Generator<string> {
  let block = '';
  let index = 0;
  for (const number of numbers(count)) {
    if (isWanted(++index)) block += `${JSON.stringify(number)}\n`;
    if (block.length > 1_000_000) {
      yield block;
      block = '';
    }
  }
  yield block;
}

/** Runs the command to its end; `said` is what it printed, without the database's name. */
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
  const said = printed.replace(/^database: .*\n/m, '');
  return { code, said, seconds: (performance.now() - start) / 1000, memory };
}

/** Does something again and again. `longest` resolves once it was done again, with the longest time since it was asked last. */
function repeatedly({ once: act, end }: { once(): Promise<void>; end(): Promise<void> }) {
  let [longest, isStopping] = [0, false];
  let turn = Promise.resolve();
  const running = (async () => {
    for (; !isStopping; await sleep(50)) {
      const start = performance.now();
      turn = act().finally(() => (longest = Math.max(longest, performance.now() - start)));
      await turn;
    }
  })();
  running.catch(() => {});
  return {
    async longest() {
      await turn;
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

/** A program that changes an entry of a number of its own. */
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

interface Page {
  items: BrandedPhoneNumber[];
  nextCursor: string | null;
}

/** A client that walks through the list with one random filter after the other, a few pages of each. */
function walker(server: Server) {
  const queries = [...randomFilters('one attribute', 100, 2), ...randomFilters('several attributes', 100, 3)];
  let [asked, left, last, cursor]: [number, number, string, string | null] = [-1, 0, '', null];
  let unfinished = 0;
  return {
    /** Since it was asked last. */
    unfinished() {
      const count = unfinished;
      unfinished = 0;
      return count;
    },
    async once() {
      if (cursor === null || left === 0) [asked, left, last, cursor] = [(asked + 1) % queries.length, 20, '', null];
      const query = queries[asked] as Query;
      const { status, body } = await ask(server, query, cursor);
      if (status === 503) {
        // Another filter, next.
        [left, unfinished] = [0, unfinished + 1];
        return;
      }
      const { items, nextCursor } = pageIn({ status, body });
      const right = find(items, query).filter(({ phoneNumber }) => phoneNumber > last);
      assert.deepEqual(items, right, `a page of ${searchOf(query)} after '${last}'`);
      [left, last, cursor] = [left - 1, items.at(-1)?.phoneNumber ?? last, nextCursor];
    },
    async end() {},
  };
}

async function ask(server: Server, query: Query, cursor: string | null): Promise<{ status: number; body: string }> {
  const search = searchOf(cursor === null ? query : { ...query, nextCursor: cursor });
  const response = await fetch(`${server.url}/v1/brandedPhoneNumbers?${search}`);
  return { status: response.status, body: await response.text() };
}

function pageIn({ status, body }: { status: number; body: string }): Page {
  assert.equal(status, 200, body);
  return JSON.parse(body);
}

/** Walks through all pages of a filter, which have to hold those numbers of the first `count` that it matches. */
async function expectAll(server: Server, count: number, isWanted: (index: number) => boolean): Promise<void> {
  const query: Query = { reportingGroup: ['Group 7', 'Group 90'], feature: ['spamRemediation'], status: ['approved'] };
  const wanted = [];
  let index = 0;
  for (const number of numbers(count)) if (isWanted(++index)) wanted.push(...find([number], query));
  const found = [];
  for (let cursor: string | null = null, page: Page | undefined; page === undefined || cursor !== null; ) {
    page = pageIn(await ask(server, query, cursor));
    found.push(...page.items);
    cursor = page.nextCursor;
  }
  assert.deepEqual(found, wanted);
}

/** Copies the sources as `pg_restore --data-only --disable-triggers` does. */
async function restoreSources(from: Sql, url: string): Promise<void> {
  const to = connectTo(url, { connection: { session_replication_role: 'replica' } });
  const [data] = await from`SHOW data_directory`;
  for (const table of ['business_profiles', 'branded_phone_numbers', 'carrier_statuses']) {
    await from.unsafe(`COPY ${table} TO '${data?.data_directory}/dump'`);
    await to.unsafe(`COPY ${table} FROM '${data?.data_directory}/dump'`);
  }
  await from.unsafe(`COPY (SELECT) TO PROGRAM 'cat >/dev/null; rm dump'`);
  await to.end();
}
