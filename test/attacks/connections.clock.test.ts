/** One address that takes all the connections it can get shuts no other client out. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { useListeningService } from '../listening.js';
import { until } from '../until.js';

const MOST = 60;
const service = useListeningService({ MAX_CONNECTIONS: String(MOST) });
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
  await Promise.race([answered, sleep(5000)]);
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

describe('new clients are served while one address', () => {
  it('holds every connection idle, and sends one request on each', async () => {
    await times(3 * MOST, async () => ask(await openFrom('127.0.0.66')));
    const answers = await times(10, async (i) => ask(await openFrom(`127.0.1.${i + 1}`)));
    expect(answers).toEqual(Array(10).fill('HTTP/1.1 200'));
  });

  it('opens connections and says nothing', async () => {
    await times(3 * MOST, () => openFrom('127.0.0.66'));
    expect(await ask(await openFrom('127.0.1.1'))).toBe('HTTP/1.1 200');
  });

  it('has a request on every connection and reads no answer', async () => {
    await times(MOST, () => openUnread('127.0.0.66'));
    await sleep(500);
    const answers = await times(10, async (i) => ask(await openFrom(`127.0.1.${i + 1}`)));
    expect(answers).toEqual(Array(10).fill('HTTP/1.1 200'));
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

  it('closes none of another address if its own has the most', async () => {
    const other = await openUnread('127.0.1.1');
    await times(MOST - 1, () => openUnread('127.0.0.66'));
    await sleep(500);
    const late = await times(10, () => openFrom('127.0.0.66'));
    for (let i = 0; i < 20 && late.some(isOpen); i++) await sleep(50);
    expect(late.filter(isOpen).length).toBeLessThan(late.length);
    expect(isOpen(other)).toBe(true);
  });

  it('never makes more than are allowed', async () => {
    await times(3 * MOST, (i) => openFrom(`127.0.2.${(i % 200) + 1}`));
    for (let i = 0; i < 100 && sockets.filter(isOpen).length > MOST; i++) await sleep(50);
    expect(sockets.filter(isOpen).length).toBe(MOST);
  });
});
