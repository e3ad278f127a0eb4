/** Servers that pretend to be a PostgreSQL. */
import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';

/** Returns a message of PostgreSQL's protocol. */
export const message = (type: string, ...parts: (Buffer | string)[]) => {
  const content = Buffer.concat(parts.map((part) => Buffer.from(part as string)));
  const length = Buffer.alloc(4);
  length.writeUInt32BE(content.length + 4);
  return Buffer.concat([Buffer.from(type), length, content]);
};
export const authentication = (kind: number, rest = '') => message('R', Buffer.from([0, 0, 0, kind]), rest);
/** An authentication request for SCRAM. */
export const SASL = authentication(10, 'SCRAM-SHA-256\0\0');
export const OK = authentication(0);
export const READY = message('Z', 'I');
const SELECTED = message('C', 'SELECT 0\0');

/** Returns an error of PostgreSQL, which a function of it, `routine`, reports. */
export const errorResponse = (code: string, text: string, routine = 'some_function') =>
  message('E', `SERROR\0VERROR\0C${code}\0M${text}\0R${routine}\0\0`);

/** Lets a client log in, and then responds to each statement with an error; with `isOpen`, only to those after the first. */
export function failStatements(error: Buffer, { isOpen = false } = {}): (client: Duplex) => void {
  return (client) => {
    client.once('data', () => {
      client.write(Buffer.concat([OK, READY]));
      client.on('data', (bytes: Buffer) => {
        if (isOpen && bytes.equals(message('Q', 'SELECT\0')))
          return void client.write(Buffer.concat([SELECTED, READY]));
        if (bytes.includes('SELECT') || bytes.includes('select')) client.write(error);
        const isSimple = bytes[0] === 'Q'.charCodeAt(0);
        if (isSimple || bytes.at(-5) === 'S'.charCodeAt(0)) client.write(READY);
      });
    });
  };
}

/** Sends messages to a client after its first message. */
export function respondWith(...messages: (Buffer | string)[]): (client: Duplex) => void {
  return (client) => client.once('data', () => messages.map((bytes) => client.write(bytes)));
}

/** Listens on 127.0.0.1, records what clients send, and passes each client to `serve`. */
export async function openImpostor(port: number, serve: (client: Socket) => void) {
  const received: Buffer[] = [];
  const clients = new Set<Socket>();
  let accepted = 0;
  const server = createServer((socket) => {
    accepted++;
    clients.add(socket);
    socket.on('error', () => {}).once('close', () => clients.delete(socket));
    socket.on('data', (data) => received.push(data));
    serve(socket);
  }).listen(port, '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    /** Returns all bytes that clients have sent. */
    received: () => Buffer.concat(received).toString('latin1'),
    /** Returns the number of connections that were accepted, and of those that are open. */
    accepted: () => accepted,
    connections: () => clients.size,
    close() {
      for (const socket of clients) socket.destroy();
      server.close();
    },
  };
}
