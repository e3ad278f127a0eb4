/** One address that takes all the connections it can get shuts no other client out. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { connectTo } from '../support/connection.js';
import { metricOf, useListeningService } from '../support/listening.js';
import { until } from '../support/until.js';

const MOST = 60;
const service = useListeningService({ MAX_CONNECTIONS: String(MOST), REQUEST_TIMEOUT_SECONDS: '60' });
const sockets: Socket[] = [];
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  await sleep(100);
});

/** A connection from one of this machine's own addresses. */
async function openFrom(localAddress: string, url = service.url): Promise<Socket> {
  const { hostname, port } = new URL(url);
  const socket = connect({ host: hostname, port: Number(port), localAddress }).on('error', () => {});
  sockets.push(socket);
  await Promise.race([once(socket, 'connect'), once(socket, 'close')]);
  // A socket notices the end of its connection only while it is read.
  return socket.resume();
}

/** Asks on a connection that stays open; empty if it was closed instead. */
async function ask(socket: Socket, path = '/healthz'): Promise<string> {
  let text = '';
  const listen = (chunk: Buffer) => {
    text += chunk;
  };
  socket.on('data', listen);
  socket.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`);
  const answered = (async () => {
    while (!/\r\n\r\n./.test(text) && !socket.destroyed) await sleep(5);
  })();
  await Promise.race([answered, sleep(15_000)]);
  socket.off('data', listen);
  return text.slice(0, 'HTTP/1.1 200'.length);
}

const times = <T>(count: number, make: (i: number) => Promise<T>) =>
  Promise.all(Array.from({ length: count }, (_, i) => make(i)));
const isOpen = (socket: Socket) => !socket.destroyed;

/** Asks for more than the system buffers, and never reads. */
async function openUnread(localAddress: string): Promise<Socket> {
  const socket = await openFrom(localAddress);
  socket.pause().write('GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: localhost\r\n\r\n'.repeat(8));
  return socket;
}

/** Connections of which each has a request that is worked on, and that notice when they are closed. */
async function openBusy(counts: Record<string, number>): Promise<Socket[]> {
  const opened: Socket[] = [];
  for (const [address, count] of Object.entries(counts)) {
    for (let i = 0; i < count; i++) opened.push(await openFrom(address));
  }
  for (const socket of opened) socket.write('GET /v1/brandedPhoneNumbers HTTP/1.1\r\nHost: localhost\r\n\r\n');
  const isWorkedOn = async () => (await metricOf(service, 'http_requests_in_flight')) === opened.length;
  await until(isWorkedOn, `${opened.length} requests are worked on`);
  return opened;
}

/** Does `work` while no page can be read. */
async function whileNothingIsRead(work: () => Promise<void>): Promise<void> {
  const sql = connectTo(service.databaseUrl);
  await sql.begin(async (transaction) => {
    const tables = await transaction`SELECT format('%I', tablename) AS name FROM pg_tables WHERE schemaname = 'public'`;
    await transaction.unsafe(`LOCK TABLE ${tables.map(({ name }) => name)}`);
    await work();
  });
  await sql.end();
}

describe('new clients are served while one address', () => {
  it('holds every connection idle, and sends one request on each', async () => {
    await times(3 * MOST, async () => ask(await openFrom('127.0.0.66')));
    const responses = await times(10, async (i) => ask(await openFrom(`127.0.1.${i + 1}`)));
    expect(responses).toEqual(Array(10).fill('HTTP/1.1 200'));
  });

  it('has a request on every connection and reads no response', async () => {
    await times(MOST, () => openUnread('127.0.0.66'));
    await sleep(500);
    const responses = await times(10, async (i) => ask(await openFrom(`127.0.1.${i + 1}`)));
    expect(responses).toEqual(Array(10).fill('HTTP/1.1 200'));
  });
});

describe('health on METRICS_PORT', () => {
  it('is answered while all connections of PORT are taken, and its own are not counted', async () => {
    await times(MOST, () => openFrom('127.0.0.66'));
    const health = await times(2 * MOST, () => openFrom('127.0.1.1', service.metricsUrl));
    await sleep(200);
    expect(await Promise.all(health.map((socket) => ask(socket)))).toEqual(Array(2 * MOST).fill('HTTP/1.1 200'));
    expect(sockets.filter(isOpen)).toHaveLength(3 * MOST);
  });
});

describe('when all connections are taken, a new one', () => {
  it('closes the one that was idle for longest, not one that was just used', async () => {
    const [first, second] = [await openFrom('127.0.0.1'), await openFrom('127.0.0.1')];
    const others = await times(MOST - 2, () => openFrom('127.0.0.1'));
    await ask(first);
    const last = await openFrom('127.0.0.1');
    await until(() => !isOpen(second), 'a connection is closed');
    expect([first, second, last, ...others].map(isOpen)).toEqual([true, false, true, ...others.map(() => true)]);
  });

  it('is closed itself if no address has more, and each connection has a request', async () => {
    await whileNothingIsRead(async () => {
      const all = await openBusy({ '127.0.0.66': MOST / 2, '127.0.0.77': MOST / 2 });
      for (const address of ['127.0.0.66', '127.0.0.77', '127.0.0.66']) {
        const late = await openFrom(address);
        await until(() => [late, ...all].some((socket) => !isOpen(socket)), 'a connection is closed');
        expect([isOpen(late), all.filter(isOpen).length]).toEqual([false, MOST]);
      }
    });
  });

  it('closes the one whose request has run longest, of the address that has most, if that is another', async () => {
    await whileNothingIsRead(async () => {
      const all = await openBusy({ '127.0.1.1': 1, '127.0.0.66': MOST - 1 });
      const late = await openFrom('127.0.1.1');
      await until(() => [late, ...all].some((socket) => !isOpen(socket)), 'a connection is closed');
      expect([late, ...all].map(isOpen).indexOf(false)).toBe(2);
      expect(all.filter(isOpen)).toHaveLength(MOST - 1);
    });
  });

  it('never makes more than are allowed', async () => {
    await times(3 * MOST, (i) => openFrom(`127.0.2.${(i % 200) + 1}`));
    for (let i = 0; i < 100 && sockets.filter(isOpen).length > MOST; i++) await sleep(50);
    expect(sockets.filter(isOpen).length).toBe(MOST);
  });
});
