import { get } from 'node:http';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it, test } from 'vitest';
import type { Service } from '../../../src/service/server.js';
import { listenOn } from '../../support/listening.js';
import { numberWith, write } from '../../support/numbers.js';
import { useService } from '../../support/service.js';

const PATH = '/v1/brandedPhoneNumbers';
const parts = useService();
let service: Service;

beforeAll(async () => {
  await write(
    parts.database,
    Array.from({ length: 30 }, (_, i) => numberWith({ phoneNumber: `+141555501${10 + i}` })),
  );
  service = await listenOn(parts.databaseUrl);
});
afterAll(() => service.close());

interface Outcome {
  status: number | undefined;
  headers: Record<string, string | string[] | undefined>;
  body: Buffer;
}

/** Not by supertest or fetch, which decompress. */
function ask(path: string, headers: Record<string, string> = {}, method = 'GET'): Promise<Outcome> {
  return new Promise((resolve, reject) => {
    get(service.url + path, { headers, method }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk) => chunks.push(chunk));
      response.on('end', () =>
        resolve({ status: response.statusCode, headers: response.headers, body: Buffer.concat(chunks) }),
      );
    }).on('error', reject);
  });
}

describe('a page above 1 KB', () => {
  it.each([
    ['br', brotliDecompressSync],
    ['gzip', gunzipSync],
  ])('is the same in %s, with its length, and has at most a third of the bytes', async (encoding, decompress) => {
    const plain = await ask(PATH);
    const { headers, body } = await ask(PATH, { 'Accept-Encoding': encoding });
    expect(headers['content-encoding']).toBe(encoding);
    expect(headers.vary).toBe('Authorization, Accept-Encoding');
    expect(headers['content-length']).toBe(String(body.length));
    expect(decompress(body)).toEqual(plain.body);
    expect(body.length).toBeLessThan(plain.body.length / 3);
    expect(headers.etag).toBe(plain.headers.etag);
    expect(headers.etag).toMatch(/^W\//);
  });

  it.each([undefined, 'identity', 'deflate', 'gzip;q=0', 'br;q=0, gzip;q=0, *;q=0'])(
    'is sent uncompressed if Accept-Encoding is %s',
    async (accepted) => {
      const { status, headers, body } = await ask(PATH, accepted === undefined ? {} : { 'Accept-Encoding': accepted });
      expect([status, headers['content-encoding']]).toEqual([200, undefined]);
      expect(headers.vary).toBe('Authorization, Accept-Encoding');
      expect(JSON.parse(body.toString()).items).toHaveLength(25);
    },
  );

  it('gets a 304 for the ETag of another encoding', async () => {
    const { headers } = await ask(PATH, { 'Accept-Encoding': 'gzip' });
    const again = await ask(PATH, { 'Accept-Encoding': 'br', 'If-None-Match': String(headers.etag) });
    expect([again.status, again.body.length, again.headers.vary]).toEqual([304, 0, 'Authorization, Accept-Encoding']);
  });
});

describe('a page below 1 KB', () => {
  it('is sent uncompressed', async () => {
    const { headers } = await ask(`${PATH}?size=1`, { 'Accept-Encoding': 'br' });
    expect(headers['content-encoding']).toBeUndefined();
  });
});

describe('other responses above 1 KB', () => {
  it.each(['/docs/swagger-ui.css', '/openapi.yaml', '/problems', `${PATH}?${'a=1&'.repeat(60)}`])(
    'are compressed: %s',
    async (path) => {
      const [plain, small] = [await ask(path), await ask(path, { 'Accept-Encoding': 'gzip' })];
      expect([small.headers['content-encoding'], small.headers.vary]).toEqual(['gzip', 'Accept-Encoding']);
      expect(gunzipSync(small.body)).toEqual(plain.body);
      expect(plain.headers.vary).toBe('Accept-Encoding');
    },
  );
});

describe('HEAD', () => {
  it.each([PATH, '/docs/swagger-ui.css', '/openapi.yaml', '/problems'])('gets the headers of GET %s', async (path) => {
    const headersOf = ({ headers }: Outcome) => ({ ...headers, date: '', 'x-request-id': '' });
    for (const accepted of ['gzip', 'br', 'identity']) {
      const byGet = await ask(path, { 'Accept-Encoding': accepted });
      const byHead = await ask(path, { 'Accept-Encoding': accepted }, 'HEAD');
      expect(headersOf(byHead)).toEqual(headersOf(byGet));
      expect([byHead.body.length, byHead.headers['content-length']]).toEqual([0, String(byGet.body.length)]);
    }
  });
});

test('a file of /docs is compressed once: twenty more requests take less time of the CPU than the first', async () => {
  const cpuOf = async (count: number) => {
    const before = process.cpuUsage();
    for (let i = 0; i < count; i++) {
      const { body } = await ask('/docs/swagger-ui-bundle.js', { 'Accept-Encoding': 'br' });
      expect(body.length).toBeLessThan(500_000);
    }
    const { user, system } = process.cpuUsage(before);
    return user + system;
  };
  const first = await cpuOf(1);
  expect(await cpuOf(20)).toBeLessThan(first);
});
