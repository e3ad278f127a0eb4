/**
 * Compressed answers. A body that is in memory as a whole is compressed in one go, off the event loop: so the answer
 * has a Content-Length, for HEAD as well, and costs nothing extra if the client did not ask for compression. The package
 * `compression` turns every answer into a stream without a length; it serves the documentation's files (src/docs.ts).
 */
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip, type ZlibOptions } from 'node:zlib';
import type { Request, Response } from 'express';

/** Shorter bodies fit into a packet or two uncompressed. */
export const MIN_COMPRESSED_BYTES = 1024;
/** From 0 to 11. At 4, a page of 100 would be an eighth smaller, and take eight times as long when many are asked for. */
const BROTLI_QUALITY = 1;
/** From 1 to 9. At 6, a page of 100 would be an eighth smaller, and take twice as long. */
const GZIP_LEVEL = 3;

const compressors = {
  br: (body: Buffer) => compressByBrotli(body, { params: { [constants.BROTLI_PARAM_QUALITY]: BROTLI_QUALITY } }),
  gzip: (body: Buffer) => compressByGzip(body, { level: GZIP_LEVEL }),
};
const compressByBrotli = promisify(brotliCompress);
const compressByGzip = promisify<Buffer, ZlibOptions, Buffer>(gzip);

/** `body` in the encoding that the client asked for, with the headers that say so. */
export async function encodeBody(request: Request, response: Response, body: Buffer): Promise<Buffer> {
  if (body.length < MIN_COMPRESSED_BYTES) return body;
  response.vary('Accept-Encoding');
  if (request.headers['accept-encoding'] === undefined) return body;
  const encoding = request.acceptsEncodings('br', 'gzip', 'identity');
  if (encoding !== 'br' && encoding !== 'gzip') return body;
  response.setHeader('Content-Encoding', encoding);
  return compressors[encoding](body);
}
