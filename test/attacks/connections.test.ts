/** An address that opens as many connections as it can, and the port for operators. */
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect, it } from 'vitest';
import { openSocket } from '../support/rawHttp.js';
import { useService } from '../support/service.js';
import { until } from '../support/until.js';

const MAX_CONNECTIONS = 60;
const service = useService({ MAX_CONNECTIONS: String(MAX_CONNECTIONS), REQUEST_TIMEOUT_SECONDS: '60' });
const sockets: Socket[] = [];
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  await sleep(100);
});

/** Connects from an address of this machine. */
async function openFrom(localAddress: string, url = service.url): Promise<Socket> {
  const socket = openSocket(url, { localAddress });
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

it('new clients are served a second after one address has sent a request on as many connections as it could', async () => {
  await times(3 * MAX_CONNECTIONS, async () => send(await openFrom('127.0.0.66')));
  await sleep(1000);
  const responses = await times(10, async (i) => send(await openFrom(`127.0.1.${i + 1}`)));
  expect(responses).toEqual(Array(10).fill('HTTP/1.1 200'));
});

it('METRICS_PORT responds while PORT has all its connections, and its connections do not count', async () => {
  await times(MAX_CONNECTIONS, () => openFrom('127.0.0.66'));
  const health = await times(2 * MAX_CONNECTIONS, () => openFrom('127.0.1.1', service.metricsUrl));
  await sleep(200);
  const responses = await Promise.all(health.map((socket) => send(socket)));
  expect(responses).toEqual(Array(2 * MAX_CONNECTIONS).fill('HTTP/1.1 200'));
  expect(sockets.filter(({ destroyed }) => !destroyed)).toHaveLength(3 * MAX_CONNECTIONS);
});
