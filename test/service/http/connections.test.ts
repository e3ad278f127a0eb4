import { once } from 'node:events';
import { createServer, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { limitConnections } from '../../../src/service/http/connections.js';
import { until } from '../../support/until.js';

const MAX = 3;
/** Its responses are sent by the tests. */
let server: Server;
const sockets: Socket[] = [];

beforeEach(async () => {
  vi.useFakeTimers({ toFake: ['performance'] });
  server = createServer();
  limitConnections(server, MAX);
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

  it('is closed itself if all others have requests in progress, one of several included', async () => {
    const begun: ServerResponse[] = [];
    for (let i = 0; i < MAX; i++) begun.push(await begin(await open()));
    const [first] = sockets as [Socket];
    await begin(first);
    await end(begun[0] as ServerResponse);
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

const connectionCount = () =>
  new Promise<number>((resolve) => server.getConnections((_error, count) => resolve(count)));
