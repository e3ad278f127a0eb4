/** PostgreSQL through a Unix-domain socket, as on one machine and through the proxies of managed services. */
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Service } from '../../src/service/server.js';
import { createDatabase } from '../support/database.js';
import { listenOn } from '../support/listening.js';

let folder: string;
let socketFile: string;
let databaseUrl: URL;
let drop: () => Promise<void>;
let listener: Server;
const passed = new Set<Socket>();

/** Passes what comes through the socket on to the test run's PostgreSQL. */
async function openSocket(): Promise<void> {
  listener = createServer((client) => {
    const server = connect(Number(databaseUrl.port), databaseUrl.hostname);
    for (const socket of [client, server]) {
      passed.add(socket);
      socket.on('error', () => {}).on('close', () => [client, server].map((each) => each.destroy()));
    }
    client.pipe(server).pipe(client);
  }).listen(socketFile);
  await once(listener, 'listening');
}

async function closeSocket(): Promise<void> {
  listener.close();
  for (const socket of passed) socket.destroy();
  passed.clear();
}

beforeAll(async () => {
  const { url, drop: dropDatabase } = await createDatabase();
  databaseUrl = new URL(url);
  drop = dropDatabase;
  folder = await mkdtemp(join(tmpdir(), 'bpn-'));
  socketFile = join(folder, '.s.PGSQL.5433');
  await openSocket();
});
afterAll(async () => {
  await closeSocket();
  await drop();
  await rm(folder, { recursive: true });
});

describe('a database at a Unix-domain socket', () => {
  it.each([
    ['as the host', (user: string) => `postgres://${user}@${encodeURIComponent(folder)}:5433`, ''],
    ['as a parameter', (user: string) => `postgres://${user}@`, `?host=${'{folder}'}&port=5433`],
  ])('is used if its folder is given %s, and again after the socket was removed', async (_name, begin, end) => {
    const user = `${databaseUrl.username}:${databaseUrl.password}`;
    const DATABASE_URL = `${begin(user)}${databaseUrl.pathname}${end.replace('{folder}', folder)}`;
    const service = await listenOn(DATABASE_URL, { DATABASE_URL });
    try {
      expect(await statusOf(service)).toBe(200);
      await closeSocket();
      expect(await statusOf(service)).toBe(503);
      await openSocket();
      expect(await statusOf(service)).toBe(200);
    } finally {
      await service.close();
    }
  });
});

async function statusOf({ url }: Service): Promise<number> {
  return (await fetch(`${url}/v1/brandedPhoneNumbers`)).status;
}
