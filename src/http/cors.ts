/** Cross-origin requests (the Fetch standard's CORS protocol): whose pages may call the operation from a browser. */
import cors from 'cors';
import type { RequestHandler } from 'express';

/** Seconds for which a browser remembers a preflight. */
const PREFLIGHT_MAX_AGE_SECONDS = 600;

/** Lets pages of `origins` read the answers, and answers their preflights; it leaves all other requests alone. */
export function allowOrigins(origins: readonly string[]): RequestHandler {
  const allow = cors({
    origin: [...origins],
    methods: ['GET', 'HEAD'],
    allowedHeaders: ['Authorization', 'If-None-Match', 'X-Request-Id'],
    exposedHeaders: ['Link', 'ETag', 'RateLimit', 'RateLimit-Policy', 'Retry-After', 'X-Request-Id'],
    maxAge: PREFLIGHT_MAX_AGE_SECONDS,
  });
  return (request, response, next) => {
    const { origin, 'access-control-request-method': preflight } = request.headers;
    const isAllowedPreflight = preflight !== undefined && origins.includes(origin ?? '');
    // The package would answer every OPTIONS with 204.
    if (request.method === 'OPTIONS' && !isAllowedPreflight) return next();
    allow(request, response, next);
  };
}
