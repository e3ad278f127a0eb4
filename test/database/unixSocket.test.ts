/** PostgreSQL at a Unix-domain socket, as on the same machine or through the proxy of a managed service. */
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { useDatabase } from '../support/database.js';
import { useServiceOn } from '../support/service.js';
import { useTemporaryFolder } from '../support/temporaryFolder.js';

const folder = useTemporaryFolder('bpn-');
const socketFile = () => join(folder.path, '.s.PGSQL.5433');
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
  }).listen(socketFile());
  await once(listener, 'listening');
}

async function closeSocket(): Promise<void> {
  listener.close();
  for (const socket of connections) socket.destroy();
  connections.clear();
}

beforeAll(openSocket);
afterAll(closeSocket);

describe('a database at a Unix-domain socket', () => {
  it.each(['host', 'parameter'])('is used if its folder is the %s, also after it was unavailable', async (part) => {
    const { username, password, pathname } = new URL(database.url);
    const isHost = part === 'host';
    const host = isHost ? `${encodeURIComponent(folder.path)}:5433` : '';
    const parameters = isHost ? '' : `?host=${folder.path}&port=5433`;
    const DATABASE_URL = `postgres://${username}:${password}@${host}${pathname}${parameters}`;
    const { url } = await useServiceOn(DATABASE_URL, { DATABASE_URL });
    const status = async () => (await fetch(`${url}/v1/brandedPhoneNumbers`)).status;
    expect(await status()).toBe(200);
    await closeSocket();
    expect(await status()).toBe(503);
    await openSocket();
    expect(await status()).toBe(200);
  });
});
