/** Cross-origin requests (the Fetch standard's CORS protocol): whose pages may call the operation from a browser. */
import cors from 'cors';
import type { RequestHandler } from 'express';

/** Seconds for which a browser remembers a preflight. */
const PREFLIGHT_MAX_AGE_SECONDS = 600;
/** Names of headers that a preflight may list, in bytes: they are repeated, and all headers stay below the 4 KB of proxies. */
const MAX_LISTED_HEADERS = 2400;

/** Lets pages of `origins` send any header and read the responses; it leaves all other requests alone. */
export function allowOrigins(origins: readonly string[]): RequestHandler {
  const allow = cors({
    origin: [...origins],
    methods: ['GET', 'HEAD'],
    // No `allowedHeaders`: it repeats those that the preflight lists. Their wildcard does not include Authorization.
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
    // The package would answer every OPTIONS with 204.
    if (request.method === 'OPTIONS' && !isAllowedPreflight) return next();
    allow(request, response, next);
  };
}
