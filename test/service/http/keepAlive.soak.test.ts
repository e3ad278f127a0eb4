/**
 * Clients that send their next request in the moment in which the last byte of a response arrives, on connections that they keep.
 * They run in a thread, so that they send while the server is between two steps of a response.
 */
import { once } from 'node:events';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Worker } from 'node:worker_threads';
import express from 'express';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { readConfig } from '../../../src/config/config.js';
import { createHttpServer } from '../../../src/service/http/httpServer.js';
import { freePort } from '../../support/port.js';
import { hasNginx, startNginx } from './nginx.js';

/** More than the system takes for a client that does not read. */
const LONGEST = Buffer.alloc(14 * 2 ** 20);

let server: Server;
let port: number;
beforeAll(async () => {
  const app = express().get('/:bytes', ({ params }, response) => {
    const body = LONGEST.subarray(0, Number(params.bytes));
    response.setHeader('Content-Length', body.length);
    response.end(body);
  });
  ({ server } = createHttpServer(app, readConfig({}), { logRefusal: () => 'id', onCutOff() {} }));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  ({ port } = server.address() as AddressInfo);
});
afterAll(() => void server.close());

interface Clients {
  connections: number;
  /** The number of their requests together. */
  requests: number;
  port: number;
  path: string;
  /** Milliseconds for which they do not read a response that has begun. */
  pause?: number;
}
const CLIENTS = `
const { connect } = require('node:net');
const { parentPort, workerData } = require('node:worker_threads');
const { connections, requests, port, path, pause } = workerData;
const counts = { sent: 0, served: 0, cutOff: 0 };
let open = connections;
for (let i = 0; i < connections; i++) {
  let head = '';
  let rest = 0;
  const socket = connect(port, '127.0.0.1').on('error', () => {});
  const next = () => {
    head = '';
    if (counts.sent === requests) return socket.destroy();
    counts.sent++;
    socket.write('GET ' + path + ' HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n');
  };
  socket.on('connect', next).on('data', (data) => {
    if (rest === 0) {
      head += data.toString('latin1');
      const end = head.indexOf('\\r\\n\\r\\n');
      if (end === -1) return;
      rest = Number(/^content-length: (\\d+)/im.exec(head)[1]) - (head.length - end - 4);
      if (pause && rest > 0) setTimeout(() => socket.resume(), pause), socket.pause();
    } else rest -= data.length;
    if (rest > 0) return;
    if (head.startsWith('HTTP/1.1 200')) counts.served++;
    next();
  });
  socket.on('end', () => counts.cutOff++).on('close', () => --open || parentPort.postMessage(counts));
}`;

/** Runs clients; returns how many requests were sent and served, and how many connections were ended. */
async function run(clients: Clients): Promise<Record<string, number>> {
  const [counts] = await once(new Worker(CLIENTS, { eval: true, workerData: clients }), 'message');
  return counts;
}

const expected = (requests: number) => ({ sent: requests, served: requests, cutOff: 0 });

it.each([
  { bytes: 100, connections: 20, requests: 10_000 },
  { bytes: 94_000, connections: 20, requests: 4000 },
  { bytes: LONGEST.length, connections: 2, requests: 200, pause: 20 },
])(
  '$connections clients get $requests responses of $bytes bytes on the connections that they opened',
  async (clients) => {
    expect(await run({ ...clients, port, path: `/${clients.bytes}` })).toEqual(expected(clients.requests));
  },
);

it.skipIf(!hasNginx)('clients of an nginx that keeps its connections get 4000 responses', async () => {
  const nginxPort = await freePort();
  const upstream = `upstream service { server 127.0.0.1:${port}; keepalive 8; keepalive_requests 100000; }`;
  const settings = 'keepalive_requests 100000; proxy_http_version 1.1; proxy_set_header Connection "";';
  const stop = await startNginx(nginxPort, 'http://service', `${upstream} ${settings}`);
  const clients = { connections: 20, requests: 4000, port: nginxPort, path: '/numbers/94000' };
  expect(await run(clients).finally(stop)).toEqual(expected(4000));
});
