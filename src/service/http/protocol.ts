/** Checks what HTTP requires of every request: Node would respond to some violations without a body, and ignore others. */
import type { Request } from 'express';
import { type Config, isLoopback, isPrivate } from '../../config/config.js';
import { cut, escapeHidden } from '../../messages/shown.js';
import { problem } from '../problem/problem.js';

export const MAX_HEADERS = 100;
/** The longest Accept-Encoding that is read, in characters; a longer one would take milliseconds, and is ignored. */
const MAX_ACCEPT_ENCODING = 1000;
/** The path of a request target. No path of ours is longer, and longer ones would cost more to normalize. */
const PATH = /^[^?]{1,1000}(?=\?|$)/;
/** Percent-encoded characters that mean the same unencoded (RFC 3986 section 2.3). */
const NEEDLESSLY_ENCODED = /%(2[de]|3\d|[46][1-9a-f]|[57][0-9a]|5f|7e)/gi;

/**
 * Returns a check of requests. It throws a problem if a request violates HTTP, or names a host that this instance does not
 * serve; otherwise it normalizes the request's path (RFC 3986 section 6.2.2.2).
 */
export function protocolCheck(config: Config): (request: Request) => void {
  const publicHost = config.PUBLIC_URL && hostnameOf(new URL(config.PUBLIC_URL).host);
  const isServed = (name: string) => isLoopback(name) || name === publicHost;

  return (request) => {
    const { rawHeaders, httpVersion } = request;
    if (rawHeaders.length / 2 > MAX_HEADERS) {
      const detail = `The request has too many headers; at most ${MAX_HEADERS} are allowed.`;
      throw problem('invalid-request', detail, { status: 431 });
    }
    // Two hosts violate RFC 9112 section 3.2. If there are two keys, a proxy in front may have checked either.
    const given = onlyValueOf('Host', rawHeaders);
    onlyValueOf('Authorization', rawHeaders);
    if (given === undefined && httpVersion === '1.1') {
      throw problem('invalid-request', 'The request has no Host header.');
    }
    // A host in the request target takes precedence over the header (RFC 9112 section 3.2.2).
    const host = /^https?:\/\/([^/?#]*)/i.exec(request.url)?.[1] ?? given;
    // A web page can point its own name to this machine and read the responses (DNS rebinding); its name is then the Host.
    if (isPrivate(config) && host !== undefined && !isServed(hostnameOf(host))) {
      throw problem(
        'misdirected-request',
        `Without API keys and proxies, this instance serves only localhost and loopback addresses, not ${cut(escapeHidden(host))}. To serve another name, set PUBLIC_URL to it, or set AUTH=api-key.`,
      );
    }
    // Only the path is normalized; the query is decoded when it is read.
    request.url = request.url.replace(PATH, (path) => path.replace(NEEDLESSLY_ENCODED, decodeURIComponent));
    const { 'accept-encoding': encodings = '' } = request.headers;
    if (encodings.length > MAX_ACCEPT_ENCODING) delete request.headers['accept-encoding'];
  };
}

/** Returns the value of a header, from a list in which names and values alternate. Throws a problem if there are several. */
function onlyValueOf(name: string, rawHeaders: readonly string[]): string | undefined {
  const lowerCase = name.toLowerCase();
  const isValue = (index: number) => index % 2 === 1 && rawHeaders[index - 1]?.toLowerCase() === lowerCase;
  const [value, ...others] = rawHeaders.filter((_text, index) => isValue(index));
  if (others.length === 0) return value;
  throw problem('invalid-request', `The request has ${others.length + 1} ${name} headers; send one.`);
}

/** Returns the name or address in a Host header, in lower case, without its port and brackets. */
function hostnameOf(host: string): string {
  return host
    .replace(/:\d*$/, '')
    .replace(/^\[|\]$/g, '')
    .toLowerCase();
}
