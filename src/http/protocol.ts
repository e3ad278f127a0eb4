/**
 * What HTTP itself requires of any request. Node would answer some violations without a body, drop excess headers
 * silently, or let the request pass; here each gets a problem like any other fault.
 */
import type { Request } from 'express';
import type { Config } from '../config.js';
import { abridged } from '../messages/shorten.js';
import { problem } from '../problem/problem.js';
import { isLoopback } from './loopback.js';

/** Header lines of one request. */
const MAX_HEADERS = 100;
/** The longest Accept-Encoding that is read; a longer one would take milliseconds, and is ignored. */
const MAX_ACCEPT_ENCODING = 1000;
/** The path of a target. Longer ones are not ours, and would cost more to normalize. */
const PATH = /^[^?]{1,1000}(?=\?|$)/;
/** Characters of a path that mean the same without percent-encoding (RFC 3986 section 2.3). */
const NEEDLESSLY_ENCODED = /%(2[de]|3\d|[46][1-9a-f]|[57][0-9a]|5f|7e)/gi;

/**
 * Creates the check of a request. It throws a problem if the request breaks a rule of HTTP, or is for another host while
 * only this machine is served; otherwise it normalizes the request's path (RFC 3986 section 6.2.2.2).
 */
export function protocolCheck(
  config: Pick<Config, 'HOST' | 'AUTH' | 'TRUST_PROXY' | 'PUBLIC_URL'>,
): (request: Request) => void {
  const isPrivate = isLoopback(config.HOST) && config.AUTH === 'none' && config.TRUST_PROXY === 0;
  const publicHost = config.PUBLIC_URL && hostnameOf(new URL(config.PUBLIC_URL).host);
  const isServed = (name: string) => isLoopback(name) || name === publicHost;

  return (request) => {
    const { rawHeaders, httpVersion } = request;
    const headers = rawHeaders.length / 2;
    if (headers > MAX_HEADERS) {
      const detail = `The request has ${headers} headers; at most ${MAX_HEADERS} are allowed.`;
      throw problem('invalid-request', detail, { status: 431 });
    }
    const hosts = valuesOf('host', rawHeaders);
    // RFC 9112 section 3.2. And if there are two keys, a proxy in front may have checked the other one.
    for (const name of ['Host', 'Authorization']) {
      const count = valuesOf(name.toLowerCase(), rawHeaders).length;
      if (count > 1) throw problem('invalid-request', `The request has ${count} ${name} headers; send one.`);
    }
    if (hosts.length === 0 && httpVersion === '1.1')
      throw problem('invalid-request', 'The request has no Host header.');
    // A target that names a host takes precedence over the header (RFC 9112 section 3.2.2).
    const host = /^https?:\/\/([^/?#]*)/i.exec(request.url)?.[1] ?? hosts[0];
    // A web page can point its own name to this machine and read the answers (DNS rebinding); its name is then the Host.
    if (isPrivate && host !== undefined && !isServed(hostnameOf(host))) {
      throw problem(
        'misdirected-request',
        `Without keys and proxies this instance answers only localhost and loopback addresses, not ${abridged(host)}. To have it answer other names, set PUBLIC_URL to the one it is known by, or AUTH=api-key.`,
      );
    }
    // Only the path: a query is decoded where it is read.
    request.url = request.url.replace(PATH, (path) => path.replace(NEEDLESSLY_ENCODED, decodeURIComponent));
    const { 'accept-encoding': encodings = '' } = request.headers;
    if (encodings.length > MAX_ACCEPT_ENCODING) delete request.headers['accept-encoding'];
  };
}

/** The values of one header, from a list in which names and values alternate. */
function valuesOf(name: string, rawHeaders: readonly string[]): string[] {
  return rawHeaders.filter((_value, index) => index % 2 === 1 && rawHeaders[index - 1]?.toLowerCase() === name);
}

/** The name or address in a Host header, in lower case, without its port and brackets. */
function hostnameOf(host: string): string {
  return host
    .replace(/:\d*$/, '')
    .replace(/^\[|\]$/g, '')
    .toLowerCase();
}
