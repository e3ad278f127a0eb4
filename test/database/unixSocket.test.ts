/** PostgreSQL at a Unix-domain socket, as on the same machine or through the proxy of a managed service. */
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Service } from '../../src/service/server.js';
import { useDatabase } from '../support/database.js';
import { listenOn } from '../support/service.js';

let folder: string;
let socketFile: string;
let listener: Server;
const connections = new Set<Socket>();
const database = useDatabase();

/** Listens on the socket and forwards each connection to the test run's PostgreSQL. */
async function openSocket(): Promise<void> {
  listener = createServer((client) => {
    const { port, hostname } = new URL(database.url);
    const server = connect(Number(port), hostname);
    for (const socket of [client, server]) {
      connections.add(socket);
      socket.on('error', () => {}).on('close', () => [client, server].map((end) => end.destroy()));
    }
    client.pipe(server).pipe(client);
  }).listen(socketFile);
  await once(listener, 'listening');
}

async function closeSocket(): Promise<void> {
  listener.close();
  for (const socket of connections) socket.destroy();
  connections.clear();
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'bpn-'));
  socketFile = join(folder, '.s.PGSQL.5433');
  await openSocket();
});
afterAll(async () => {
  await closeSocket();
  await rm(folder, { recursive: true });
});

describe('a database at a Unix-domain socket', () => {
  it.each(['host', 'parameter'])('is used if its folder is the %s, also after it was unavailable', async (part) => {
    const { username, password, pathname } = new URL(database.url);
    const isHost = part === 'host';
    const host = isHost ? `${encodeURIComponent(folder)}:5433` : '';
    const parameters = isHost ? '' : `?host=${folder}&port=5433`;
    const DATABASE_URL = `postgres://${username}:${password}@${host}${pathname}${parameters}`;
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
