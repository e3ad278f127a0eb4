import { once } from 'node:events';
import type { RequestListener } from 'node:http';
import { type AddressInfo, createServer } from 'node:net';
import request from 'supertest';
import { expect, it } from 'vitest';
import { UserError } from '../../src/userError.js';
import { listenOn } from '../support/listening.js';
import { useService } from '../support/service.js';

const service = useService();

it('the server creates requests and responses with Express’s methods, so that their prototypes need not change', async () => {
  const { app: server } = service;
  const [handle] = server.listeners('request') as [RequestListener];
  const prototypes: unknown[][] = [];
  server.removeAllListeners('request');
  server.on('request', (incoming, outgoing) => {
    const before = [Object.getPrototypeOf(incoming), Object.getPrototypeOf(outgoing)];
    handle(incoming, outgoing);
    prototypes.push([...before, Object.getPrototypeOf(incoming), Object.getPrototypeOf(outgoing)]);
  });
  expect((await request(server).get('/v1/brandedPhoneNumbers')).status).toBe(200);
  const [[requestBefore, responseBefore, requestAfter, responseAfter] = []] = prototypes;
  expect(requestAfter).toBe(requestBefore);
  expect(responseAfter).toBe(responseBefore);
});

it.each(['PORT', 'METRICS_PORT'])('the start names %s if its port is taken', async (name) => {
  const other = createServer().listen(0, '127.0.0.1');
  await once(other, 'listening');
  const port = String((other.address() as AddressInfo).port);
  const started = listenOn(service.databaseUrl, { [name]: port });
  await expect(started).rejects.toThrow(
    new UserError(`${name} ${port} of 127.0.0.1 is already in use; choose another`),
  );
  other.close();
});
