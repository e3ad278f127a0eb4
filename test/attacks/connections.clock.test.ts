/** An address that opens as many connections as it can does not block other clients. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { whileLocked } from '../support/connection.js';
import { metricOf, useListeningService } from '../support/listening.js';
import { until } from '../support/until.js';

const MAX_CONNECTIONS = 60;
const service = useListeningService({ MAX_CONNECTIONS: String(MAX_CONNECTIONS), REQUEST_TIMEOUT_SECONDS: '60' });
const sockets: Socket[] = [];
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  await sleep(100);
});

/** Connects from an address of this machine. */
async function openFrom(localAddress: string, url = service.url): Promise<Socket> {
  const { hostname, port } = new URL(url);
  const socket = connect({ host: hostname, port: Number(port), localAddress }).on('error', () => {});
  sockets.push(socket);
  await Promise.race([once(socket, 'connect'), once(socket, 'close')]);
  // A socket emits close only while it is read.
  return socket.resume();
}

/** Sends a request on an open connection; returns the start of the response, or '' if the connection was closed. */
async function send(socket: Socket, path = '/healthz'): Promise<string> {
  let text = '';
  const listen = (chunk: Buffer) => {
    text += chunk;
  };
  socket.on('data', listen);
  socket.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`);
  await until(() => /\r\n\r\n./.test(text) || socket.destroyed, 'a response', 15_000);
  socket.off('data', listen);
  return text.slice(0, 'HTTP/1.1 200'.length);
}

const times = <T>(count: number, make: (i: number) => Promise<T>) =>
  Promise.all(Array.from({ length: count }, (_, i) => make(i)));
const isOpen = (socket: Socket) => !socket.destroyed;

/** Requests more than the system buffers on a connection that is never read. */
async function openUnread(localAddress: string): Promise<Socket> {
  const socket = await openFrom(localAddress);
  socket.pause().write('GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: localhost\r\n\r\n'.repeat(8));
  return socket;
}

/** Opens connections from each address, and waits until each of them has a request in flight. */
async function openBusy(counts: Record<string, number>): Promise<Socket[]> {
  const opened: Socket[] = [];
  for (const [address, count] of Object.entries(counts)) {
    for (let i = 0; i < count; i++) opened.push(await openFrom(address));
  }
  for (const socket of opened) socket.write('GET /v1/brandedPhoneNumbers HTTP/1.1\r\nHost: localhost\r\n\r\n');
  const areInFlight = async () => (await metricOf(service, 'http_requests_in_flight')) === opened.length;
  await until(areInFlight, `${opened.length} requests are in flight`);
  return opened;
}

describe('new clients are served while one address', () => {
  it.each([
    [
      'has sent one request on each of as many connections as it could open',
      () => times(3 * MAX_CONNECTIONS, async () => send(await openFrom('127.0.0.66'))),
    ],
    [
      'has unread responses on every connection',
      () => times(MAX_CONNECTIONS, () => openUnread('127.0.0.66')).then(() => sleep(500)),
    ],
  ])('%s', async (_name, attack) => {
    await attack();
    const responses = await times(10, async (i) => send(await openFrom(`127.0.1.${i + 1}`)));
    expect(responses).toEqual(Array(10).fill('HTTP/1.1 200'));
  });
});

it('METRICS_PORT responds while PORT has all its connections, and its connections do not count', async () => {
  await times(MAX_CONNECTIONS, () => openFrom('127.0.0.66'));
  const health = await times(2 * MAX_CONNECTIONS, () => openFrom('127.0.1.1', service.metricsUrl));
  await sleep(200);
  const responses = await Promise.all(health.map((socket) => send(socket)));
  expect(responses).toEqual(Array(2 * MAX_CONNECTIONS).fill('HTTP/1.1 200'));
  expect(sockets.filter(isOpen)).toHaveLength(3 * MAX_CONNECTIONS);
});

describe('at MAX_CONNECTIONS, a new connection', () => {
  it('closes the one that has been idle longest', async () => {
    const [first, second] = [await openFrom('127.0.0.1'), await openFrom('127.0.0.1')];
    const rest = await times(MAX_CONNECTIONS - 2, () => openFrom('127.0.0.1'));
    await send(first);
    const last = await openFrom('127.0.0.1');
    await until(() => !isOpen(second), 'a connection is closed');
    expect([first, second, last, ...rest].map(isOpen)).toEqual([true, false, true, ...rest.map(() => true)]);
  });

  // While items is locked, no request finishes.
  it('is closed itself if every connection has a request and no other address has more connections', () =>
    whileLocked(service.databaseUrl, 'LOCK items', async () => {
      const all = await openBusy({ '127.0.0.66': MAX_CONNECTIONS / 2, '127.0.0.77': MAX_CONNECTIONS / 2 });
      for (const address of ['127.0.0.66', '127.0.0.77', '127.0.0.66']) {
        expect((await openOneMore(address, all)).indexOf(false)).toBe(0);
      }
    }));

  it('closes the one with the longest-running request of an address that has more connections', () =>
    whileLocked(service.databaseUrl, 'LOCK items', async () => {
      const all = await openBusy({ '127.0.1.1': 1, '127.0.0.66': MAX_CONNECTIONS - 1 });
      expect((await openOneMore('127.0.1.1', all)).indexOf(false)).toBe(2);
    }));

  /** Opens a connection; returns which connections are open once one is closed: the new one, then `all`. */
  async function openOneMore(address: string, all: Socket[]): Promise<boolean[]> {
    const sockets = [await openFrom(address), ...all];
    await until(() => !sockets.every(isOpen), 'a connection is closed');
    expect(sockets.filter(isOpen)).toHaveLength(MAX_CONNECTIONS);
    return sockets.map(isOpen);
  }

  it('keeps the number of connections at MAX_CONNECTIONS', async () => {
    await times(3 * MAX_CONNECTIONS, (i) => openFrom(`127.0.2.${(i % 200) + 1}`));
    await until(() => sockets.filter(isOpen).length <= MAX_CONNECTIONS, 'the excess connections are closed');
    expect(sockets.filter(isOpen).length).toBe(MAX_CONNECTIONS);
  });
});
