import { once } from 'node:events';
import type { Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { openSocket } from '../../support/rawHttp.js';
import { metricOf, useService } from '../../support/service.js';
import { until } from '../../support/until.js';

const PAGE = '/v1/brandedPhoneNumbers?size=100';
const limited = useService({ RATE_LIMIT_PER_SECOND: '10', TRUST_PROXY: '1' });
const unlimited = useService({ DATABASE_CONNECTIONS: '1' });

const sockets: Socket[] = [];
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy();
});

/** Returns a function that gives the statuses of the responses that a socket has received so far. */
function watchStatuses(socket: Socket): () => string[] {
  let text = '';
  socket.setEncoding('latin1').on('data', (chunk) => {
    text += chunk;
  });
  return () => [...text.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status = '']) => status);
}

async function open({ url }: { url: string }): Promise<Socket> {
  const socket = openSocket(url);
  sockets.push(socket);
  await once(socket, 'connect');
  return socket;
}

const request = (path: string, client = '203.0.113.1') =>
  `GET ${path} HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: ${client}\r\n\r\n`;

it('a request that arrives before the previous response was sent is not handled: its connection ends after that', async () => {
  const socket = await open(limited);
  const statuses = watchStatuses(socket);
  socket.write(request('/healthz'));
  await until(() => statuses().length === 1, 'the first response');
  socket.write(request(PAGE, '203.0.113.8').repeat(2));
  await once(socket, 'close');
  expect(statuses()).toEqual(['200', '200']);
});

it('a third request ends the connection at once', async () => {
  const socket = await open(unlimited);
  const statuses = watchStatuses(socket);
  socket.write(request(PAGE).repeat(3));
  await until(() => socket.destroyed, 'it is closed');
  expect(statuses()).toEqual([]);
});

it('requests that clients send ahead do not delay other clients', async () => {
  const pipelining = await Promise.all(Array.from({ length: 20 }, () => open(unlimited)));
  for (const socket of pipelining) socket.resume().write(request('/healthz').repeat(1000));
  expect((await fetch(`${unlimited.url}/v1/brandedPhoneNumbers`)).status).toBe(200);
  await until(() => pipelining.every(({ destroyed }) => destroyed), 'all are closed');
});

describe('a complete request gets its response', () => {
  it.each<[string, (socket: Socket) => unknown, string[]]>([
    ['if the client then shuts down its sending side', (socket) => socket.end(), ['200']],
    ['if bytes follow that are not a request', (socket) => socket.write('garbage\r\n\r\n'), ['200', '400']],
    ['if half a request follows', (socket) => socket.end('GET / HT'), ['200', '400']],
  ])('%s, and the connection is closed', async (_name, proceed, expected) => {
    const socket = await open(limited);
    const statuses = watchStatuses(socket);
    socket.write(request(PAGE, '203.0.113.9'));
    proceed(socket);
    // An idle connection is kept for longer.
    await once(socket, 'close', { signal: AbortSignal.timeout(30_000) });
    expect(statuses()).toEqual(expected);
  });
});

it('no reads are left of 200 connections that are reset', async () => {
  for (let i = 0; i < 200; i++) (await open(limited)).write(request(PAGE, `10.0.0.${i}`));
  for (const socket of sockets) socket.resetAndDestroy();
  await until(async () => (await metricOf(limited, 'database_queries_in_flight')) === 0, 'no reads are in flight');
});
