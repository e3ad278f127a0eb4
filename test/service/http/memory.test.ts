import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import express from 'express';
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readConfig } from '../../../src/config/config.js';
import { constantResponse } from '../../../src/service/docs/constantResponse.js';
import { createHttpServer, urlOf } from '../../../src/service/http/httpServer.js';
import type { Service } from '../../../src/service/server.js';
import { whileLocked } from '../../support/connection.js';
import { useDatabase } from '../../support/database.js';
import { collectGarbage } from '../../support/garbage.js';
import { exchange, openSocket } from '../../support/rawHttp.js';
import { listenOn, metricOf, metricsOf } from '../../support/service.js';
import { holdPages } from '../../support/unreadPages.js';
import { until } from '../../support/until.js';

it('nothing of a request and its response is kept for an idle connection', async () => {
  const kept: WeakRef<object>[] = [];
  const app = express().get('/', (request, response) => {
    kept.push(new WeakRef(request), new WeakRef(response));
    response.send('done');
  });
  const { server } = createHttpServer(app, readConfig({}), { logRefusal: () => 'id', onCutOff() {} });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const socket = openSocket(urlOf(server, '127.0.0.1'));
  socket.write('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n');
  await once(socket, 'data');
  await until(() => {
    collectGarbage();
    return kept.length === 2 && kept.every((reference) => reference.deref() === undefined);
  }, 'the request and the response are collected');
  expect(socket.destroyed).toBe(false);
  socket.destroy();
  server.close();
});

describe('a request', () => {
  const database = useDatabase();
  const lines: Record<string, unknown>[] = [];
  let service: Service;
  beforeAll(async () => {
    const log = pino({ level: 'info' }, { write: (line: string) => void lines.push(JSON.parse(line)) });
    service = await listenOn(database.url, { REQUEST_TIMEOUT_SECONDS: '2' }, log);
  });
  afterAll(() => service.close());

  /** Returns the number of responses with a status, from the metrics. */
  async function counted(status: number): Promise<number> {
    const counts = (await metricsOf(service)).matchAll(
      new RegExp(`^http_request_duration_seconds_count{.*status="${status}"} (\\d+)$`, 'gm'),
    );
    return [...counts].reduce((sum, [, count]) => sum + Number(count), 0);
  }

  it.each<[string, string[], number, string | undefined]>([
    ['that begins with the PROXY protocol', ['PROXY TCP4 192.0.2.1 192.0.2.2 1 80'], 400, 'Parse Error'],
    ['that is TLS', ['\x16\x03\x01 hello'], 400, 'Parse Error'],
    ['with a header of 20 KB', ['GET / HTTP/1.1', `X-Long: ${'a'.repeat(20_000)}`], 431, 'Parse Error'],
    ['with a target that is not an address', ['GET http://[::1/v1 HTTP/1.1', 'Host: localhost'], 400, undefined],
  ])(
    '%s is in the log and in the metrics, although the application never sees it',
    async (_name, head, status, reason) => {
      lines.length = 0;
      const before = await counted(status);
      const { headers } = await exchange(service.url, head);
      const requestId = headers['x-request-id'];
      await until(() => lines.length > 0, 'the line');
      const expected = { level: 30, requestId, status, ...(reason && { reason: expect.stringContaining(reason) }) };
      expect(lines).toEqual([expect.objectContaining(expected)]);
      expect(await counted(status)).toBe(before + 1);
    },
  );

  it('counts as 499 if its client left before the response', async () => {
    lines.length = 0;
    const before = await counted(200);
    await whileLocked(database.url, 'LOCK items IN ACCESS EXCLUSIVE MODE', async () => {
      const socket = openSocket(service.url);
      socket.write('GET /v1/brandedPhoneNumbers HTTP/1.1\r\nHost: localhost\r\n\r\n');
      await sleep(300);
      socket.resetAndDestroy();
      await until(() => lines.some(({ status }) => status !== undefined), 'the line of the request');
    });
    expect(lines.map(({ route, status }) => [route, status])).toEqual([['/v1/brandedPhoneNumbers', 499]]);
    expect([await counted(499), await counted(200)]).toEqual([1, before]);
  });

  it('is not in the log if its connection was reset before it was complete', async () => {
    lines.length = 0;
    const socket = openSocket(service.url);
    await once(socket.setNoDelay(true), 'connect');
    await new Promise((written) => socket.write('GET / HTTP/1.1\r\n', written));
    // A response to a later request means that the service has read what arrived before.
    await fetch(`${service.url}/problems`);
    socket.resetAndDestroy();
    await fetch(`${service.url}/problems`);
    await until(() => lines.length >= 2, 'the lines of the other requests');
    expect(lines.map(({ route }) => route)).toEqual(['/problems', '/problems']);
  });

  it.each([
    ['/nowhere', undefined],
    ['/problems', '/problems'],
  ])('of a browser for %s has the route %s in the log', async (path, route) => {
    lines.length = 0;
    await fetch(service.url + path, { headers: { Accept: 'text/html' } });
    await until(() => lines.length > 0, 'the line');
    expect(lines.map((line) => line.route)).toEqual([route]);
  });

  it('is cut off, with a line in the log and a metric, if pages of 64 MB are not read', async () => {
    lines.length = 0;
    const close = await holdPages(service.url, database.url);
    const isLine = ({ msg }: Record<string, unknown>) => /^connections cut off/.test(`${msg}`);
    await until(() => lines.some(isLine), 'the line');
    expect(lines.find(isLine)).toMatchObject({ level: 40, count: expect.any(Number), bytes: expect.any(Number) });
    expect(await metricOf(service, 'http_connections_cut_off_total')).toBeGreaterThan(0);
    await close();
  });
});

it('files that clients do not read are not held for each of them', async () => {
  const app = express().get('/', constantResponse('application/zip', Buffer.alloc(20 * 2 ** 20)));
  const cutOff: number[] = [];
  const onCutOff = (count: number) => void cutOff.push(count);
  const { server } = createHttpServer(app, readConfig({}), { logRefusal: () => 'id', onCutOff });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const sockets = Array.from({ length: 4 }, () => openSocket(urlOf(server, '127.0.0.1')).pause());
  for (const socket of sockets) socket.write('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n');
  await sleep(1000);
  expect(cutOff).toEqual([]);
  for (const socket of sockets) socket.destroy();
  server.close();
});
