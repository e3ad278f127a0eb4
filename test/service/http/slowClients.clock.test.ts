/** Clients that connect and never send a whole request: each test waits for a limit of the service. */
import { once } from 'node:events';
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import express from 'express';
import { describe, expect, it, test } from 'vitest';
import { readConfig } from '../../../src/config/config.js';
import { createHttpServer, urlOf } from '../../../src/service/http/httpServer.js';
import { useListeningService } from '../../support/listening.js';

const service = useListeningService();
/** Seconds: more than a client has for its headers. */
const KEEP_ALIVE = 14;
const keeping = useListeningService({ KEEP_ALIVE_SECONDS: String(KEEP_ALIVE) });

/** What the service sends for these bytes until it closes the connection. */
async function answerTo(bytes: string): Promise<string> {
  const { hostname, port } = new URL(service.url);
  const socket = connect(Number(port), hostname).on('error', () => {});
  let outcome = '';
  socket.setEncoding('utf8').on('data', (text) => {
    outcome += text;
  });
  socket.write(bytes);
  await once(socket, 'close');
  return outcome;
}

describe.concurrent('a client', () => {
  it.each([
    ['whose headers never end', 'GET / HTTP/1.1\r\nHost: x\r\nX-Slow: '],
    ['that sends nothing', ''],
  ])('%s is cut off with a 408 problem', async (_who, bytes) => {
    const [head = '', body = ''] = (await answerTo(bytes)).split('\r\n\r\n');
    expect(head).toMatch(/^HTTP\/1\.1 408 /);
    expect(JSON.parse(body)).toMatchObject({ type: '/problems/invalid-request', status: 408 });
  });
});

test.concurrent('a response that takes 21 seconds is sent if REQUEST_TIMEOUT_SECONDS allows it', async () => {
  const app = express().get('/', async (_request, response) => {
    await sleep(21_000);
    response.send('late');
  });
  const server = createHttpServer(app, readConfig({ REQUEST_TIMEOUT_SECONDS: '30' })).listen(0, '127.0.0.1');
  await once(server, 'listening');
  expect(await (await fetch(urlOf(server, '127.0.0.1'))).text()).toBe('late');
  server.close();
});

describe.concurrent('an idle connection', () => {
  it('still gets its response before KEEP_ALIVE_SECONDS have passed, and is closed afterwards', async () => {
    const { hostname, port } = new URL(keeping.url);
    const socket = connect(Number(port), hostname).setEncoding('latin1');
    const closed = once(socket, 'close', { signal: AbortSignal.timeout(60_000) });
    const ask = async () => {
      socket.write('GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n');
      return String(await once(socket, 'data', { signal: AbortSignal.timeout(10_000) }));
    };
    expect(await ask()).toContain(`Keep-Alive: timeout=${KEEP_ALIVE}\r\n`);
    await sleep((KEEP_ALIVE - 3) * 1000);
    expect(await ask()).toMatch(/^HTTP\/1\.1 200 /);
    await closed;
  });

  it.each(['url', 'metricsUrl'] as const)('has KEEP_ALIVE_SECONDS in each response, on either port: %s', async (at) => {
    expect((await fetch(`${keeping[at]}/healthz`)).headers.get('Keep-Alive')).toBe(`timeout=${KEEP_ALIVE}`);
  });
});
