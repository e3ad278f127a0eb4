/**
 * Compresses responses. A body is in memory as a whole and is compressed in one call, off the event loop, so the response has
 * a Content-Length, also for HEAD, and costs nothing extra if the client does not accept compression.
 */
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip, type ZlibOptions } from 'node:zlib';
import type { Request, Response } from 'express';

/** Shorter bodies fit into a packet or two uncompressed. */
const MIN_COMPRESSED_BYTES = 1024;
/**
 * The compression levels; `br` has levels 0 to 11, `gzip` 1 to 9. At levels 4 and 6, a page of 100 would be an eighth smaller,
 * but under load take eight times as long (br) or twice as long (gzip). Constant bodies are compressed only once.
 */
const LEVELS = { br: 1, gzip: 3 };
const LEVELS_OF_CONSTANT_BODIES = { br: 9, gzip: 9 };

const brotliAsync = promisify(brotliCompress);
const gzipAsync = promisify<Buffer, ZlibOptions, Buffer>(gzip);

function compress(body: Buffer, encoding: 'br' | 'gzip', { br, gzip }: typeof LEVELS): Promise<Buffer> {
  if (encoding === 'gzip') return gzipAsync(body, { level: gzip });
  return brotliAsync(body, { params: { [constants.BROTLI_PARAM_QUALITY]: br } });
}

/**
 * Returns `body` in an encoding that the client accepts, and sets the headers that name it. Each encoding of a body that never
 * changes is taken from `kept`, and is put there at the first request.
 */
export async function encodeBody(
  request: Request,
  response: Response,
  body: Buffer,
  kept?: Map<string, Promise<Buffer>>,
): Promise<Buffer> {
  if (body.length < MIN_COMPRESSED_BYTES) return body;
  response.vary('Accept-Encoding');
  const encoding = request.acceptsEncodings('br', 'gzip', 'identity');
  if (encoding !== 'br' && encoding !== 'gzip') return body;
  response.setHeader('Content-Encoding', encoding);
  const encoded = kept?.get(encoding) ?? compress(body, encoding, kept ? LEVELS_OF_CONSTANT_BODIES : LEVELS);
  kept?.set(encoding, encoded);
  return encoded;
}
