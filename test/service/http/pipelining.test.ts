import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeAll, describe, expect, it } from 'vitest';
import { importDemo } from '../../support/demo.js';
import { metricOf, useService } from '../../support/service.js';
import { until } from '../../support/until.js';
import { withinASecond } from '../../support/withinASecond.js';

const PAGE = '/v1/brandedPhoneNumbers?size=100';
const FILE = '/docs/swagger-ui-bundle.js';
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
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname).on('error', () => {});
  sockets.push(socket);
  await once(socket, 'connect');
  return socket;
}

const request = (path: string, client = '203.0.113.1') =>
  `GET ${path} HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: ${client}\r\n\r\n`;

it('pipelined requests get their responses in order, and each is counted by the rate limit', async () => {
  const statuses = await withinASecond(async () => {
    const socket = await open(limited);
    const statuses = watchStatuses(socket);
    socket.write(request('/v1/brandedPhoneNumbers').repeat(12) + request('/nowhere') + request('/healthz'));
    await until(() => statuses().length === 14, 'the last response');
    return statuses();
  });
  expect(statuses).toEqual([...Array(10).fill('200'), '429', '429', '404', '200']);
});

it('more requests of a connection than may wait get their responses, since they are read one after the other', async () => {
  const COUNT = 12_000;
  const socket = await open(unlimited);
  const statuses = watchStatuses(socket);
  // While a page is read from the database, more requests could be read from the connection.
  socket.end(request('/v1/brandedPhoneNumbers').repeat(30) + request('/healthz').repeat(COUNT));
  await once(socket, 'close');
  expect(statuses()).toEqual(Array(30 + COUNT).fill('200'));
});

it('pipelined requests do not delay other connections: each is processed in a turn of the event loop', async () => {
  const pipelining = await Promise.all(Array.from({ length: 50 }, () => open(unlimited)));
  const statuses = pipelining.map(watchStatuses);
  const other = await open(unlimited);
  for (const socket of pipelining) socket.write(request('/healthz').repeat(100));
  other.write(request('/healthz'));
  await once(other, 'data');
  expect(statuses.flatMap((received) => received()).length).toBeLessThan(2000);
  await until(() => statuses.every((received) => received().length === 100), 'all responses');
});

it('a connection is read again after the responses to pipelined requests', async () => {
  const socket = await open(unlimited);
  const statuses = watchStatuses(socket);
  for (let count = 2; count <= 10; count += 2) {
    socket.write(request('/healthz').repeat(2));
    await until(() => statuses().length === count, `response ${count}`);
  }
});

describe('complete requests get their responses', () => {
  it.each<[string, (socket: Socket) => unknown, string[]]>([
    ['if the client then shuts down its sending side', (socket) => socket.end(), ['200', '404']],
    ['if bytes follow that are not a request', (socket) => socket.write('garbage\r\n\r\n'), ['200', '404', '400']],
    ['if half a request follows', (socket) => socket.end('GET / HT'), ['200', '404', '400']],
  ])('%s, and the connection is closed', async (_name, proceed, expected) => {
    const socket = await open(limited);
    const statuses = watchStatuses(socket);
    socket.write(request(PAGE, '203.0.113.9') + request('/nowhere'));
    proceed(socket);
    // An idle connection is kept for longer.
    await once(socket, 'close', { signal: AbortSignal.timeout(30_000) });
    expect(statuses()).toEqual(expected);
  });
});

it('no reads are left of connections that are reset with 300 requests each', async () => {
  for (let i = 0; i < 7; i++) {
    const socket = await open(limited);
    socket.write(Array.from({ length: 300 }, (_, j) => request(PAGE, `10.0.${i}.${j % 250}`)).join(''));
    await sleep(5 * i);
    socket.resetAndDestroy();
  }
  await until(async () => (await metricOf(limited, 'database_queries_in_flight')) === 0, 'no reads are in flight');
});

describe('clients that never read', () => {
  beforeAll(() => importDemo(unlimited.databaseUrl));

  // The responses exceed what the system buffers for a client that does not read.
  it.each([
    ['a page after six files', request(FILE).repeat(6) + request(PAGE)],
    ['160 pages', request(PAGE).repeat(160)],
  ])('do not hold up the reads of other clients after requesting %s', async (_name, requests) => {
    for (let i = 0; i < 2; i++) (await open(unlimited)).pause().write(requests);
    // Their pages are read until the system's buffers are full.
    let served = 0;
    await until(async () => {
      served = (await fetch(`${unlimited.url}/v1/brandedPhoneNumbers`)).status === 200 ? served + 1 : 0;
      return served === 10;
    }, 'ten requests in a row succeed');
    await until(async () => (await metricOf(unlimited, 'database_queries_in_flight')) === 0, 'no reads are in flight');
  });

  it('are not read any further after bytes that are not a request', async () => {
    const socket = (await open(unlimited)).pause();
    socket.write(request(FILE).repeat(6));
    socket.write(Buffer.alloc(100_000_000));
    await sleep(2000);
    expect(socket.writableLength).toBeGreaterThan(50_000_000);
  });

  it('have their connection closed if too many of their requests wait for earlier ones', async () => {
    // The service reads some 1,500 requests from a connection, and more only after it has responded to those.
    const many = await Promise.all(Array.from({ length: 12 }, () => open(unlimited)));
    let closed = 0;
    for (const socket of many) {
      socket.once('close', () => closed++);
      // In one write: on Node 26, the service reads nothing more while a request waits.
      socket.pause().write(request(FILE).repeat(6) + 'GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n'.repeat(3000));
    }
    await sleep(500);
    expect((await fetch(`${unlimited.url}/v1/brandedPhoneNumbers`)).status).toBe(200);
    for (const socket of many) socket.resume();
    await until(() => closed > 0, 'a connection is closed');
    expect(closed).toBeLessThan(many.length);
  });

  it('have the connection with the most of such requests closed', async () => {
    const pipeline = async (waiting: number) => {
      const socket = (await open(unlimited)).pause();
      socket.write(request(FILE).repeat(6) + 'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n'.repeat(waiting));
      return socket;
    };
    const isClosed = async (socket: Socket) => {
      let ended = false;
      socket.once('close', () => (ended = true)).resume();
      // One that is kept is sent some megabytes.
      await until(() => ended || socket.bytesRead > 8_000_000, 'the responses or the end');
      return ended;
    };
    const greedy: Socket[] = [];
    for (let i = 0; i < 11; i++) greedy.push(await pipeline(1000));
    await sleep(500);
    const modest: Socket[] = [];
    for (let i = 0; i < 40; i++) modest.push(await pipeline(30));
    await sleep(500);
    expect(await Promise.all(modest.map(isClosed))).toEqual(Array(40).fill(false));
    expect(await Promise.all(greedy.map(isClosed))).toContain(true);
  });
});
