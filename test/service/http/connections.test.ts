import { once } from 'node:events';
import { createServer, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Connections, shareBody } from '../../../src/service/http/connections.js';
import { until } from '../../support/until.js';

const MAX = 3;
/** Its responses are sent by the tests. */
let server: Server;
let connections: Connections;
/** What was cut off: numbers of connections. */
let cutOff: number[];
const sockets: Socket[] = [];

beforeEach(async () => {
  vi.useFakeTimers({ toFake: ['performance'] });
  server = createServer();
  cutOff = [];
  connections = new Connections(server, MAX, (count) => cutOff.push(count));
  server.on('request', ({ socket }, response) => connections.begin(socket, response));
  await once(server.listen(0, '127.0.0.1'), 'listening');
});
afterEach(async () => {
  vi.useRealTimers();
  for (const socket of sockets.splice(0)) socket.destroy();
  await once(server.close(), 'close');
});

/** Opens a connection, and waits until the server has it. */
async function open(): Promise<Socket> {
  const { port } = server.address() as AddressInfo;
  const socket = connect(port, '127.0.0.1').on('error', () => {});
  sockets.push(socket);
  await Promise.all([once(socket, 'connect'), once(server, 'connection')]);
  return socket.resume(); // without it, the close is not seen
}

/** Begins a request, and waits until the server has it; returns its response. */
async function begin(socket: Socket): Promise<ServerResponse> {
  socket.write('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n');
  const [, response] = await once(server, 'request');
  return response;
}

async function end(response: ServerResponse): Promise<void> {
  response.end();
  await once(response, 'close');
}

/** Opens one more connection; returns whether it, and then each other one, is open once one is closed. */
async function openOneMore(): Promise<boolean[]> {
  const all = [...sockets];
  all.unshift(await open());
  await until(() => all.some(({ destroyed }) => destroyed), 'a connection is closed');
  return all.map(({ destroyed }) => !destroyed);
}

describe('at MAX_CONNECTIONS, a new connection', () => {
  it('closes the one that has been idle longest, since its last response', async () => {
    const [first, second, third] = [await open(), await open(), await open()];
    for (const socket of [second, third, first]) await end(await begin(socket));
    vi.advanceTimersByTime(1000);
    expect(await openOneMore()).toEqual([true, true, false, true]);
  });

  it('is closed itself if no other one has been idle for a second', async () => {
    for (let i = 0; i < MAX; i++) {
      const socket = await open();
      vi.advanceTimersByTime(1);
      await end(await begin(socket));
    }
    vi.advanceTimersByTime(997);
    expect(await openOneMore()).toEqual([false, true, true, true]);
  });

  it('is closed itself if all others have requests in progress', async () => {
    for (let i = 0; i < MAX; i++) await begin(await open());
    vi.advanceTimersByTime(60_000);
    expect(await openOneMore()).toEqual([false, true, true, true]);
  });

  it('is one of as many as there were if several come at once', async () => {
    for (let i = 0; i < MAX; i++) await open();
    vi.advanceTimersByTime(1000);
    const { port } = server.address() as AddressInfo;
    sockets.push(
      ...Array.from({ length: 2 * MAX }, () =>
        connect(port, '127.0.0.1')
          .on('error', () => {})
          .resume(),
      ),
    );
    const isOpen = (socket: Socket) => !socket.destroyed && !socket.connecting;
    await until(() => sockets.filter(({ destroyed }) => destroyed).length === 2 * MAX, 'the surplus is closed');
    expect(sockets.filter(isOpen)).toHaveLength(MAX);
    expect(await connectionCount()).toBe(MAX);
  });

  it('counts no connections that have been closed', async () => {
    for (let i = 0; i < MAX; i++) await open();
    for (let i = 0; i < 2 * MAX; i++) {
      const [oldest] = sockets.splice(0, 1) as [Socket];
      oldest.destroy();
      await until(async () => (await connectionCount()) < MAX, 'the server has seen the close');
      await open();
    }
    expect(sockets.map(({ destroyed }) => destroyed)).toEqual([false, false, false]);
  });
});

describe('of clients that hold more than 64 MB in all', () => {
  const MEGABYTE = Buffer.alloc(2 ** 20);

  /** Reads a body that is shared, requests a response of so many megabytes, and does not read that. */
  async function hold(megabytes: number, isShared = false): Promise<void> {
    const socket = await open();
    const earlier = await begin(socket);
    shareBody(earlier);
    await end(earlier);
    const response = await begin(socket.pause());
    if (isShared) shareBody(response);
    response.end(Buffer.concat(Array(megabytes).fill(MEGABYTE)));
  }
  /** Returns whether the server still has each of its connections, in the order in which they were opened. */
  const areOpen = () => sockets.map(({ destroyed }) => !destroyed);

  it.each([
    ['the one that has waited longest for its response to be read is cut off', [30, 30, 30], [false, true, true]],
    ['one that holds less than its share is not cut off', [20, 30, 40], [true, false, true]],
  ])('%s', async (_what, held, open) => {
    for (const megabytes of held) {
      expect(cutOff).toEqual([]);
      await hold(megabytes);
    }
    await until(() => cutOff.length > 0, 'a connection is cut off');
    for (const socket of sockets) socket.resume();
    await until(() => areOpen().includes(false), 'the client sees it');
    expect([cutOff, areOpen()]).toEqual([[1], open]);
  });

  it('a body that all of them share does not count, but what follows it does', async () => {
    await hold(70, true);
    await hold(20, true);
    await hold(30);
    await sleep(500);
    expect([cutOff, areOpen()]).toEqual([[], [true, true, true]]);
    for (const socket of sockets) socket.resume();
    await until(() => sockets.every(({ bytesRead }) => bytesRead > 20 * 2 ** 20), 'they are read');
    const next = await begin((sockets[1] as Socket).pause());
    next.end(Buffer.concat(Array(70).fill(MEGABYTE)));
    await until(() => cutOff.length > 0, 'it is cut off');
  });
});

it('closes connections that are idle at a stop, but no new one, whose request may be on its way', async () => {
  const [idle, fresh] = [await open(), await open()];
  await end(await begin(idle));
  connections.closeIdle();
  await once(idle, 'close');
  await end(await begin(fresh));
});

it('a connection that was given away can be reset in the middle of what it is sent', async () => {
  server.once('upgrade', (_request, socket) => {
    for (let i = 0; i < 100; i++) setTimeout(() => socket.write('more'), i);
  });
  const socket = await open();
  socket.write('GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n');
  await once(socket, 'data');
  socket.resetAndDestroy();
  await until(async () => (await connectionCount()) === 0, 'it is closed');
});

const connectionCount = () =>
  new Promise<number>((resolve) => server.getConnections((_error, count) => resolve(count)));
