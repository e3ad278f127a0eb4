/**
 * The service on a bad day: passes requests to the real one, except where the address that a client was given says
 * otherwise. Such an address is `/<anything>/<steps>`: its first request meets the first step, and so on, with commas
 * between them; requests after the last step are passed on. `/<anything>/<steps>/asked` lists when requests came.
 *
 * Steps: `ok`; `503`, `429` and other statuses, with `Retry-After: 0`; `503-1`, with `Retry-After: 1`; `503-date`, with a date
 * that is one to two seconds away; `503-`, without;
 * `break` and `half`, a connection that breaks in the first line of the response and in its body; `silent` and `stall`, no response and
 * half of one; `html`, a proxy's 502; `login` and `other`, a 200 that is HTML or other JSON; a step with `*` is met by all
 * requests from there on. `size=20` is not a step: it sets the size of all pages. Nor is `etag`, `Etag` or `ETag`: it says how
 * the names of headers are spelled, as by HAProxy, Caddy and the service.
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export async function startFailing(serviceUrl: string): Promise<{ url: string; close(): void }> {
  const asked = new Map<string, number[]>();
  const server = createServer(async (request, response) => {
    const [, address = '', steps = '', path = ''] = /^(\/[^/]+\/([^/]+))(\/.*)$/.exec(request.url ?? '') ?? [];
    const times = asked.get(address) ?? [];
    asked.set(address, times);
    if (path === '/asked') return response.end(JSON.stringify(times));
    times.push(performance.now());
    const all = decodeURIComponent(steps).split(',');
    const size = all.find((step) => step.startsWith('size='))?.slice('size='.length);
    const spelling = all.find((step) => /^etag$/i.test(step)) ?? 'ETag';
    const scripted = all.filter((step) => !/^(size=.*|etag)$/i.test(step));
    const endless = scripted.findIndex((step) => step.endsWith('*'));
    const step = scripted[endless >= 0 ? Math.min(endless, times.length - 1) : times.length - 1] ?? 'ok';
    const url = new URL(serviceUrl + path);
    if (size) url.searchParams.set('size', size);
    await meet(step.replace('*', ''), url, request, response, spelling);
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

async function meet(
  step: string,
  url: URL,
  request: IncomingMessage,
  response: ServerResponse,
  spelling: string,
): Promise<unknown> {
  const head = (status: number, headers: Record<string, string | null>) =>
    response.writeHead(
      status,
      Object.fromEntries(Object.entries(headers).flatMap(([name, value]) => (value ? [[spell(name), value]] : []))),
    );
  const spell = (name: string) => {
    if (spelling === 'etag') return name.toLowerCase();
    return spelling === 'Etag' ? name.replace(/\B\w+/g, (letters) => letters.toLowerCase()) : name;
  };
  if (step === 'silent') return;
  // If nothing had been sent, the standard libraries of some languages would retry once.
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
      title: 'Bad Day',
      status: Number(status),
      detail: 'Try again.',
      message: 'Bad Day',
    };
    head(Number(status), { 'Content-Type': 'application/problem+json', 'Retry-After': wait });
    return response.end(JSON.stringify(problem));
  }
  const held = request.headers['if-none-match'];
  const answer = await fetch(url, { headers: held ? { 'If-None-Match': held } : {} });
  const body = Buffer.from(await answer.arrayBuffer());
  head(answer.status, {
    'Content-Type': answer.headers.get('Content-Type'),
    ETag: answer.headers.get('ETag'),
    'Content-Length': answer.status === 304 ? null : String(body.length),
  });
  if (step === 'ok') return response.end(body);
  response.write(body.subarray(0, body.length / 2));
  if (step === 'half') setTimeout(() => response.destroy(), 50);
}
