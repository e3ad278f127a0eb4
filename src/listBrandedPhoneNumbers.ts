/** The list operation, from the request to its answer. */
import { hash } from 'node:crypto';
import type { Request, RequestHandler, Response } from 'express';
import { listBrandedPhoneNumbers as operation } from '../generated/types/apis/index.js';
import { resolve, type Schema } from './contract.js';
import { encodeBody } from './http/compression.js';
import type { ConcurrencyLimit } from './http/concurrencyLimit.js';
import type { Page, PageRequest } from './page/page.js';
import { problem, unauthorized } from './problem/problem.js';
import type { RateLimit } from './rateLimit/rateLimit.js';
import type { Identify } from './request/apiKeys.js';
import type { Client } from './request/client.js';
import { encodeCursor } from './request/cursor.js';
import { type ListQuery, readQuery } from './request/validation.js';

/** HEAD is answered like GET, without the body (RFC 9110 section 9.1). */
const METHODS = ['GET', 'HEAD'];
/** With it, all headers take less than 3,500 bytes: proxies keep 4 KB for them, and respond with 502 above that. */
const MAX_LINK_BYTES = resolve<{ schema: Schema }>({ $ref: '#/components/headers/Link' }).schema.maxLength as number;

const BODY_START = Buffer.from('{"items":[');

interface Parts {
  concurrencyLimit: ConcurrencyLimit;
  identify: Identify;
  rateLimit: RateLimit;
  /** Reads a page in at most `limitMs` milliseconds; not to its end if `needed` rejects. */
  readPage(request: PageRequest, limitMs: number, needed: Promise<void>): Promise<Page>;
  /** How long a request may take, in milliseconds. */
  timeoutMs: number;
  /** Where clients reach the service, if PUBLIC_URL is set. */
  publicUrl: string | undefined;
}

/** Creates the handler of the operation; it throws a problem for whatever is wrong. */
export function listBrandedPhoneNumbers({
  concurrencyLimit,
  identify,
  rateLimit,
  readPage,
  timeoutMs,
  publicUrl,
}: Parts): RequestHandler {
  // Without PUBLIC_URL, a link is relative to the request, so that it leads through a proxy that puts a path in front.
  const linkBase = publicUrl === undefined ? '' : `${publicUrl}${operation.path}`;

  return async (request, response) => {
    const end = performance.now() + timeoutMs;
    response.set(rateLimit.headersOf());
    const { client, refusal } = await identify(request);
    response.locals.client = client.id;
    const { isProbable, decision } = rateLimit.count(client.id);
    const admitted = decision.then((made) => {
      response.set(rateLimit.headersOf(made));
      if (!made.allowed) throw rateLimit.refusalOf(made);
      if (!METHODS.includes(request.method)) throw methodNotAllowed(request);
      if (refusal !== undefined) throw unauthorized(refusal);
    });
    // A client that is over its limit or has no valid key must cost next to nothing. Otherwise the page is read meanwhile.
    const isPageNeeded = isProbable && refusal === undefined && METHODS.includes(request.method);
    if (!isPageNeeded) await admitted;
    const responded = respond(request, response, client, admitted, end);
    // If both fail, it is the refusal that counts, and it does not wait for the page.
    responded.catch(() => {});
    await admitted;
    await responded;
  };

  /** Reads the page of a request and sends it, once the request is admitted. */
  async function respond(request: Request, response: Response, client: Client, admitted: Promise<void>, end: number) {
    const query = await readQuery(request.url);
    await concurrencyLimit.run(async () => {
      // While it waited, its client has left, or was refused.
      if (request.socket.destroyed || response.headersSent) return;
      const selection = { ...query, visibleProfiles: client.visibleProfiles };
      const page = await readPage(selection, end - performance.now(), admitted);
      await admitted;
      await send(request, response, query, page, linkBase);
    });
  }
}

async function send(
  request: Request,
  response: Response,
  query: ListQuery,
  page: Page,
  linkBase: string,
): Promise<void> {
  const nextCursor = page.hasNext && page.last !== null ? encodeCursor(page.last, query.filter) : null;
  // The items are JSON already.
  const tail = Buffer.from(`],"nextCursor":${JSON.stringify(nextCursor)}}`);
  const body = Buffer.concat([BODY_START, ...page.items, tail]);
  response.locals.rows = page.count;
  response.setHeader('Cache-Control', 'private, no-cache');
  response.vary('Authorization, Accept-Encoding');
  const opaqueTag = opaqueTagOf(body);
  // Weak, since it is the same for every encoding.
  response.setHeader('ETag', `W/${opaqueTag}`);
  if (nextCursor !== null) linkToNext(response, `${linkBase}?${query.search}&nextCursor=${nextCursor}`);
  if (isKnown(opaqueTag, request.headers['if-none-match'])) return void response.status(304).end();
  response.setHeader('Content-Type', 'application/json; charset=utf-8');
  const encoded = await encodeBody(request, response, body);
  response.setHeader('Content-Length', encoded.length);
  // Not `send`, which would check the ETag and the type again. For HEAD, Node leaves the body out.
  response.end(encoded);
}

/** What identifies a page in its ETag (RFC 9110 section 8.8.3), with its quotes. */
function opaqueTagOf(body: Buffer): string {
  return `"${hash('sha1', body, 'base64url')}"`;
}

/**
 * Whether the client has the page already (RFC 9110 section 13.1.2). Not `request.fresh`, which says no to
 * `Cache-Control: no-cache`, which every `fetch` adds to an If-None-Match. Tags in the list are separated by characters that
 * `opaqueTag` does not have, so it is found only if it is one of them.
 */
function isKnown(opaqueTag: string, ifNoneMatch = ''): boolean {
  return ifNoneMatch === '*' || ifNoneMatch.includes(opaqueTag);
}

/** Adds the link to the next page, the same request with another cursor, unless it is too long. */
function linkToNext(response: Response, target: string): void {
  const link = `<${target}>; rel="next"`;
  if (link.length <= MAX_LINK_BYTES) response.setHeader('Link', link);
}

function methodNotAllowed({ method }: Request) {
  return problem('method-not-allowed', `${operation.path} answers ${METHODS.join(' and ')}, not ${method}.`, {
    headers: { Allow: METHODS.join(', ') },
  });
}
