/** Reads on connections that respond late or not at all, with and without TLS. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, it, type TestContext } from 'vitest';
import { Connection } from '../../src/database/connection.js';
import type { Connect } from '../../src/database/pool.js';
import { Reader } from '../../src/database/reads.js';
import { openLog } from '../../src/log.js';
import { hasOpenssl, startPostgresWithTls } from '../support/certificates.js';
import { type PostgresServer, startPostgres } from '../support/postgresServer.js';
import { openToxicProxy, type ToxicProxy } from '../support/toxicProxy.js';
import { until } from '../support/until.js';

const TIME_LIMIT_MS = 1000;
/** Few, because all of them are opened within the two seconds that a read waits, in several tests at once. */
const CONNECTIONS = 4;

let server: PostgresServer;
beforeAll(async () => {
  server = await (hasOpenssl ? startPostgresWithTls() : startPostgres());
});
afterAll(() => server.remove());

// Concurrent, because they mostly wait.
describe.concurrent.each(hasOpenssl ? ['disable', 'require'] : ['disable'])(
  'a read from PostgreSQL with sslmode=%s',
  (sslmode) => {
    async function openReader(onTestFinished: TestContext['onTestFinished']) {
      const proxy = await openToxicProxy(server.port);
      const url = `${proxy.through(server.url)}?sslmode=${sslmode}`;
      const connect: Connect = (onBroken) =>
        new Connection(url, { statementTimeout: TIME_LIMIT_MS, queriesAtOnce: 3, onBroken });
      const log = openLog({ LOG_LEVEL: 'silent' });
      const reader = new Reader(connect, CONNECTIONS, log, { setQueries() {} });
      onTestFinished(async () => {
        await reader.close(0);
        await proxy.close();
      });
      /** Returns the process id of the backend that responds. */
      const read = (seconds = 0, limitMs = 5000) =>
        reader.read(async ({ $client: sql }) => {
          const [row] = await sql`SELECT pg_backend_pid() AS pid, pg_sleep(${seconds})`;
          return row?.pid as number;
        }, performance.now() + limitMs);
      const readTogether = (count: number, seconds = 0) =>
        Promise.all(Array.from({ length: count }, () => read(seconds)));
      // All connections are open, and have prepared the statement. On a busy machine, reads are rejected that wait for the
      // next connection for too long.
      const opened = () => readTogether(CONNECTIONS, 0.3).catch(() => []);
      await until(async () => new Set(await opened()).size === CONNECTIONS);
      return { proxy, read, readTogether };
    }

    it('keeps its connection if the response is late but in time', async ({ expect, onTestFinished }) => {
      const { proxy, readTogether } = await openReader(onTestFinished);
      const before = new Set(await readTogether(CONNECTIONS, 0.3));
      proxy.behave('slow', 600);
      await readTogether(2 * CONNECTIONS, 0.6);
      proxy.behave('passing');
      expect(new Set(await readTogether(CONNECTIONS, 0.3))).toEqual(before);
    });

    it('keeps its connection after an idle time', async ({ expect, onTestFinished }) => {
      const { readTogether } = await openReader(onTestFinished);
      const before = new Set(await readTogether(CONNECTIONS, 0.3));
      await sleep(TIME_LIMIT_MS + 1500);
      expect(new Set(await readTogether(CONNECTIONS, 0.3))).toEqual(before);
    });

    it('succeeds although all connections were idle and are cut silently', async ({ expect, onTestFinished }) => {
      const { proxy, read, readTogether } = await openReader(onTestFinished);
      await readTogether(CONNECTIONS, 0.3);
      await sleep(TIME_LIMIT_MS + 1500);
      proxy.forgetConnections();
      await expect(read()).resolves.toEqual(expect.any(Number));
    });

    it('has its dead connection replaced even if the read is abandoned', async ({ expect, onTestFinished }) => {
      const { proxy, read } = await openReader(onTestFinished);
      proxy.forgetConnections();
      await expect(read(0, 200)).rejects.toThrow('in time');
      await sleep(TIME_LIMIT_MS + 1500);
      const unanswered = proxy.unanswered();
      await read();
      expect(proxy.unanswered()).toBe(unanswered);
    });

    it.for<[string, (proxy: ToxicProxy) => void]>([
      ['connection was cut silently', (proxy) => proxy.forgetConnections()],
      ['response was cut in half', (proxy) => proxy.breakResponses('half, then silence')],
    ])('succeeds although its %s during other reads', async ([, cutOpen], { onTestFinished }) => {
      const { proxy, read, readTogether } = await openReader(onTestFinished);
      await readTogether(3, 0.1);
      cutOpen(proxy);
      let isOver = false;
      // Short: of four reads that are sent again, one waits for these three, or for a second connection.
      const cut = readTogether(3, 0.1).finally(() => {
        isOver = true;
      });
      while (!isOver) {
        await read();
        await sleep(20);
      }
      await cut;
    });
  },
);
