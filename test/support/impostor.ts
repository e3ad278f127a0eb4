/** A server that pretends to be a PostgreSQL and requests a password. */
import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';

const authentication = (kind: number, rest = '') => {
  const message = Buffer.concat([Buffer.from('R\0\0\0\0\0\0\0\0'), Buffer.from(rest)]);
  message.writeUInt32BE(message.length - 1, 1);
  message.writeUInt32BE(kind, 5);
  return message;
};
/** Authentication requests: for a password in clear text, for its MD5 hash, and for SCRAM. */
export const CLEAR_TEXT = authentication(3);
export const MD5 = authentication(5, 'salt');
export const SASL = authentication(10, 'SCRAM-SHA-256\0\0');
export const OK = authentication(0);

/** Listens on 127.0.0.1, sends `requests` to each client after its first message, and records what clients send. */
export async function openImpostor(port: number, requests: Buffer[]) {
  const received: Buffer[] = [];
  const clients = new Set<Socket>();
  const server = createServer((socket) => {
    clients.add(socket);
    socket.on('error', () => {});
    socket.once('data', () => {
      for (const request of requests) socket.write(request);
    });
    socket.on('data', (data) => received.push(data));
  }).listen(port, '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    /** Returns all bytes that clients have sent. */
    received: () => Buffer.concat(received).toString('latin1'),
    close() {
      for (const socket of clients) socket.destroy();
      server.close();
    },
  };
}
