import type { RequestListener } from 'node:http';
import request from 'supertest';
import { expect, it } from 'vitest';
import { useService } from './service.js';

const service = useService();

it('gives requests and responses their methods at birth: a change of prototype makes them slow', async () => {
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
