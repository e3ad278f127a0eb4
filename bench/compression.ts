/** What compressing a response costs: bytes of the body, and requests per second. */
import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { PATH } from './latency.js';
import { mediansInTurn } from './medians.js';
import { measureLoad, OURS, startContender } from './throughput.js';

const ENCODINGS = ['identity', 'gzip', 'br'];
const PAGE_SIZES = [25, 100];
const CONNECTIONS = 8;
const SECONDS = 2;
const ROUNDS = 3;

export interface Compression {
  pageSize: number;
  encoding: string;
  bytes: number;
  perSecond: number;
}

export async function measureCompression(url: string): Promise<Compression[]> {
  const server = await startContender(OURS, url);
  const load = { origin: server.url, connections: CONNECTIONS };
  const measure = (path: string, encoding: string, seconds: number) =>
    measureLoad({ ...load, paths: [path], seconds, headers: { 'accept-encoding': encoding } });
  await measure(PATH, 'identity', 1);
  const cases = PAGE_SIZES.flatMap((pageSize) =>
    ENCODINGS.map((encoding) => {
      const path = `${PATH}?size=${pageSize}`;
      return { pageSize, encoding, path, measure: () => measure(path, encoding, SECONDS) };
    }),
  );
  const results = [];
  for (const { pageSize, encoding, path, median } of await mediansInTurn(cases, ROUNDS)) {
    const bytes = await bodySize(server.url + path, encoding);
    results.push({ pageSize, encoding, bytes, perSecond: median });
  }
  await server.stop();
  return results;
}

/** Returns the bytes of the encoded body; fetch would decode it. */
async function bodySize(url: string, encoding: string): Promise<number> {
  const request = get(url, { headers: { 'accept-encoding': encoding } });
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  let bytes = 0;
  for await (const chunk of response) bytes += chunk.length;
  return bytes;
}
