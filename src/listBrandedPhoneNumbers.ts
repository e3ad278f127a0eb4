/** The list operation: filter, query, page, answer. */
import type { RequestHandler, Response } from 'express';
import {
  type ListBrandedPhoneNumbersRequest,
  listBrandedPhoneNumbers as operation,
} from '../generated/types/apis/index.js';
import type { Client } from './client.js';
import { decodeCursor, encodeCursor } from './cursor.js';
import { filterOf } from './filter.js';
import type { Page, PageRequest } from './query.js';

/** As the validator leaves it: with the contract's defaults. */
type ValidRequest = ListBrandedPhoneNumbersRequest & { size: number };

/** Answers a validated request with the page that `readPage` finds. */
export function listBrandedPhoneNumbers(
  readPage: (request: PageRequest, response: Response) => Promise<Page>,
): RequestHandler {
  return async (request, response) => {
    const query = request.query as unknown as ValidRequest;
    const { visibleProfiles } = response.locals.client as Client;
    const filter = filterOf(query);
    const after = query.nextCursor === undefined ? '' : decodeCursor(query.nextCursor, filter);
    const page = await readPage({ filter, visibleProfiles, after, size: query.size }, response);
    const nextCursor = page.hasNext && page.last !== null ? encodeCursor(page.last, filter) : null;
    response.locals.rows = page.count;
    response.setHeader('Content-Type', 'application/json; charset=utf-8');
    response.setHeader('Cache-Control', 'private, no-cache');
    response.setHeader('Vary', 'Authorization');
    if (nextCursor !== null) response.setHeader('Link', `<${addressOf(query, nextCursor)}>; rel="next"`);
    // The items are JSON already. Express adds the ETag and answers 304 where the client has it.
    response.send(Buffer.from(`{"items":[${page.items}],"nextCursor":${JSON.stringify(nextCursor)}}`));
  };
}

/** The same request with another cursor, encoded as the contract says. */
function addressOf(query: ValidRequest, nextCursor: string): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries({ ...query, nextCursor })) {
    for (const each of Array.isArray(value) ? value : [value]) search.append(name, String(each));
  }
  return `${operation.path}?${search}`;
}
