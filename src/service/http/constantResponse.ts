/** Serves texts and files that do not change while the service runs. */
import { createHash } from 'node:crypto';
import type { RequestHandler } from 'express';
import { constantBody } from './compression.js';

interface Options {
  /** Whether the address will never have another content, so that caches need not ask for it again. */
  isImmutable?: boolean;
  /** Whether the content is compressed already. */
  isArchive?: boolean;
}

/**
 * Returns a handler that serves a constant text or file with an ETag, compressed unless it is an archive.
 * @param type a media type or a file name
 */
export function constantResponse(
  type: string,
  content: string | Buffer,
  { isImmutable = false, isArchive = false }: Options = {},
): RequestHandler {
  const body = Buffer.from(content);
  const encode = isArchive ? () => body : constantBody(body);
  // A weak ETag, because it is the same for every encoding.
  const etag = `W/"${createHash('sha256').update(body).digest('base64url')}"`;
  const caching = isImmutable ? 'public, max-age=31536000, immutable' : 'no-cache';
  return async (request, response) => {
    response.set({ ETag: etag, 'Cache-Control': caching }).type(type);
    if (!isArchive) response.vary('Accept-Encoding');
    if (request.fresh) response.status(304).end();
    else response.send(await encode(request, response));
  };
}
