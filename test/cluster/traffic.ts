/** Clients, a writer and imports on a cluster, and checks of what each response may contain. */
import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { createApiKey, listApiKeys } from '../../src/keys/keys.js';
import { importNumbers } from '../../src/operator/numbers/import.js';
import { connectTo } from '../support/connection.js';
import { closeDatabase, openDatabase } from '../support/database.js';
import { requestFrom } from '../support/haproxy.js';
import type { TimedResponse } from '../support/timedResponses.js';
import type { Cluster } from './cluster.js';

const PATH = '/v1/brandedPhoneNumbers';
/** Each has its own address, so its own limit. */
const CLIENTS = 30;
const CLIENTS_WITHOUT_REDIS = 6;

/** An operation: when it was sent, when it ended, and whether it succeeded. */
interface Operation extends Omit<TimedResponse, 'status'> {
  succeeded: boolean;
}

/** All operations of one kind, and the wrong responses. */
export interface TrafficResult {
  operations: Operation[];
  wrong: string[];
}

/** Sends a request of a client, 0 to 249, through HAProxy, or to the instance that keeps its limit in PostgreSQL. */
export function sendRequest({ haproxy, withoutRedis }: Cluster, search: string, client = 0, isWithoutRedis = false) {
  return isWithoutRedis ? requestFrom(client, `${withoutRedis}${PATH}${search}`) : haproxy.get(search, client);
}

/** Prepares traffic on a cluster with the numbers of `lines`, some of which imports change. */
export async function trafficOf(cluster: Cluster, lines: string[]) {
  const items = lines.map((line) => JSON.parse(line));
  const imported = items.slice(0, 100).map((item) => ({ ...item, reportingGroup: 'Imported', updatedAt: undefined }));
  const profile = items[0].businessProfile.id;
  const WRITTEN = '+19990000000';

  /** The last attempt, and the last one that was acknowledged. */
  const writes = { tried: 0, acknowledged: 0 };
  const imports = { tried: 0, acknowledged: 0 };
  const written: number[] = [];
  const keys: string[] = [];

  async function importAll(): Promise<void> {
    const database = openDatabase(cluster.databaseUrl);
    try {
      const brandingNameShort = String(++imports.tried);
      const tried = imports.tried;
      await importNumbers(
        database.url,
        Readable.from(imported.map((item) => `${JSON.stringify({ ...item, brandingNameShort })}\n`)),
      );
      imports.acknowledged = tried;
      keys.push((await createApiKey(database, `key ${tried}`)).created.id);
    } finally {
      await closeDatabase(database, 0);
    }
  }

  const sql = connectTo(cluster.databaseUrl, { connect_timeout: 2, backoff: () => 0.1 });
  async function write(): Promise<void> {
    const tried = ++writes.tried;
    await sql`
      WITH written AS (INSERT INTO branded_phone_numbers (phone_number, business_profile_id, reporting_group)
        VALUES (${`+1999${1_000_000 + tried}`}, ${profile}, 'Written'))
      UPDATE branded_phone_numbers SET internal_name = ${String(tried)} WHERE phone_number = ${WRITTEN}`;
    writes.acknowledged = tried;
    written.push(tried);
  }

  await importAll();
  await sql`INSERT INTO branded_phone_numbers (phone_number, business_profile_id, internal_name) VALUES (${WRITTEN}, ${profile}, '0')`;
  await write();
  const unchanged = '?reportingGroup=Control&size=100';
  const { body: known } = await sendRequest(cluster, unchanged, 200, true);
  const phoneNumbersOf = (list: { phoneNumber: string }[]) => list.map(({ phoneNumber }) => phoneNumber).join();
  const importedNumbers = imported
    .map(({ phoneNumber }) => phoneNumber)
    .sort()
    .join();

  /** Three pages, each with a check of its response: it must show at least what `since` names, and nothing newer than tried. */
  const pages: [search: string, isRight: (body: string, since: { written: number; imported: number }) => boolean][] = [
    [unchanged, (body) => body === known],
    [
      `?phoneNumber=${encodeURIComponent(WRITTEN)}`,
      (body, since) => {
        const value = Number(JSON.parse(body).items[0]?.internalName);
        return value >= since.written && value <= writes.tried;
      },
    ],
    [
      '?reportingGroup=Imported&size=100',
      (body, since) => {
        const { items: list } = JSON.parse(body);
        // An import is written in one step or, if that was canceled on a busy machine, in its halves.
        const isRightItem = ({ brandingNameShort }: { brandingNameShort: string }) =>
          Number(brandingNameShort) >= since.imported && Number(brandingNameShort) <= imports.tried;
        return list.every(isRightItem) && phoneNumbersOf(list) === importedNumbers;
      },
    ],
  ];

  let isOver = false;
  /** Repeats an operation, with a pause in milliseconds, until the traffic is over. */
  async function repeat(result: TrafficResult, pause: number, operation: () => Promise<boolean>): Promise<void> {
    for (; !isOver; await sleep(pause)) {
      const sentAt = performance.now();
      const succeeded = await operation();
      result.operations.push({ sentAt, endedAt: performance.now(), succeeded });
    }
  }
  const succeeds = (operation: () => Promise<unknown>) => () =>
    operation().then(
      () => true,
      () => false,
    );

  function read(result: TrafficResult, client: number, isWithoutRedis: boolean): Promise<void> {
    let turn = client;
    return repeat(result, 250, async () => {
      const [search, isRight] = pages[turn++ % pages.length] as (typeof pages)[0];
      const since = isWithoutRedis
        ? { written: writes.acknowledged, imported: imports.acknowledged }
        : { written: 0, imported: 1 };
      const { status, body } = await sendRequest(cluster, search, client, isWithoutRedis);
      if (status === 200 && !isRight(body, since))
        result.wrong.push(`${search} ${JSON.stringify(since)}: ${body.slice(0, 500)}`);
      return status === 200;
    });
  }

  /** Runs all traffic during `action`. */
  async function during(action: () => Promise<void>) {
    isOver = false;
    const result = (): TrafficResult => ({ operations: [], wrong: [] });
    const results = { anyServer: result(), primary: result(), writes: result(), imports: result() };
    const running = [
      ...Array.from({ length: CLIENTS }, (_, client) => read(results.anyServer, client, false)),
      ...Array.from({ length: CLIENTS_WITHOUT_REDIS }, (_, client) => read(results.primary, 100 + client, true)),
      repeat(results.writes, 50, succeeds(write)),
      repeat(results.imports, 500, succeeds(importAll)),
    ];
    await action().finally(() => {
      isOver = true;
    });
    await Promise.all(running);
    return results;
  }

  /** Returns the acknowledged numbers and keys that are missing. */
  async function lost(): Promise<string[]> {
    const rows = await sql`SELECT phone_number FROM items WHERE phone_number LIKE '+1999%'`;
    const there = new Set(rows.map((row) => row.phone_number));
    const database = openDatabase(cluster.databaseUrl);
    const keysThere = new Set((await listApiKeys(database)).map(({ id }) => id));
    await closeDatabase(database);
    return [
      ...written.map((tried) => `+1999${1_000_000 + tried}`).filter((number) => !there.has(number)),
      ...keys.filter((id) => !keysThere.has(id)),
    ];
  }

  return { during, lost, end: () => sql.end({ timeout: 1 }) };
}

/** Returns the longest time without a success, in seconds. */
export function gapOf({ operations }: TrafficResult): number {
  const ends = operations
    .flatMap((operation) => (operation.succeeded ? [operation.endedAt] : []))
    .sort((a, b) => a - b);
  const times = [operations[0]?.sentAt ?? 0, ...ends, Math.max(...operations.map((operation) => operation.endedAt))];
  return Math.max(...times.slice(1).map((each, i) => each - (times[i] as number))) / 1000;
}
