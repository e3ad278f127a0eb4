/** Three instances behind HAProxy that read from two streaming replicas and never from the primary, under load. */
import { createReadStream } from 'node:fs';
import { Agent, get } from 'node:http';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Sql } from 'postgres';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { closeDatabase, openDatabase } from '../../src/database/connect.js';
import { importNumbers } from '../../src/numbers/import.js';
import { packageFolder } from '../../src/packageFolder.js';
import { connectTo } from '../connection.js';
import { withinASecond } from '../until.js';
import { type Cluster, missingPrograms, startCluster } from './cluster.js';

const PATH = '/v1/brandedPhoneNumbers';
const MAX_LAG_SECONDS = 2;
/** Each has its own address and so its own limit. */
const CLIENTS = 30;

interface Answer {
  status: number;
  /** The age of what it shows, in seconds, by the timestamp that the test keeps writing. */
  age: number;
}

describe.skipIf(missingPrograms.length > 0)('a cluster that reads from replicas', () => {
  let cluster: Cluster;
  let onPrimary: Sql;
  let phoneNumber: string;

  beforeAll(async () => {
    cluster = await startCluster({ readsFrom: 'replicas' });
    const database = openDatabase(cluster.primary.url);
    await importNumbers(database, createReadStream(join(packageFolder, 'demo', 'numbers.ndjson')));
    await closeDatabase(database);
    onPrimary = connectTo(cluster.primary.url);
    const [number] = await onPrimary`SELECT phone_number FROM branded_phone_numbers LIMIT 1`;
    phoneNumber = number?.phone_number;
    await sleep(500);
  });
  afterAll(async () => {
    await onPrimary?.end();
    await cluster?.stop();
  });

  const agent = new Agent({ keepAlive: true });

  /** One request of a client, through HAProxy. */
  function ask(client: number): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const url = `${cluster.url}${PATH}?phoneNumber=${encodeURIComponent(phoneNumber)}`;
      get(url, { agent, localAddress: `127.0.0.${client + 2}` }, (response) => {
        text(response).then((body) => {
          const status = response.statusCode ?? 0;
          // HAProxy's own answers are HTML.
          const mark = status === 200 ? Number(JSON.parse(body).items[0].internalName) : Number.NaN;
          resolve({ status, age: (Date.now() - mark) / 1000 });
        }, reject);
      }).on('error', reject);
    });
  }

  /** The answers to all clients while `action` runs, and writes go on; five requests a second each. */
  async function loadWhile(action: () => Promise<unknown>): Promise<Answer[]> {
    const answers: Answer[] = [];
    let isOver = false;
    async function write(): Promise<void> {
      for (; !isOver; await sleep(50))
        await onPrimary`UPDATE branded_phone_numbers SET internal_name = ${String(Date.now())} WHERE phone_number = ${phoneNumber}`;
    }
    async function read(client: number): Promise<void> {
      for (; !isOver; await sleep(200)) answers.push(await ask(client));
    }
    const writing = write();
    await sleep(500);
    const reading = Array.from({ length: CLIENTS }, (_, client) => read(client));
    await action().finally(() => {
      isOver = true;
    });
    await Promise.all([writing, ...reading]);
    return answers;
  }

  const oldest = (answers: Answer[]) => Math.max(...answers.flatMap(({ age }) => (age > 0 ? [age] : [])));
  const failed = (answers: Answer[]) => answers.filter(({ status }) => status !== 200);

  it('limits a client over all instances together', async () => {
    const burst = await withinASecond(() => Promise.all(Array.from({ length: 50 }, () => ask(100))));
    expect(burst.filter(({ status }) => status === 200)).toHaveLength(10);
    expect(burst.filter(({ status }) => status === 429)).toHaveLength(40);
  });

  it('answers every request, with data that is less than 2 seconds old', async () => {
    const answers = await loadWhile(() => sleep(5000));
    console.log(`replicas: ${answers.length} answers in 5 s, the oldest ${oldest(answers).toFixed(2)} s behind`);
    expect(failed(answers)).toEqual([]);
    expect(oldest(answers)).toBeLessThan(MAX_LAG_SECONDS);
  });
});
