import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import express from 'express';
import { describe, expect, it, test } from 'vitest';
import { readConfig } from '../../../src/config/config.js';
import { createHttpServer, urlOf } from '../../../src/service/http/httpServer.js';
import { openSocket } from '../../support/rawHttp.js';
import { useService } from '../../support/service.js';

const service = useService();
/** In seconds: longer than the time limit for request headers. */
const KEEP_ALIVE = 14;
const longKeepAlive = useService({ KEEP_ALIVE_SECONDS: String(KEEP_ALIVE) });
const HEALTH = 'GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n';
const shortKeepAlive = useService({ KEEP_ALIVE_SECONDS: '1' });

/** Sends `bytes`, and returns everything that the service sends until it closes the connection. */
async function responseTo(bytes: string, { url } = service): Promise<string> {
  const socket = openSocket(url);
  let response = '';
  socket.setEncoding('utf8').on('data', (text) => {
    response += text;
  });
  socket.write(bytes);
  await once(socket, 'close');
  return response;
}

describe.concurrent('a client', () => {
  it.each([
    ['whose headers never end', 'GET / HTTP/1.1\r\nHost: x\r\nX-Slow: '],
    ['that sends nothing', ''],
  ])('%s is cut off with a 408 problem', async (_name, bytes) => {
    const [head = '', body = ''] = (await responseTo(bytes)).split('\r\n\r\n');
    expect(head).toMatch(/^HTTP\/1\.1 408 /);
    expect(JSON.parse(body)).toMatchObject({ type: '/problems/invalid-request', status: 408 });
  });
});

test.concurrent('a client that keeps sending after what is not a request is cut off', async () => {
  const socket = openSocket(service.url, { allowHalfOpen: true }).resume();
  const closed = new Promise((resolve) => socket.once('close', resolve));
  socket.write('garbage\r\n\r\n');
  const sending = setInterval(() => socket.write('x'), 50);
  await closed;
  clearInterval(sending);
});

test.concurrent('a response that takes 16 seconds is sent if REQUEST_TIMEOUT_SECONDS allows it', async () => {
  const app = express().get('/', async (_request, response) => {
    await sleep(16_000);
    response.send('late');
  });
  const config = readConfig({ REQUEST_TIMEOUT_SECONDS: '5' });
  const { server } = createHttpServer(app, config, { logRefusal: () => 'id', onCutOff() {} });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  expect(await (await fetch(urlOf(server, '127.0.0.1'))).text()).toBe('late');
  server.close();
});

test.concurrent('a response that its client reads slowly is sent as a whole at a stop', async () => {
  const body = Buffer.alloc(20_000_000);
  const app = express().get('/', (_request, response) => response.end(body));
  const { server, finish } = createHttpServer(app, readConfig({}), { logRefusal: () => 'id', onCutOff() {} });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const response = await fetch(urlOf(server, '127.0.0.1'));
  const finished = finish();
  expect((await response.arrayBuffer()).byteLength).toBe(body.length);
  await finished;
});

describe.concurrent('an idle connection', () => {
  it('is kept for KEEP_ALIVE_SECONDS', async () => {
    const socket = openSocket(longKeepAlive.url).setEncoding('latin1');
    const request = async () => {
      socket.write(HEALTH);
      return String(await once(socket, 'data', { signal: AbortSignal.timeout(10_000) }));
    };
    expect(await request()).toContain(`Keep-Alive: timeout=${KEEP_ALIVE}\r\n`);
    await sleep((KEEP_ALIVE - 3) * 1000);
    expect(await request()).toMatch(/^HTTP\/1\.1 200 /);
    socket.destroy();
  });

  it('is closed after KEEP_ALIVE_SECONDS', async () => {
    expect(await responseTo(HEALTH, shortKeepAlive)).toMatch(/^HTTP\/1\.1 200 .*alive"}$/s);
  });

  it.each(['url', 'metricsUrl'] as const)('announces KEEP_ALIVE_SECONDS in each response from its %s', async (port) => {
    expect((await fetch(`${longKeepAlive[port]}/healthz`)).headers.get('Keep-Alive')).toBe(`timeout=${KEEP_ALIVE}`);
  });
});
