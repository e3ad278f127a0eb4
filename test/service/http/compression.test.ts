import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { beforeAll, describe, expect, it } from 'vitest';
import { writeNumbers } from '../../support/numbers.js';
import { useService } from '../../support/service.js';

const PATH = '/v1/brandedPhoneNumbers';
const service = useService();
beforeAll(() => writeNumbers(service.databaseUrl));

/** Sends a request with node:http, because supertest and fetch decompress responses. */
async function send(path: string, headers: Record<string, string> = {}, method = 'GET') {
  const [response] = (await once(get(service.url + path, { headers, method }), 'response')) as [IncomingMessage];
  return { status: response.statusCode, headers: response.headers, body: Buffer.concat(await response.toArray()) };
}

describe('a page above 1 KB', () => {
  it.each([
    ['br', brotliDecompressSync],
    ['gzip', gunzipSync],
  ])('is sent in %s with its Content-Length, in less than a third of the bytes', async (encoding, decompress) => {
    const plain = await send(PATH);
    const { headers, body } = await send(PATH, { 'Accept-Encoding': encoding });
    expect(headers['content-encoding']).toBe(encoding);
    expect(headers.vary).toBe('Authorization, Accept-Encoding');
    expect(headers['content-length']).toBe(String(body.length));
    expect(decompress(body)).toEqual(plain.body);
    expect(body.length).toBeLessThan(plain.body.length / 3);
    expect(headers.etag).toBe(plain.headers.etag);
    expect(headers.etag).toMatch(/^W\//);
  });

  it.each([undefined, 'identity', 'deflate', 'gzip;q=0', 'br;q=0, gzip;q=0, *;q=0', `br${',a'.repeat(500)}`])(
    'is sent uncompressed if Accept-Encoding is %s',
    async (accepted) => {
      const { status, headers, body } = await send(PATH, accepted === undefined ? {} : { 'Accept-Encoding': accepted });
      expect([status, headers['content-encoding']]).toEqual([200, undefined]);
      expect(headers.vary).toBe('Authorization, Accept-Encoding');
      expect(JSON.parse(body.toString()).items).toHaveLength(25);
    },
  );

  it('gets a 304 for the ETag of another encoding', async () => {
    const { headers } = await send(PATH, { 'Accept-Encoding': 'gzip' });
    const again = await send(PATH, { 'Accept-Encoding': 'br', 'If-None-Match': String(headers.etag) });
    expect([again.status, again.body.length, again.headers.vary]).toEqual([304, 0, 'Authorization, Accept-Encoding']);
  });
});

it('a page below 1 KB is sent uncompressed', async () => {
  const { headers, body } = await send(`${PATH}?size=2`, { 'Accept-Encoding': 'br' });
  expect(body.length).toBeGreaterThan(900);
  expect(headers['content-encoding']).toBeUndefined();
});

it.each(['/docs/swagger-ui.css', '/openapi.yaml', '/problems', `${PATH}?${'a=1&'.repeat(60)}`])(
  'any other response above 1 KB is compressed: %s',
  async (path) => {
    const [plain, compressed] = [await send(path), await send(path, { 'Accept-Encoding': 'gzip' })];
    expect([compressed.headers['content-encoding'], compressed.headers.vary]).toEqual(['gzip', 'Accept-Encoding']);
    expect(gunzipSync(compressed.body)).toEqual(plain.body);
    expect(plain.headers.vary).toBe('Accept-Encoding');
  },
);

describe.each(['gzip', 'br', 'identity'])('HEAD with Accept-Encoding: %s', (encoding) => {
  const paths = [PATH, `${PATH}?size=0`, `${PATH}?nextCursor=x`, '/docs/swagger-ui.css', '/openapi.yaml', '/problems'];
  it.each(paths)('gets the status and headers of GET %s, without a body', async (path) => {
    const [byGet, byHead] = [
      await send(path, { 'Accept-Encoding': encoding }),
      await send(path, { 'Accept-Encoding': encoding }, 'HEAD'),
    ];
    const own = { date: '', 'x-request-id': '' };
    expect([byHead.status, { ...byHead.headers, ...own }]).toEqual([byGet.status, { ...byGet.headers, ...own }]);
    expect([byHead.body.length, byHead.headers['content-length']]).toEqual([0, String(byGet.body.length)]);
  });
});

it('a file of /docs is compressed once: twenty more requests take less CPU time than the first', async () => {
  const cpuOf = async (count: number) => {
    const before = process.cpuUsage();
    for (let i = 0; i < count; i++) {
      const { body } = await send('/docs/swagger-ui-bundle.js', { 'Accept-Encoding': 'br' });
      expect(body.length).toBeLessThan(500_000);
    }
    const { user, system } = process.cpuUsage(before);
    return user + system;
  };
  const first = await cpuOf(1);
  expect(await cpuOf(20)).toBeLessThan(first);
});
