/** What a compressed response costs: its size, and the requests a second that remain. */
import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { startServer } from '../test/support/measuredServer.js';
import { PATH, quantiles } from './latency.js';
import { measureLoad, OURS } from './throughput.js';

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

/** Alternates between the encodings for several rounds, and keeps the median of each. */
export async function measureCompression(url: string): Promise<Compression[]> {
  const server = await startServer(OURS.command, PATH, { DATABASE_URL: url, LOG_LEVEL: 'info', ...OURS.environment });
  const cases = PAGE_SIZES.flatMap((pageSize) => ENCODINGS.map((encoding) => ({ pageSize, encoding })));
  const rates = cases.map((): number[] => []);
  const load = (path: string, encoding: string, seconds: number) =>
    measureLoad({
      ...{ origin: server.url, paths: [path], connections: CONNECTIONS, seconds },
      headers: { 'accept-encoding': encoding },
    });
  await load(PATH, 'identity', 1);
  for (let round = 0; round < ROUNDS; round++) {
    for (const [index, { pageSize, encoding }] of cases.entries()) {
      rates[index]?.push(await load(`${PATH}?size=${pageSize}`, encoding, SECONDS));
    }
  }
  const measured = [];
  for (const [index, { pageSize, encoding }] of cases.entries()) {
    const bytes = await bytesOf(`${server.url}${PATH}?size=${pageSize}`, encoding);
    measured.push({ pageSize, encoding, bytes, perSecond: quantiles(rates[index] ?? []).median });
  }
  await server.stop();
  return measured;
}

/** Of the body as it is sent; fetch would decode it. */
async function bytesOf(url: string, encoding: string): Promise<number> {
  const [response] = (await once(get(url, { headers: { 'accept-encoding': encoding } }), 'response')) as [
    IncomingMessage,
  ];
  let bytes = 0;
  for await (const chunk of response) bytes += chunk.length;
  return bytes;
}
