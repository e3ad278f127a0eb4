/** The operation `GET /v1/brandedPhoneNumbers`, from the request to the response. */
import { hash } from 'node:crypto';
import type { Request, RequestHandler, Response } from 'express';
import { listBrandedPhoneNumbers as operation } from '../../generated/types/apis/index.js';
import { resolve, type Schema } from '../contract.js';
import type { Database } from '../database/connection.js';
import type { Reader, Signal } from '../database/reads.js';
import type { Client } from '../keys/client.js';
import type { Identify, Identity } from '../keys/identify.js';
import { type Page, preparePages } from '../page/page.js';
import { encodeBody } from './http/compression.js';
import { problem, unauthorized } from './problem/problem.js';
import { REFUSED } from './rateLimit/limiter.js';
import type { RateLimit } from './rateLimit/rateLimit.js';
import { encodeCursor } from './request/cursor.js';
import { type ListQuery, readQuery } from './request/query.js';

/** The response to HEAD is that to GET, without the body (RFC 9110 section 9.3.2). */
const METHODS = ['GET', 'HEAD'];
/** Keeps all response headers below 3,500 bytes: proxies buffer 4 KB of them, and send a 502 if there are more. */
const MAX_LINK_BYTES = resolve<{ schema: Schema }>({ $ref: '#/components/headers/Link' }).schema.maxLength as number;

const BODY_START = Buffer.from('{"items":[');

interface Dependencies {
  identify: Identify;
  rateLimit: RateLimit;
  reader: Reader;
  /** Milliseconds within which a request's response must be ready. */
  timeLimitMs: number;
  /** The URL at which clients reach the service, if PUBLIC_URL is set. */
  publicUrl: string | undefined;
}

/** Creates the operation's handler. It rejects with a problem, or with `DatabaseUnavailable`, if there is no page to send. */
export function listBrandedPhoneNumbers(dependencies: Dependencies): RequestHandler {
  const { identify, rateLimit, reader, timeLimitMs, publicUrl } = dependencies;
  const readPage = preparePages();
  // Without PUBLIC_URL, links are relative to the request, so that they work behind a proxy that adds a path in front.
  const linkBase = publicUrl === undefined ? '' : `${publicUrl}${operation.path}`;

  return async (request, response) => {
    const deadline = performance.now() + timeLimitMs;
    const { client, refusal } = await identifyUntil(deadline, request, response);
    response.locals.client = client.id;
    const isSupported = METHODS.includes(request.method);
    const { isLikelyAllowed, decision } = rateLimit.count(client.id);
    const admitted = decision.then((decided) => {
      response.set(rateLimit.headersOf(decided));
      if (!decided.allowed) throw rateLimit.refusal();
      if (!isSupported) throw methodNotAllowed(request);
      if (refusal !== undefined) throw unauthorized(refusal);
    });
    // The page is read while the limit is counted, unless the request will probably be refused: that must cost next to nothing.
    const canBegin = isLikelyAllowed && isSupported && refusal === undefined;
    const reading = canBegin ? readUntil(deadline, request, response, client) : undefined;
    // If the request is refused, a failure to read the page is ignored.
    reading?.catch(() => {});
    await admitted;
    await send(request, response, linkBase, await (reading ?? readUntil(deadline, request, response, client)));
  };

  /** Returns who sent a request. If that fails, the response's `RateLimit` header says that no request is left. */
  async function identifyUntil(deadline: number, request: Request, response: Response): Promise<Identity> {
    try {
      return await identify(request, deadline);
    } catch (failure) {
      response.set(rateLimit.headersOf(REFUSED));
      throw failure;
    }
  }

  /** Reads the page that a request selects, unless the client disconnects or is refused before the page's turn comes. */
  async function readUntil(deadline: number, request: Request, response: Response, client: Client): Promise<Rendered> {
    const query = await readQuery(request.url);
    const pageRequest = { ...query, visibleProfiles: client.visibleProfiles };
    const isNeeded = () => !request.socket.destroyed && !response.headersSent;
    const read = ({ $client }: Database, signal: Signal) => readPage($client, pageRequest, signal);
    return renderPage(query, await reader.read(read, deadline, { isNeeded }));
  }
}

type Rendered = ReturnType<typeof renderPage>;

/** Returns a page to send. It does not refer to what was read, so that only one copy of the page stays in memory. */
function renderPage(query: ListQuery, { hasNext, last, items, count }: Page) {
  const nextCursor = hasNext && last !== null ? encodeCursor(last, query.filter) : null;
  // The items are JSON already.
  const body = Buffer.concat([BODY_START, ...items, Buffer.from(`],"nextCursor":${JSON.stringify(nextCursor)}}`)]);
  return { query, count, nextCursor, body };
}

/** Sends a page, or a 304 if the client has it already. */
async function send(request: Request, response: Response, linkBase: string, page: Rendered): Promise<void> {
  const { query, count, nextCursor, body } = page;
  response.locals.rows = count;
  response.setHeader('Cache-Control', 'private, no-cache');
  response.vary('Authorization, Accept-Encoding');
  // The opaque tag (RFC 9110 section 8.8.3), with quotes. The ETag is weak: it is the same for every content encoding.
  const opaqueTag = `"${hash('sha1', body, 'base64url')}"`;
  response.setHeader('ETag', `W/${opaqueTag}`);
  const link = `<${linkBase}?${query.search}&nextCursor=${nextCursor}>; rel="next"`;
  if (nextCursor !== null && link.length <= MAX_LINK_BYTES) response.setHeader('Link', link);
  if (isKnown(opaqueTag, request.headers['if-none-match'])) return void response.status(304).end();
  response.setHeader('Content-Type', 'application/json; charset=utf-8');
  const encoded = await encodeBody(request, response, body);
  response.setHeader('Content-Length', encoded.length);
  // Not Express's `send`, which would process the ETag and the type again. For HEAD, Node omits the body.
  response.end(encoded);
}

/**
 * Tells whether an If-None-Match header has the tag (RFC 9110 section 13.1.2). Not Express's `request.fresh`, which is false
 * for requests with `Cache-Control: no-cache`, and `fetch` adds that to each If-None-Match. Searching the text is enough: a
 * tag includes its quotes, and has no quotes or commas between them.
 */
function isKnown(opaqueTag: string, ifNoneMatch = ''): boolean {
  return ifNoneMatch === '*' || ifNoneMatch.includes(opaqueTag);
}

function methodNotAllowed({ method }: Request) {
  return problem('method-not-allowed', `${operation.path} supports ${METHODS.join(' and ')}, not ${method}.`, {
    headers: { Allow: METHODS.join(', ') },
  });
}
