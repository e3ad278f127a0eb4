/** The pool, on a server that the test plays: it responds, holds, refuses and breaks as the test says. */
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { pino } from 'pino';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { Connection, type Database } from '../../src/database/connection.js';
import { Pool } from '../../src/database/pool.js';
import { Reader } from '../../src/database/reads.js';
import { openPostgresStore } from '../../src/service/rateLimit/postgresStore.js';
import { errorResponse, message, OK, openImpostor, READY } from '../support/impostor.js';
import { until } from '../support/until.js';

const RETRY_MS = 800;
const TIME_LIMIT_MS = 100;
/** After its time limit and this margin, a connection is silent for too long. */
const SILENT_MS = TIME_LIMIT_MS + 500;
const ROW = Buffer.concat([message('T', Buffer.from([0, 0])), message('D', Buffer.from([0, 0]))]);
const NOTICE = message('N', 'SNOTICE\0C00000\0Mstill working\0\0');
const COMPLETE = Buffer.concat([message('C', 'SELECT 1\0'), READY]);
/** The response to each statement that is to be prepared. */
const READ_ONLY = errorResponse('25006', 'cannot execute INSERT in a read-only transaction');
const FAILED = Buffer.concat([errorResponse('22012', 'division by zero'), READY]);

/** What the server does with a new connection, and with each statement but the empty one of `open`. */
let onLogin: 'accept' | 'hold' | 'refuse';
let onStatement: 'answer' | 'hold' | 'break' | 'fail';
/** Whether empty statements fail. */
let isResetFailing: boolean;
/** The number of statements that the server has received, without empty ones. */
let statements: number;
let clients: Socket[];
let accepted: () => number;
let url: string;
let pool: Pool;
let changes: number;
/** When the pool last changed, by `performance.now()`. */
let changedAt: number;

beforeEach(async () => {
  [onLogin, onStatement, isResetFailing] = ['accept', 'answer', false];
  [statements, clients, changes] = [0, [], 0];
  const server = await openImpostor(0, serve);
  ({ accepted } = server);
  url = `postgres://someone@127.0.0.1:${server.port}/some?sslmode=disable`;
  onTestFinished(() => server.close());
});

function serve(client: Socket): void {
  clients.push(client);
  client.once('data', () => {
    if (onLogin === 'refuse') client.destroy();
    if (onLogin === 'accept') client.write(Buffer.concat([OK, READY]));
    let unread = Buffer.alloc(0);
    client.on('data', (bytes) => {
      unread = Buffer.concat([unread, bytes]);
      while (unread.length > 4 && unread.length > unread.readUInt32BE(1)) {
        const length = 1 + unread.readUInt32BE(1);
        respond(client, unread.toString('latin1', 0, 1), unread.toString('latin1', 5, length - 1));
        unread = unread.subarray(length);
      }
    });
  });
}

function respond(client: Socket, type: string, statement: string): void {
  if (type === 'Q' && statement !== 'SELECT') statements++;
  if (type === 'S') client.write(READY);
  else if (type === 'P') client.write(READ_ONLY);
  else if (type === 'D' || type === 'H') return;
  else if (statement === 'SELECT') client.write(isResetFailing ? FAILED : COMPLETE);
  else if (onStatement === 'answer') client.write(Buffer.concat([ROW, COMPLETE]));
  else if (onStatement === 'fail') client.write(Buffer.concat([ROW, FAILED]));
  else if (onStatement === 'break') client.destroy();
}

/** Opens a pool; `connect` throws if `isUnusable` says so. */
function open({ size = 3, queriesAtOnce = 4, isUnusable = (): boolean => false } = {}): void {
  const connect = (onBroken: (reason: Error) => void) => {
    if (isUnusable()) throw new Error('unusable');
    return new Connection(url, { statementTimeout: TIME_LIMIT_MS, queriesAtOnce, onBroken });
  };
  const onChange = () => {
    changes++;
    changedAt = performance.now();
  };
  pool = new Pool(connect, { size, retryMs: RETRY_MS, onChange });
  onTestFinished(() => pool.close(0));
}

const query = (connection: Connection | undefined) =>
  connection?.run(({ $client }) => $client.unsafe('SELECT 1')).then(String, String);

/** Takes a connection and runs a query on it, if there is one. */
const use = () => query(pool.take());

/** Opens as many connections as the pool may have, and returns them. */
async function fill(size: number): Promise<Connection[]> {
  const before = accepted();
  onStatement = 'hold';
  pool.take();
  const connections: Connection[] = [];
  for (let count = 1; count <= size; count++) {
    await until(() => accepted() === before + count && !pool.isOpening, 'another one is open');
    const connection = pool.take() ?? expect.fail();
    connections.push(connection);
    void query(connection);
    if (count < size) pool.take();
  }
  answer();
  await until(() => connections.every(({ running }) => running === 0), 'all are idle');
  onStatement = 'answer';
  return connections;
}

/** Responds to a statement that was held on each connection. */
function answer(): void {
  for (const client of clients) if (!client.destroyed) client.write(Buffer.concat([ROW, COMPLETE]));
}

describe('a pool', () => {
  it('opens no other connection while one is idle', async () => {
    open();
    await fill(1);
    for (let i = 0; i < 5; i++) await use();
    await sleep(50);
    expect(accepted()).toBe(1);
  });

  it('opens another connection while none is idle, and uses one with room meanwhile', async () => {
    open();
    const [first] = await fill(1);
    [onStatement, onLogin] = ['hold', 'hold'];
    void use();
    expect(pool.take()).toBe(first);
    await until(() => accepted() === 2, 'another one is being opened');
  });

  it('has at most its size of connections, and uses the one with the fewest queries', async () => {
    open({ size: 2 });
    const [first, second] = await fill(2);
    onStatement = 'hold';
    const taken = [0, 1, 2, 3].map(() => {
      const connection = pool.take();
      void query(connection);
      return connection;
    });
    expect(taken).toEqual([first, second, first, second]);
    await sleep(50);
    expect(accepted()).toBe(2);
  });

  it('sends a connection no further query until it is idle, once it has as many as it may have', async () => {
    open({ size: 1, queriesAtOnce: 2 });
    await fill(1);
    onStatement = 'hold';
    void use();
    void use();
    expect(pool.take()).toBeUndefined();
    answer();
    await sleep(50);
    expect(pool.take()).toBeUndefined();
    answer();
    await until(() => pool.take() !== undefined, 'it is idle');
  });

  it('makes one attempt at a time in an outage, and none before its wait has ended', async () => {
    open();
    onLogin = 'refuse';
    pool.take();
    await until(() => changes === 1, 'the first attempt has failed');
    onLogin = 'hold';
    const isSecond = () => {
      pool.take();
      return accepted() === 2;
    };
    await until(isSecond, 'the second attempt begins');
    expect(performance.now() - changedAt).toBeGreaterThan(RETRY_MS - 10);
    for (const end = performance.now() + RETRY_MS; performance.now() < end; await sleep(5)) pool.take();
    expect(accepted()).toBe(2);
    expect(pool.isConnected).toBe(false);
    expect(pool.failure).toBeInstanceOf(Error);
  });

  it('makes several attempts at once before and after an outage', async () => {
    open();
    onLogin = 'hold';
    for (let i = 0; i < 5; i++) pool.take();
    await until(() => accepted() === 3, 'three attempts run');
    for (const client of clients) client.destroy();
    await until(() => changes === 3, 'they have failed');
    onLogin = 'accept';
    await sleep(RETRY_MS);
    await fill(1);
    [onLogin, onStatement] = ['hold', 'hold'];
    for (let i = 0; i < 5; i++) void use();
    await until(() => accepted() === 6, 'two attempts run');
  });

  it('waits after a query that breaks each connection', async () => {
    open();
    onStatement = 'break';
    for (const end = performance.now() + 2 * RETRY_MS; performance.now() < end; await sleep(5)) await use();
    expect(accepted()).toBeGreaterThan(1);
    expect(accepted()).toBeLessThan(5);
  });

  it('opens another connection at once after one that has been of use', async () => {
    open();
    await fill(1);
    onStatement = 'break';
    expect(await use()).toContain('closed the connection');
    expect(pool.isConnected).toBe(false);
    onStatement = 'answer';
    const isOpen = () => pool.take() !== undefined;
    await until(isOpen, 'another one is open', RETRY_MS - 100);
  });

  it('opens another connection at once after one that was idle when the server ended it', async () => {
    open();
    pool.take();
    await until(() => pool.isConnected, 'one is open');
    clients[0]?.destroy();
    await until(() => !pool.isConnected, 'it has ended');
    const isOpen = () => pool.take() !== undefined;
    await until(isOpen, 'another one is open', RETRY_MS - 100);
  });

  it('closes with a silent connection those that have been quiet for as long, but none that is receiving responses', async () => {
    open();
    const [silent, busy, quiet] = (await fill(3)) as [Connection, Connection, Connection];
    onStatement = 'hold';
    const cut = query(silent);
    await sleep(50);
    onStatement = 'answer';
    for (const end = performance.now() + SILENT_MS + 200; performance.now() < end; await sleep(20)) await query(busy);
    expect(await cut).toContain('does not respond');
    expect([silent.failure, busy.failure, quiet.failure]).toEqual([
      expect.objectContaining({ code: 'CONNECTION_SILENT' }),
      undefined,
      expect.objectContaining({ code: 'CONNECTION_SILENT' }),
    ]);
    expect(pool.take()).toBe(busy);
  });

  it('waits after a connection that can’t even be created', async () => {
    let tries = 0;
    open({ isUnusable: () => ++tries > 0 });
    for (const end = performance.now() + RETRY_MS - 100; performance.now() < end; await sleep(5)) pool.take();
    expect(tries).toBe(1);
    expect(pool.isOpening).toBe(false);
    expect(String(pool.failure)).toContain('unusable');
  });

  it('opens nothing once it is closed', async () => {
    open();
    await fill(1);
    await pool.close(0);
    for (let i = 0; i < 5; i++) pool.take();
    await sleep(50);
    expect(accepted()).toBe(1);
  });

  it('ends its attempts when it is closed', async () => {
    open();
    onLogin = 'hold';
    pool.take();
    await until(() => accepted() === 1, 'an attempt runs');
    await pool.close(0);
    expect(pool.isOpening).toBe(false);
    await until(() => clients.every(({ destroyed }) => destroyed), 'its connection is closed');
  });
});

describe('a reader', () => {
  const lines: string[] = [];
  let reader: Reader;

  beforeEach(() => {
    lines.length = 0;
    const log = pino({}, { write: (line: string) => void lines.push(JSON.parse(line).msg) });
    const connect = (onBroken: (reason: Error) => void) =>
      new Connection(url, { statementTimeout: TIME_LIMIT_MS, queriesAtOnce: 4, onBroken });
    reader = new Reader(connect, 2, log, { setQueries() {} });
    onTestFinished(() => reader.close(0));
  });

  const read = (limitMs: number) =>
    reader.read(({ $client }) => $client.unsafe('SELECT 1'), performance.now() + limitMs).then(String, String);

  it('logs an outage in which each read reaches its deadline before its connection opens', async () => {
    onLogin = 'refuse';
    expect(await read(100)).toContain('in time');
    expect(await read(100)).toContain('in time');
    expect(lines).toEqual(['the database does not respond']);
  });

  it('logs an outage of a read that has broken its connection, although another one is open', async () => {
    onStatement = 'hold';
    const held = Array.from({ length: 7 }, () => read(400));
    await until(() => statements === 7, 'all are sent');
    onStatement = 'break';
    expect(await read(200)).toContain('in time');
    expect(reader.isConnected).toBe(true);
    expect(lines).toEqual(['the database does not respond']);
    await Promise.all(held);
  });

  it('logs the end of an outage when a read has succeeded, not when a connection was opened, and no slow read after it', async () => {
    onStatement = 'break';
    expect(await read(100)).toContain('in time');
    const before = accepted();
    expect(await read(2 * RETRY_MS)).toContain('in time');
    expect(accepted()).toBeGreaterThan(before);
    expect(lines).toEqual(['the database does not respond']);
    onStatement = 'answer';
    await until(async () => !(await read(1000)).includes('Error'), 'a read succeeds');
    await read(1000);
    expect(lines).toEqual(['the database does not respond', 'the database responds again']);
    onStatement = 'hold';
    expect(await read(100)).toContain('in time');
    expect(lines).toHaveLength(2);
  });
});

describe("the rate limit's store on a read-only server", () => {
  it('opens a connection a second, not one for each batch', async () => {
    const store = openPostgresStore(url, 10, () => {});
    onTestFinished(() => store.close());
    const reasons = new Set<string>();
    for (const end = performance.now() + 1500; performance.now() < end || accepted() < 2; await sleep(20)) {
      await store.consume('client').catch((reason) => reasons.add(String(reason)));
    }
    // A busy machine may also exceed the time that the store waits for a response.
    reasons.delete('Error: no response within 150 ms');
    expect([...reasons]).toEqual([expect.stringContaining('read-only')]);
    expect(accepted()).toBeLessThan(4);
  });
});

describe('a connection', () => {
  it('is kept after statements that failed, and their rows are not counted with those of the next one', async () => {
    open({ size: 1 });
    const [connection] = await fill(1);
    for (let i = 0; i < 50; i++) {
      onStatement = 'fail';
      expect(await use()).toContain('division by zero');
      onStatement = 'answer';
      const rows = await connection?.run(({ $client }) => $client.unsafe('SELECT 1'));
      expect([rows?.length, rows?.[0]]).toEqual([1, {}]);
    }
    expect(accepted()).toBe(1);
  });

  it('runs a transaction alone', async () => {
    const connection = new Connection(url);
    onTestFinished(() => connection.close(0));
    const one = ({ $client }: Database) => $client.unsafe('SELECT 1');
    const [during, after] = [connection.run(one), connection.transaction('READ COMMITTED', async () => {})];
    await expect(after).rejects.toThrow('alone');
    await during;
    onStatement = 'hold';
    const transaction = connection.transaction('READ COMMITTED', async () => {});
    await expect(connection.run(one)).rejects.toThrow('alone');
    await expect(connection.transaction('READ COMMITTED', async () => {})).rejects.toThrow('alone');
    connection.destroy();
    await expect(transaction).rejects.toThrow();
  });

  it('is not silent while a response arrives', async () => {
    open({ size: 1 });
    const [connection] = await fill(1);
    onStatement = 'hold';
    const result = query(connection);
    for (const end = performance.now() + SILENT_MS + 200; performance.now() < end; await sleep(20))
      clients[0]?.write(NOTICE);
    clients[0]?.write(Buffer.concat([ROW, COMPLETE]));
    expect(await result).toBe('[object Object]');
  });

  it('is silent for too long although further queries are sent meanwhile', async () => {
    open({ size: 1 });
    const [connection] = await fill(1);
    onStatement = 'hold';
    const held = [query(connection)];
    for (const end = performance.now() + 2 * SILENT_MS; !connection?.failure && performance.now() < end; ) {
      await sleep(250);
      held.push(query(connection));
    }
    expect(connection?.failure).toMatchObject({ code: 'CONNECTION_SILENT' });
    await Promise.all(held);
  });

  it('is closed if the statement that resets it fails, too', async () => {
    open({ size: 1 });
    const [connection] = await fill(1);
    onStatement = 'fail';
    isResetFailing = true;
    expect(await use()).toContain('division by zero');
    await until(() => connection?.failure !== undefined, 'it is closed');
  });

  it('is closed after a statement that failed in a transaction', async () => {
    const connection = new Connection(url);
    await connection.open();
    onStatement = 'fail';
    const reason = await connection.transaction('READ COMMITTED', async () => {}).catch(String);
    expect(reason).toContain('division by zero');
    expect(connection.failure).toBeDefined();
  });
});
