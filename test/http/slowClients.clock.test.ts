/** Clients that connect and never send a whole request: each test waits for a limit of the service. */
import { once } from 'node:events';
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import express from 'express';
import { describe, expect, it, test } from 'vitest';
import { createHttpServer, urlOf } from '../../src/http/httpServer.js';
import { useListeningService } from '../listening.js';

const service = useListeningService();

/** What the service answers to these bytes until it closes the connection. */
async function answerTo(bytes: string): Promise<string> {
  const { hostname, port } = new URL(service.url);
  const socket = connect(Number(port), hostname).on('error', () => {});
  let answer = '';
  socket.setEncoding('utf8').on('data', (text) => {
    answer += text;
  });
  socket.write(bytes);
  await once(socket, 'close');
  return answer;
}

describe.concurrent('a client', () => {
  it('whose headers never end is cut off with a 408 problem', async () => {
    const [head = '', body = ''] = (await answerTo('GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ')).split('\r\n\r\n');
    expect(head).toMatch(/^HTTP\/1\.1 408 /);
    expect(JSON.parse(body)).toMatchObject({ type: '/problems/invalid-request', status: 408 });
  });

  it('that says nothing at all is cut off', async () => {
    expect(await answerTo('')).toMatch(/^$|^HTTP\/1\.1 408 /);
  });
});

test.concurrent('An answer that takes 21 seconds is sent where REQUEST_TIMEOUT_SECONDS allows it', async () => {
  const app = express().get('/', async (_request, response) => {
    await sleep(21_000);
    response.send('late');
  });
  const server = createHttpServer(app, 30_000).listen(0, '127.0.0.1');
  await once(server, 'listening');
  expect(await (await fetch(urlOf(server, '127.0.0.1'))).text()).toBe('late');
  server.close();
});
