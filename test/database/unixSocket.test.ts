/** PostgreSQL at a Unix-domain socket, as on the same machine or through the proxy of a managed service. */
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { useDatabase } from '../support/database.js';
import { useServiceOn } from '../support/service.js';
import { useTemporaryFolder } from '../support/temporaryFolder.js';
import { openToxicProxy } from '../support/toxicProxy.js';

const folder = useTemporaryFolder('bpn-');
const database = useDatabase();

describe('a database at a Unix-domain socket', () => {
  it.each(['host', 'parameter'])('is used if its folder is the %s, also after it was unavailable', async (part) => {
    const { port, username, password, pathname } = new URL(database.url);
    const listen = () => openToxicProxy(Number(port), join(folder.path, '.s.PGSQL.5433'));
    let socket = await listen();
    onTestFinished(() => socket.close());
    const isHost = part === 'host';
    const host = isHost ? `${encodeURIComponent(folder.path)}:5433` : '';
    const parameters = isHost ? '' : `?host=${folder.path}&port=5433`;
    const DATABASE_URL = `postgres://${username}:${password}@${host}${pathname}${parameters}`;
    const { url } = await useServiceOn(DATABASE_URL, { DATABASE_URL });
    const status = async () => (await fetch(`${url}/v1/brandedPhoneNumbers`)).status;
    expect(await status()).toBe(200);
    await socket.close();
    expect(await status()).toBe(503);
    socket = await listen();
    expect(await status()).toBe(200);
  });
});
