/** Lets web pages of other origins call the operation (the Fetch standard's CORS protocol). */
import cors from 'cors';
import type { RequestHandler } from 'express';

const PREFLIGHT_MAX_AGE_SECONDS = 600;
/** Bytes of a preflight's list of headers: the response repeats it, and proxies allow 4 KB for all headers of a response. */
const MAX_LISTED_HEADERS = 2400;

/** Returns a handler that lets pages of `origins` send any header and read the responses; other requests are not affected. */
export function allowOrigins(origins: readonly string[]): RequestHandler {
  const allow = cors({
    origin: [...origins],
    methods: ['GET', 'HEAD'],
    // Without `allowedHeaders`, the package allows the headers that the preflight lists. `*` would not include Authorization.
    exposedHeaders: ['Link', 'ETag', 'RateLimit', 'RateLimit-Policy', 'Retry-After', 'X-Request-Id'],
    maxAge: PREFLIGHT_MAX_AGE_SECONDS,
  });
  return (request, response, next) => {
    const {
      origin = '',
      'access-control-request-method': method,
      'access-control-request-headers': listed = '',
    } = request.headers;
    const isAllowedPreflight = method !== undefined && origins.includes(origin) && listed.length <= MAX_LISTED_HEADERS;
    // The package would respond to every OPTIONS with 204.
    if (request.method === 'OPTIONS' && !isAllowedPreflight) return next();
    allow(request, response, next);
  };
}
