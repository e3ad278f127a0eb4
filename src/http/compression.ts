/**
 * Compressed answers. A body is in memory as a whole and compressed in one go, off the event loop: so the answer has a
 * Content-Length, for HEAD as well, and costs nothing extra if the client did not ask for compression.
 */
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip, type ZlibOptions } from 'node:zlib';
import type { Request, Response } from 'express';

/** Shorter bodies fit into a packet or two uncompressed. */
const MIN_COMPRESSED_BYTES = 1024;
/**
 * From 0 to 11, and from 1 to 9. At 4 and 6, a page of 100 would be an eighth smaller, and take eight times and twice as long
 * when many are asked for. What is kept is compressed once.
 */
const QUALITY = { br: 1, gzip: 3 };
const QUALITY_OF_KEPT = { br: 9, gzip: 9 };

const compressByBrotli = promisify(brotliCompress);
const compressByGzip = promisify<Buffer, ZlibOptions, Buffer>(gzip);

function compress(body: Buffer, encoding: 'br' | 'gzip', { br, gzip }: typeof QUALITY): Promise<Buffer> {
  if (encoding === 'gzip') return compressByGzip(body, { level: gzip });
  return compressByBrotli(body, { params: { [constants.BROTLI_PARAM_QUALITY]: br } });
}

/** The encoding that the client asked for, with the headers that say so; undefined where `body` is sent as it is. */
function encodingFor(request: Request, response: Response, body: Buffer): 'br' | 'gzip' | undefined {
  if (body.length < MIN_COMPRESSED_BYTES) return undefined;
  response.vary('Accept-Encoding');
  if (request.headers['accept-encoding'] === undefined) return undefined;
  const encoding = request.acceptsEncodings('br', 'gzip', 'identity');
  if (encoding !== 'br' && encoding !== 'gzip') return undefined;
  response.setHeader('Content-Encoding', encoding);
  return encoding;
}

/** `body` in the encoding that the client asked for, with the headers that say so. */
export async function encodeBody(request: Request, response: Response, body: Buffer): Promise<Buffer> {
  const encoding = encodingFor(request, response, body);
  return encoding ? compress(body, encoding, QUALITY) : body;
}

/** The same for a body that never changes: what it is in each encoding is kept from its first request on. */
export function keptBody(body: Buffer): (request: Request, response: Response) => Promise<Buffer> {
  const kept = new Map<string, Promise<Buffer>>();
  return async (request, response) => {
    const encoding = encodingFor(request, response, body);
    if (!encoding) return body;
    const encoded = kept.get(encoding) ?? compress(body, encoding, QUALITY_OF_KEPT);
    kept.set(encoding, encoded);
    return encoded;
  };
}
