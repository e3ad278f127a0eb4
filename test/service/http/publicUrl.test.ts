import { beforeAll, describe, expect, it } from 'vitest';
import type { BrandedPhoneNumberPage, Problem } from '../../../generated/types/models/index.js';
import { importDemo } from '../../support/demo.js';
import { freePort } from '../../support/port.js';
import { exchange, problemIn } from '../../support/rawHttp.js';
import { useService } from '../../support/service.js';
import { hasNginx, startNginx } from './nginx.js';

const port = await freePort();
const PUBLIC_URL = `http://127.0.0.1:${port}/numbers`;
const LIST = '/v1/brandedPhoneNumbers';
const service = useService({ PUBLIC_URL: `${PUBLIC_URL}/` });

beforeAll(() => importDemo(service.databaseUrl));

const linkOf = ({ headers }: Response) => /^<(.+)>; rel="next"$/.exec(headers.get('Link') ?? '')?.[1];

describe('with the path /numbers in PUBLIC_URL', () => {
  it('the link to the next page is an absolute URL, even in a 304', async () => {
    const first = await fetch(`${service.url}${LIST}?size=1`);
    const { nextCursor } = (await first.json()) as BrandedPhoneNumberPage;
    expect(linkOf(first)).toBe(`${PUBLIC_URL}${LIST}?size=1&nextCursor=${nextCursor}`);
    const headers = { 'If-None-Match': first.headers.get('ETag') ?? '' };
    const again = await fetch(`${service.url}${LIST}?size=1`, { headers });
    expect([again.status, linkOf(again)]).toEqual([304, linkOf(first)]);
  });

  it.each([
    ['invalid-request', [`GET ${LIST}?size=0 HTTP/1.1`, 'Host: localhost']],
    ['not-found', ['GET /nowhere HTTP/1.1', 'Host: localhost']],
    ['method-not-allowed', [`POST ${LIST} HTTP/1.1`, 'Host: localhost']],
    ['misdirected-request', [`GET ${LIST} HTTP/1.1`, 'Host: other.example']],
    ['invalid-request', [`GET ${LIST} HTTP/1.1`]],
    ['invalid-request', ['nonsense']],
    ['invalid-request', ['GET http://[::1/v1 HTTP/1.1', 'Host: localhost']],
  ])('a problem has the type /numbers/problems/%s: %o', async (name, head) => {
    expect(problemIn(await exchange(service.url, head)).type).toBe(`/numbers/problems/${name}`);
  });

  it('a 404 names paths that begin with /numbers', async () => {
    const detailOf = async (path: string) => ((await (await fetch(`${service.url}${path}`)).json()) as Problem).detail;
    expect(await detailOf('/nowhere')).toMatch(/ nothing at \/numbers\/nowhere\. .* listed at \/numbers\/docs\.$/);
    expect(await detailOf(LIST.toLowerCase())).toMatch(/ \/numbers\/v1\/brandedphonenumbers; .* \/numbers\/v1\/b/);
    expect(await detailOf(`${LIST}/+12`)).toMatch(/ \/numbers\/v1\/brandedPhoneNumbers\?phoneNumber=%2B12\./);
  });

  it('the examples in the OpenAPI document and on the pages of /problems begin with /numbers', async () => {
    for (const path of ['/openapi.json', '/openapi-3.0.json', '/openapi.yaml', '/problems/unauthorized']) {
      const text = await (await fetch(`${service.url}${path}`)).text();
      expect(text).toContain('/numbers/problems/unauthorized');
      expect(text).not.toMatch(/(?<!\/numbers)\/problems\/unauthorized/);
    }
    expect(await (await fetch(`${service.url}/openapi.json`)).text()).toContain(`"<${PUBLIC_URL}${LIST}?size=1&`);
  });
});

it.skipIf(!hasNginx)(
  'behind an nginx that strips the path, the next page and the page of a problem are found',
  async () => {
    const stop = await startNginx(port, service.url);
    const nextPage = linkOf(await fetch(`${PUBLIC_URL}${LIST}?size=2`)) ?? '';
    const { type } = (await (await fetch(`${PUBLIC_URL}/nowhere`)).json()) as Problem;
    const statuses = [];
    for (const address of [nextPage, type]) statuses.push((await fetch(new URL(address, PUBLIC_URL))).status);
    await stop();
    expect(statuses).toEqual([200, 200]);
  },
);
