/** The list operation, from the request to its answer. */
import { hash } from 'node:crypto';
import type { Request, RequestHandler, Response } from 'express';
import { listBrandedPhoneNumbers as operation } from '../generated/types/apis/index.js';
import { encodeBody } from './compression.js';
import type { ConcurrencyLimit } from './concurrencyLimit.js';
import type { Page, PageRequest } from './page/page.js';
import { invalidCursor, problem, unauthorized } from './problem/problem.js';
import type { RateLimit, Turn } from './rateLimit/rateLimit.js';
import type { Identified, Identify } from './request/apiKeys.js';
import { decodeCursor, encodeCursor } from './request/cursor.js';
import { type Filter, filterOf } from './request/filter.js';
import { readQuery, type ValidQuery } from './request/validation.js';

/** HEAD is answered like GET, without the body (RFC 9110 section 9.1). */
const METHODS = ['GET', 'HEAD'];
/** Many clients accept at most 16 KB of headers; above that, Node's fetch fails. */
const MAX_LINK_BYTES = 4096;

interface Parts {
  concurrencyLimit: ConcurrencyLimit;
  identify: Identify;
  rateLimit: RateLimit;
  readPage(request: PageRequest): Promise<Page>;
}

/** What was asked for, and the page that was found. */
interface Answer {
  query: ValidQuery;
  filter: Filter;
  page: Page;
}

/** Creates the handler of the operation; it throws a problem for whatever is wrong. */
export function listBrandedPhoneNumbers({ concurrencyLimit, identify, rateLimit, readPage }: Parts): RequestHandler {
  return async (request, response) => {
    if (!METHODS.includes(request.method)) throw methodNotAllowed(request);
    const place = concurrencyLimit.enter(request, response);
    const identified = await identify(request);
    response.locals.client = identified.client.id;
    const turn = identified.turn ?? rateLimit.count(identified.client.id);
    const answer = find(request, identified, turn);
    place.holdUntil(answer);
    // A 429 takes precedence over everything else that is wrong with a request, whatever became of its page meanwhile.
    response.set(await turn.verdict);
    await send(request, response, await answer);
  };

  /** @throws the problems of a 401, a 400 and a 503, in this order */
  async function find(request: Request, { client, refusal }: Identified, turn: Turn): Promise<Answer> {
    if (refusal !== undefined) throw unauthorized(refusal);
    const query = await readQuery(request.url);
    const filter = filterOf(query);
    const after = query.nextCursor === undefined ? '' : decodeCursor(query.nextCursor, filter);
    if (typeof after !== 'string') throw invalidCursor(after);
    // Reading the page while the limit decides saves a round trip; but a flood must not cause reads.
    if (!turn.isLikelyToPass) await turn.verdict;
    const page = await readPage({ filter, visibleProfiles: client.visibleProfiles, after, size: query.size });
    return { query, filter, page };
  }
}

async function send(request: Request, response: Response, { query, filter, page }: Answer): Promise<void> {
  const nextCursor = page.hasNext && page.last !== null ? encodeCursor(page.last, filter) : null;
  // The items are JSON already.
  const body = Buffer.from(`{"items":[${page.items}],"nextCursor":${JSON.stringify(nextCursor)}}`);
  response.locals.rows = page.count;
  response.setHeader('Cache-Control', 'private, no-cache');
  response.vary('Authorization, Accept-Encoding');
  response.setHeader('ETag', etagOf(body));
  if (nextCursor !== null) linkToNext(response, query, nextCursor);
  if (request.fresh) return void response.status(304).end();
  response.setHeader('Content-Type', 'application/json; charset=utf-8');
  const encoded = await encodeBody(request, response, body);
  response.setHeader('Content-Length', encoded.length);
  // Not `send`, which would check the ETag and the type again. For HEAD, Node leaves the body out.
  response.end(encoded);
}

/** The validator of a page (RFC 9110 section 8.8.3): weak, since it is the same for every encoding. */
function etagOf(body: Buffer): string {
  return `W/"${hash('sha1', body, 'base64url')}"`;
}

/** Adds the link to the next page, unless it is too long. */
function linkToNext(response: Response, query: ValidQuery, nextCursor: string): void {
  const link = `<${addressOf(query, nextCursor)}>; rel="next"`;
  if (link.length <= MAX_LINK_BYTES) response.setHeader('Link', link);
}

/** The same request with another cursor, encoded as the contract says. */
function addressOf(query: ValidQuery, nextCursor: string): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries({ ...query, nextCursor })) {
    for (const each of Array.isArray(value) ? value : [value]) search.append(name, String(each));
  }
  return `${operation.path}?${search}`;
}

function methodNotAllowed({ method }: Request) {
  return problem('method-not-allowed', `${operation.path} answers ${METHODS.join(' and ')}, not ${method}.`, {
    headers: { Allow: METHODS.join(', ') },
  });
}
