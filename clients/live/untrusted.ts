/** A server with a certificate that no client trusts, and one that responds with how often clients have connected to it. */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import type { AddressInfo, Server } from 'node:net';
import { join } from 'node:path';
import { makeAuthority } from '../../test/support/certificates.js';

export async function startUntrusted(folder: string): Promise<{ url: string; countUrl: string; close(): void }> {
  const authority = makeAuthority(join(folder, 'untrusted'));
  authority.issue('server', 'localhost', 'DNS:localhost,IP:127.0.0.1');
  const [cert, key] = ['pem', 'key'].map((ending) => readFileSync(authority.file(`server.${ending}`)));
  let connections = 0;
  const untrusted = createHttpsServer({ cert, key }).on('connection', () => connections++);
  const count = createHttpServer((_request, response) => response.end(String(connections)));
  const listen = async (server: Server) => {
    await once(server.listen(0, '127.0.0.1'), 'listening');
    return `127.0.0.1:${(server.address() as AddressInfo).port}`;
  };
  return {
    url: `https://${await listen(untrusted)}`,
    countUrl: `http://${await listen(count)}`,
    close() {
      for (const server of [untrusted, count]) {
        server.close();
        server.closeAllConnections();
      }
    },
  };
}
