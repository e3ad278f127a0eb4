import type { RequestListener } from 'node:http';
import { pino } from 'pino';
import request from 'supertest';
import { expect, it } from 'vitest';
import { readConfig } from '../../src/config/config.js';
import { migrateDatabase } from '../../src/database/migrations.js';
import { openLog } from '../../src/log.js';
import { migrationsFolder } from '../../src/packageFolder.js';
import { openService } from '../../src/service/app.js';
import { startService } from '../../src/service/server.js';
import { createDatabase } from '../support/database.js';

it('the server creates requests and responses with the prototypes of Express, so Express replaces none', async () => {
  const { server, close } = openService(readConfig({}), await createDatabase(), openLog({ LOG_LEVEL: 'silent' }));
  const [handle] = server.listeners('request') as [RequestListener];
  const prototypes: unknown[][] = [];
  server.removeAllListeners('request');
  server.on('request', (incoming, outgoing) => {
    const before = [Object.getPrototypeOf(incoming), Object.getPrototypeOf(outgoing)];
    handle(incoming, outgoing);
    prototypes.push([...before, Object.getPrototypeOf(incoming), Object.getPrototypeOf(outgoing)]);
  });
  expect((await request(server).get('/v1/brandedPhoneNumbers')).status).toBe(200);
  await close();
  const [[requestBefore, responseBefore, requestAfter, responseAfter] = []] = prototypes;
  expect(requestAfter).toBe(requestBefore);
  expect(responseAfter).toBe(responseBefore);
});

it('the list is a 503 until the start is finished, and does not use the store of the limit', async () => {
  const url = await createDatabase({ isEmpty: true });
  const lines: string[] = [];
  const log = pino({ level: 'error' }, { write: (line: string) => void lines.push(JSON.parse(line).msg) });
  const service = await startService(readConfig({ DATABASE_URL: url, PORT: '0' }), url, log);
  const list = () => fetch(`${service.url}/v1/brandedPhoneNumbers`);
  const { status, headers } = await list();
  expect([status, headers.get('Retry-After'), headers.has('RateLimit')]).toEqual([503, '1', true]);
  expect((await fetch(`${service.url}/readyz`)).status).toBe(503);
  await migrateDatabase(url, migrationsFolder);
  expect((await list()).status).toBe(503);
  expect(lines).toEqual([]);
  await service.begin();
  expect((await list()).status).toBe(200);
  await service.close();
});
