/**
 * A proxy in front of the service that fails as its URL says. A client gets a base URL `/<name>/<steps>`. `<steps>` is
 * a comma-separated list: the first request is handled by the first step, and so on. Requests after the last step are
 * forwarded. `/<name>/<steps>/requests` lists the requests: the path and query of each, when it arrived, in
 * milliseconds, its headers, and the size of the forwarded body. A client may also use this server as its HTTP proxy, with any host in the base URL.
 *
 * Steps; the last one may end with `*`, and then handles all further requests:
 *
 * - `ok` forwards the request.
 * - `503`, `429` and so on respond with that status and `Retry-After: 0`; `503-1` with `Retry-After: 1`; `503-date`
 *   with a date one to two seconds later; `503-` without `Retry-After`.
 * - `late` responds with 503 after three seconds.
 * - `break` and `half` close the connection in the status line and in the body.
 * - `silent` sends no response, `stall` half of one, and `trickle` the rest of it byte by byte, for minutes; `drip` sends
 *   one header after the other.
 * - `moved` redirects to the service itself.
 * - `html` responds as a proxy does, with 502 and HTML; `login` and `other` respond with 200 and HTML, and with other
 *   JSON.
 * - `lacks-`, `null-`, `other-` and `form-`, followed by a member such as `items.0.id`, respond with a page without that
 *   member, with `null`, with a value of another type, or with one of another form (live/malformed.ts).
 * - `cursor-` responds with the first page and the `nextCursor` that follows.
 *
 * Settings, which may stand anywhere among the steps: `size=20` sets the size of all pages; `etag`, `Etag` or `ETag`
 * sets the spelling of all header names, as HAProxy, Caddy and the service write them.
 */
import { once } from 'node:events';
import { createServer, get, type IncomingMessage, type OutgoingHttpHeaders, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { malformed } from './malformed.js';

interface ReceivedRequest {
  path: string;
  at: number;
  headers: IncomingMessage['headers'];
  bytes?: number;
}

export async function startFailing(serviceUrl: string): Promise<{ url: string; close(): void }> {
  const requestsByAddress = new Map<string, ReceivedRequest[]>();
  const server = createServer(async (request, response) => {
    const [, address = '', steps = '', path = ''] =
      /^(?:http:\/\/[^/]+)?(\/[^/]+\/([^/]+))(\/.*)$/.exec(request.url ?? '') ?? [];
    const received = requestsByAddress.get(address) ?? [];
    requestsByAddress.set(address, received);
    if (path === '/requests') return response.end(JSON.stringify(received));
    const current: ReceivedRequest = { path, at: performance.timeOrigin + performance.now(), headers: request.headers };
    received.push(current);
    const items = decodeURIComponent(steps).split(',');
    const size = items.find((step) => step.startsWith('size='))?.slice('size='.length);
    const spelling = items.find((step) => /^etag$/i.test(step)) ?? 'ETag';
    const scripted = items.filter((step) => !/^(size=.*|etag)$/i.test(step));
    const endless = scripted.findIndex((step) => step.endsWith('*'));
    const step = scripted[endless >= 0 ? Math.min(endless, received.length - 1) : received.length - 1] ?? 'ok';
    const url = new URL(serviceUrl + path);
    if (size) url.searchParams.set('size', size);
    await handle(step.replace('*', ''), url, current, response, spelling);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}

async function handle(
  step: string,
  url: URL,
  received: ReceivedRequest,
  response: ServerResponse,
  spelling: string,
): Promise<unknown> {
  const head = (status: number, headers: OutgoingHttpHeaders) =>
    response.writeHead(
      status,
      Object.fromEntries(Object.entries(headers).flatMap(([name, value]) => (value ? [[spell(name), value]] : []))),
    );
  const spell = (name: string) => {
    if (spelling === 'etag') return name.toLowerCase();
    return spelling === 'Etag' ? name.replace(/\B\w+/g, (letters) => letters.toLowerCase()) : name;
  };
  if (step === 'silent') return;
  if (step === 'drip') {
    response.socket?.write('HTTP/1.1 200 OK\r\n');
    return writeUntilClosed(response, () => response.socket?.write('X-Slow: 1\r\n'));
  }
  if (step === 'late') return setTimeout(() => handle('503', url, received, response, spelling), 3000);
  if (step === 'moved') return head(308, { Location: String(url) }).end();
  // Sends a few bytes: otherwise, the standard libraries of some languages would retry once.
  if (step === 'break') return response.socket?.end('HTTP/1.');
  if (step === 'html') return head(502, { 'Content-Type': 'text/html' }).end('<h1>Bad Gateway</h1>');
  if (step === 'login') return head(200, { 'Content-Type': 'text/html' }).end(`<h1>Log in</h1>${'.'.repeat(200)}`);
  if (step === 'other') return head(200, { 'Content-Type': 'application/json' }).end('{"ok":true}');
  const [, status, retryAfter] = /^(\d{3})(-\d*|-date)?$/.exec(step) ?? [];
  if (status) {
    const date = new Date(Date.now() + 2000).toUTCString();
    const wait = retryAfter === '-date' ? date : (retryAfter?.slice(1) ?? '0');
    const problem = {
      type: '/problems/unavailable',
      title: 'Unavailable',
      status: Number(status),
      detail: 'Try again.',
      message: 'Unavailable',
    };
    head(Number(status), { 'Content-Type': 'application/problem+json', 'Retry-After': wait });
    return response.end(JSON.stringify(problem));
  }
  const [, change, place = ''] = /^(lacks|null|other|form|cursor)-(.*)$/.exec(step) ?? [];
  if (change) {
    url.searchParams.delete('nextCursor');
    const page = await (await fetch(url)).json();
    const changed = change === 'cursor' ? { ...page, nextCursor: place } : malformed(page, change, place);
    return head(200, { 'Content-Type': 'application/json' }).end(JSON.stringify(changed));
  }
  const { 'if-none-match': held, 'accept-encoding': encodings } = received.headers;
  const asking = get(url, {
    headers: { ...(held && { 'If-None-Match': held }), ...(encodings && { 'Accept-Encoding': encodings }) },
  });
  const [forwarded] = (await once(asking, 'response')) as [IncomingMessage];
  const body = Buffer.concat(await forwarded.toArray());
  received.bytes = body.length;
  head(forwarded.statusCode ?? 0, {
    'Content-Type': forwarded.headers['content-type'],
    'Content-Encoding': forwarded.headers['content-encoding'],
    ETag: forwarded.headers.etag,
    'X-Request-Id': forwarded.headers['x-request-id'],
    'Content-Length': forwarded.headers['content-length'],
  });
  if (step === 'ok') return response.end(body);
  response.write(body.subarray(0, body.length / 2));
  if (step === 'half') setTimeout(() => response.destroy(), 50);
  if (step === 'trickle') {
    let at = body.length / 2;
    writeUntilClosed(response, () => response.write(body.subarray(at, ++at)));
  }
}

/** Repeats `write` ten times a second until the client has left, as it may have before the first time. */
function writeUntilClosed(response: ServerResponse, write: () => void): void {
  const writing = setInterval(() => (response.destroyed ? clearInterval(writing) : write()), 100);
}
