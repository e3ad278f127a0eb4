/** Serves texts and files that do not change while the service runs. */
import { createHash } from 'node:crypto';
import type { RequestHandler } from 'express';
import { encodeBody } from '../http/compression.js';
import { shareBody } from '../http/connections.js';

/** The media types of content that is compressed already. */
const ARCHIVE = /^application\/(gzip|zip|java-archive)$/;

/**
 * Returns a handler that serves a constant text or file with an ETag, compressed unless it is an archive.
 * @param type a media type or a file name
 * @param content a file's bytes, or a function that makes a text for the first request, so that an instance starts sooner
 * @param isImmutable whether the address will never have another content, so that caches need not ask for it again
 */
export function constantResponse(type: string, content: Buffer | (() => string), isImmutable = false): RequestHandler {
  const isArchive = ARCHIVE.test(type);
  const caching = isImmutable ? 'public, max-age=31536000, immutable' : 'no-cache';
  const prepare = () => {
    const body = Buffer.from(typeof content === 'function' ? content() : content);
    // A weak ETag, because it is the same for every encoding.
    const etag = `W/"${createHash('sha256').update(body).digest('base64url')}"`;
    return { body, etag, kept: new Map<string, Promise<Buffer>>() };
  };
  let prepared: ReturnType<typeof prepare> | undefined;
  return async (request, response) => {
    prepared ??= prepare();
    const { body, etag, kept } = prepared;
    response.set({ ETag: etag, 'Cache-Control': caching }).type(type);
    if (!isArchive) response.vary('Accept-Encoding');
    if (request.fresh) return response.status(304).end();
    const encoded = isArchive ? body : await encodeBody(request, response, body, kept);
    shareBody(response);
    response.send(encoded);
  };
}
