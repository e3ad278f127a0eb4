/** Raw HTTP, for requests that no client library sends. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import type { Problem } from '../../generated/types/models/index.js';

interface RawResponse {
  status: number;
  /** Their names are in lower case. */
  headers: Record<string, string>;
  body: string;
}

/** Opens a connection to the host of `url`, which may break without failing the test. */
export function openSocket(url: string, options: { localAddress?: string; allowHalfOpen?: boolean } = {}): Socket {
  const { hostname, port } = new URL(url);
  return connect({ host: hostname, port: Number(port), ...options }).on('error', () => {});
}

/** Sends `head`, the lines of a request, to the host of `url`, and reads the response until the connection ends. */
export async function exchange(url: string, head: string[]): Promise<RawResponse> {
  const socket = openSocket(url);
  let text = '';
  socket.setEncoding('utf8').on('data', (chunk) => {
    text += chunk;
  });
  socket.write([...head, 'Connection: close', '', ''].join('\r\n'));
  await once(socket, 'close', { signal: AbortSignal.timeout(15_000) }).finally(() => socket.destroy());
  const [top = '', ...body] = text.split('\r\n\r\n');
  const [statusLine = '', ...lines] = top.split('\r\n');
  return {
    status: Number(statusLine.split(' ')[1]),
    headers: Object.fromEntries(
      lines.map((line) => [line.slice(0, line.indexOf(':')).toLowerCase(), line.slice(line.indexOf(':') + 2)]),
    ),
    body: body.join('\r\n\r\n'),
  };
}

export function problemIn({ body }: RawResponse): Problem {
  return JSON.parse(body);
}
