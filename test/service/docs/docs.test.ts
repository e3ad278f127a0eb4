import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import express from 'express';
import request from 'supertest';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { readConfig } from '../../../src/config/config.js';
import { contract, parameters, resolve, responses } from '../../../src/contract.js';
import { packageFolder } from '../../../src/packageFolder.js';
import { docs } from '../../../src/service/docs/docs.js';
import { markdownPage } from '../../../src/service/docs/layout.js';

const SETTINGS = readConfig({ HOST: '0.0.0.0', AUTH: 'none' });
const app = express()
  .use(docs(SETTINGS))
  .use((_request, response) => {
    response.status(404).json({ from: 'the API' });
  });

const getPage = (path: string) =>
  request(app)
    .get(path)
    .expect(200)
    .expect('Content-Type', /^text\/html/);

test.each([
  ['/', '/docs'],
  ['/docs/', '/docs'],
  ['/swagger/', '/swagger'],
  ['/problems/', '/problems'],
])('%s redirects to %s, also behind a path prefix', async (from, to) => {
  const { headers } = await request(app).get(from).expect(303);
  expect(new URL(String(headers.location), `http://host/prefix${from}`).pathname).toBe(`/prefix${to}`);
});

describe('the documentation page', () => {
  test('is HTML with the name of the service as its title, and an icon', async () => {
    expect((await getPage('/docs')).text).toContain('<title>Branded Phone Numbers</title>');
    expect((await request(app).get('/favicon.ico').expect(200)).type).toBe('image/svg+xml');
  });

  /** Returns the text of /docs with these settings, as requested from `host`. */
  const pageWith = async (settings: object, host = 'here:8080') => {
    const service = request(express().use(docs({ ...SETTINGS, ...settings })));
    return (await service.get('/docs').set('Host', host)).text;
  };

  test('says whether this instance requires a key, which limit it keeps, and who operates it', async () => {
    const open = await pageWith({});
    expect(open).toContain('This service requires no API key.');
    expect(open).toContain('Each address may send at most 10 requests in any one second;');
    expect(open).not.toContain('<dialog');
    expect(await pageWith({ RATE_LIMIT_PER_SECOND: 0 })).toContain('Each address may send any number of requests;');
    const closed = await pageWith({
      AUTH: 'api-key',
      RATE_LIMIT_PER_SECOND: 1,
      CONTACT: 'api@numbers.test',
      TERMS_URL: 'https://numbers.test/terms?a&b',
    });
    expect(closed).toContain('requires an API key. Ask <a href="mailto:api@numbers.test">the operator</a> for one');
    expect(closed).toContain('Each key may send at most 1 request in any one second;');
    expect(closed).toContain('<a href="https://numbers.test/terms?a&#38;b">Terms of service</a>');
    expect(await pageWith({ CONTACT: 'https://numbers.test/help' })).toContain('href="https://numbers.test/help"');
  });

  test('has every request, and a curl line, without scripts', async () => {
    const text = await pageWith({ AUTH: 'api-key' });
    const queries = [...text.matchAll(/<span id="query-\d">(.*?)<\/span>/g)].map(([, query]) => query);
    expect(queries.slice(0, 3)).toEqual(['no filter', 'phoneNumber=%2B14155550123', 'status=submitted+for+review']);
    expect(queries).toHaveLength(7);
    expect(text).toContain("<pre>export KEY='your API key'</pre>");
    expect(await pageWith({})).not.toContain('export KEY');
    expect(text).toContain(
      '>curl --header &#34;Authorization: Bearer $KEY&#34; &#39;http://here:8080/v1/brandedPhoneNumbers?status=submitted+for+review&#39;<',
    );
  });

  test('has PUBLIC_URL, or else the address at which it was requested, without scripts', async () => {
    const address = (text: string) => /Base URL: <code>(.*?)<.code>/.exec(text)?.[1];
    const service = request(express().use(docs(SETTINGS)));
    for (const host of ['here:8080', 'there.test', 'here:8080']) {
      const { text } = await service.get('/docs').set('Host', host);
      expect([address(text), text.includes('localhost:3000')]).toEqual([`http://${host}`, false]);
    }
    expect(address(await pageWith({ PUBLIC_URL: 'https://numbers.test/a' }))).toBe('https://numbers.test/a');
    expect(await pageWith({}, 'x"<b>')).not.toContain('x"<b>');
  });

  test('has contents, which name its sections', async () => {
    const text = await pageWith({});
    const links = [...text.matchAll(/<li><a href="#([\w-]+)">(.*?)<\/a><\/li>/g)];
    expect(links.map(([, , title]) => title)).toEqual([
      ...['Send a request', 'First program', 'Authentication', 'Rate limit', 'Pages and filters', 'Parameters'],
      ...['The response', 'Errors', 'Status codes', 'Versioning and transport'],
    ]);
    for (const [, id] of links) expect(text).toContain(`<section id="${id}">`);
  });

  test.each([
    ['TypeScript', 'accessToken: process.env.KEY'],
    ['Python', 'access_token=os.environ.get("KEY")'],
    ['Java', 'System.getenv("KEY")'],
    ['Go', 'os.Getenv("KEY")'],
  ])('has programs that take the key from the environment: %s', async (name, line) => {
    const text = await pageWith({ AUTH: 'api-key' });
    const [program = ''] = new RegExp(`data-panel="${name}" hidden>\n.*?\n</div>`, 's').exec(text) ?? [];
    expect(program).toContain(line.replaceAll('"', '&quot;'));
    const { text: readme } = await request(app).get(`/clients/${name.toLowerCase()}/README.md`);
    expect(readme.split(line.replaceAll('"', '&quot;'))).toHaveLength(3);
  });

  test('has a row with an address for each parameter, member and response', async () => {
    const text = await pageWith({});
    /** Returns the text of a row, with what is only read aloud. */
    const row = (id: string) => {
      const [found = ''] = new RegExp(`<div class="member [^>]* id="${id}".*?</div>`, 's').exec(text) ?? [];
      expect(found).toContain(`<a href="#${id}">`);
      return found.replace(/<li>/g, ' ').replace(/<[^>]*>/g, '');
    };
    for (const { name, schema } of parameters.values()) {
      const item = resolve(schema.items ?? schema);
      const shown = row(`parameter-${name}`);
      expect(shown).toContain(schema.items ? `up to ${schema.maxItems} times` : 'once');
      if (item.minimum !== undefined) expect(shown).toContain(`${item.minimum} to ${item.maximum}`);
      if (item.default !== undefined) expect(shown).toContain(`default ${item.default}`);
      if (item.maxLength !== undefined) expect(shown).toMatch(new RegExp(`\\b${item.maxLength} characters`));
      for (const value of item.enum ?? []) expect(shown).toContain(` ${value}`);
    }
    const { BrandedPhoneNumber, CarrierStatus, Problem } = contract.components.schemas;
    for (const name of Object.keys(BrandedPhoneNumber?.properties ?? {}))
      expect(row(`page-items-${name}`)).toContain(`items[].${name}`);
    for (const name of Object.keys(CarrierStatus?.properties ?? {}))
      expect(row(`page-items-carrierStatuses-${name}`)).toContain(`items[].carrierStatuses[].${name}`);
    for (const name of Object.keys(Problem?.properties ?? {})) row(`problem-${name}`);
    expect(row('page-items-brandingNameShort')).toContain('string or null, 1 to 15 characters');
    expect(row('page-items-carrierStatuses-detailedStatus')).toContain(' pending.initialOptIn');
    expect(row('problem-errors-parameter')).toContain('errors[].parameter');
    for (const status of responses.keys()) row(`response-${status}`);
    expect(row('response-400')).toMatch(/Invalid Request Invalid Cursor$/m);
  });

  test('needs at most 30 KB until a request can be sent', async () => {
    const { text } = await request(app).get('/docs');
    const files = [...text.matchAll(/<(?:script src|link rel="[^i][^"]*" href)="([^"]*)"/g)].map(
      ([, name]) => `/${name}`,
    );
    expect(files).toEqual(
      ['style', 'samples', 'page', 'console', 'json', 'key', 'request', 'tabs'].map((name) =>
        expect.stringContaining(`/${name}.`),
      ),
    );
    let bytes = 0;
    for (const path of ['/docs', ...files]) {
      const response = await request(app).get(path).set('Accept-Encoding', 'gzip');
      bytes += Number(response.headers['content-length']);
    }
    expect(bytes).toBeLessThan(30_000);
  });

  test('allows only scripts, styles and requests from its own host', async () => {
    const { headers } = await request(app).get('/docs');
    const policy = String(headers['content-security-policy']);
    expect(policy).toContain("default-src 'none'");
    expect(policy).toContain("script-src 'self';");
    expect(policy).toContain("style-src 'self'");
    expect(policy).not.toContain('unsafe');
    expect(policy).not.toContain('upgrade-insecure-requests');
  });
});

describe('an address that serves nothing', () => {
  const BROWSER = 'text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8';
  const service = express().use('/numbers', docs({ ...SETTINGS, PUBLIC_URL: 'https://numbers.test/numbers' }));

  test.each(['/nothing', '/problems/nothing', '/a/b/c/', '//a//b', '/docs%2Fx', '/swagger/x'])(
    'responds to a browser with a page that leads to /docs: %s',
    async (path) => {
      const { text, headers } = await request(service).get(`/numbers${path}`).set('Accept', BROWSER).expect(404);
      expect(headers).toMatchObject({ 'content-type': 'text/html; charset=utf-8', vary: 'Accept, Accept-Encoding' });
      expect(headers['content-security-policy']).toContain("default-src 'none'");
      const [, link = ''] = /<a href="([^"]*)">The API's documentation/.exec(text) ?? [];
      expect(new URL(link, `http://host/numbers${path}`).pathname).toBe('/numbers/docs');
    },
  );

  test('says what to request instead, in HTML', async () => {
    const read = async (path: string) => (await request(service).get(path).set('Accept', BROWSER).expect(404)).text;
    const list = '/numbers/v1/brandedPhoneNumbers';
    expect(await read(`${list}/+14155550123`)).toContain(`${list}?phoneNumber=%2B1415`);
    expect(await read('/numbers/<b>')).not.toContain('<b>');
  });

  test('responds with the page to a program that accepts nothing but HTML', async () => {
    const { headers } = await request(service).get('/numbers/nothing').set('Accept', 'text/html').expect(404);
    expect(headers['content-type']).toBe('text/html; charset=utf-8');
  });

  const JAVA = 'text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2';
  test.each([undefined, '*/*', 'application/json, text/html', JAVA, 'text/html;q=0', 'text/html;q=0,'.repeat(700)])(
    'is left to the API for a program that sends Accept: %s',
    async (accept) => {
      const sent = request(app).get('/nothing');
      const { headers } = await (accept ? sent.set('Accept', accept) : sent).expect(404, { from: 'the API' });
      expect(headers.vary).toContain('Accept');
    },
  );
});

describe('for programs that read', () => {
  test('/llms.txt names the contract and the pages, by links that lead there', async () => {
    const { text } = await request(app)
      .get('/llms.txt')
      .expect(200)
      .expect('Content-Type', /^text\/plain/);
    expect(text).toMatch(/^# Branded Phone Numbers\n\n> Lists the phone numbers/);
    const links = [...text.matchAll(/\]\((.*?)\)/g)].map(([, link]) => link);
    expect(links).toEqual(expect.arrayContaining(['openapi.yaml', 'docs', 'clients/python/README.md']));
    for (const link of links) await request(app).get(`/${link}`).expect(200);
    expect((await request(app).head('/llms.txt').expect(200)).headers['content-length']).toBe(`${text.length}`);
  });

  const README = '/clients/README.md';
  test.each([
    ['text/markdown', 'text/markdown'],
    ['text/markdown, text/html;q=0.9', 'text/markdown'],
    ['text/html, text/markdown;q=0.9', 'text/html'],
    ['text/html,*/*;q=0.8', 'text/html'],
    ['*/*', 'text/html'],
    ['application/json', 'text/html'],
    [undefined, 'text/html'],
  ])('a Markdown page has the form of Accept: %s', async (accept, type) => {
    for (const method of ['get', 'head'] as const) {
      const sent = request(app)[method](README);
      const { headers } = await (accept ? sent.set('Accept', accept) : sent).expect(200);
      expect(headers['content-type']).toBe(`${type}; charset=utf-8`);
      expect(headers['cache-control']).toBe('no-cache');
      expect(headers.vary?.split(', ')).toEqual(expect.arrayContaining(['Accept', 'Accept-Encoding']));
    }
  });

  test('a Markdown page is its file, with the address at which it was requested, or PUBLIC_URL', async () => {
    const file = readFileSync(join(packageFolder, README), 'utf8');
    const read = (settings: typeof SETTINGS) => {
      const service = request(express().use(docs(settings, new Map([['any', () => {}]]))));
      return service.get(README).set({ Accept: 'text/markdown', Host: 'here:8080' });
    };
    const { text } = await read(SETTINGS).buffer();
    expect(text).toBe(file.replaceAll('http://localhost:3000', 'http://here:8080'));
    const PUBLIC_URL = 'https://numbers.test/telephony';
    const { text: published } = await read({ ...SETTINGS, PUBLIC_URL }).buffer();
    expect(published).toBe(file.replaceAll('http://localhost:3000', PUBLIC_URL));
  });
});

test('every link of every page leads somewhere, also behind a path prefix', async () => {
  const prefixed = express().use('/numbers', docs({ ...SETTINGS, AUTH: 'api-key' }));
  const seen = new Set(['/numbers/docs']);
  // The loop adds links to the set that it iterates.
  for (const path of seen) {
    const response = await request(prefixed).get(path).set('Accept', 'text/html,*/*;q=0.8').buffer();
    expect([path, response.status]).toEqual([path, 200]);
    if (response.type !== 'text/html') continue;
    // Who reads it has no checkout of the project.
    expect([path, /CONTRIBUTING|CHANGELOG|npm run|\bmake [a-z]+<.code>/.exec(response.text)]).toEqual([path, null]);
    const [, current = '', kind] = /<header.*href="([^"]*)" aria-current="(\w+)"/s.exec(response.text) ?? [];
    const section = new URL(current, `http://host${path}`).pathname;
    expect([path.split('/')[2], kind]).toEqual([section.split('/')[2], section === path ? 'page' : 'true']);
    expect(response.text).toContain('<meta name="description" content="Lists the phone numbers');
    // No link is only text, as one to a file that is not served would be.
    const markdown = path.endsWith('.md') ? readFileSync(path.replace('/numbers/', ''), 'utf8') : '';
    for (const [, label] of markdown.matchAll(/\[([^\]`]+)\]\([^)]+\)/g))
      expect(response.text).toContain(`>${label}</a>`);
    const ids = [...response.text.matchAll(/ id="([^"]*)"/g)].map(([, id]) => id);
    for (const [, link = ''] of response.text.matchAll(/ (?:src|href)="([^"]*)"/g)) {
      if (/^(https:|mailto:)/.test(link)) continue;
      if (link.startsWith('#')) expect(ids).toContain(link.slice(1));
      const { pathname } = new URL(link, `http://host${path}`);
      expect(pathname).toMatch(/^\/numbers\//);
      seen.add(pathname);
    }
  }
  const paths = [...seen].join(' ');
  for (const name of Object.keys(contract['x-problems'])) expect(paths).toContain(`/problems/${name}`);
  for (const client of ['typescript', 'python', 'java', 'go']) expect(paths).toContain(`/clients/${client}/README.md`);
  for (const name of ['postman_collection.json', '/docs/api-changelog.md', '/docs/deprecation.md', '/openapi.yaml'])
    expect(paths).toContain(name);
});

test('the Postman collection has PUBLIC_URL, and the page of a Markdown file has its title', async () => {
  const app = express().use(docs({ ...SETTINGS, PUBLIC_URL: 'https://numbers.test' }));
  const { text } = await request(app).get('/clients/postman/branded-phone-numbers.postman_collection.json').expect(200);
  expect(text).toContain('https://numbers.test');
  expect(text).not.toContain('http://localhost:3000');
  const page = await request(app).get('/docs/api-changelog.md');
  expect(page.text).toContain('<title>Changelog of the API · Branded Phone Numbers</title>');
});

test('a link of a Markdown file keeps its fragment, and is only text if it leads to a file that has no address', () => {
  const addresses = new Map([['docs/there.md', 'docs/there.md']]);
  const page = markdownPage('clients/go/README.md', '[a](../../docs/there.md#part) [b](../missing.md)', addresses);
  expect(page).toContain('<p><a href="../../docs/there.md#part">a</a> b</p>');
});

describe('the OpenAPI document', () => {
  const OPERATOR = 'The operator of this service';
  const file = readFileSync(join(packageFolder, 'openapi', 'openapi.yaml'), 'utf8');
  const served = async (settings: Parameters<typeof docs>[0]) => {
    const app = express().use(docs(settings));
    const json = await request(app)
      .get('/openapi.json')
      .expect(200)
      .expect('Content-Type', /^application\/json/);
    const yaml = await request(app)
      .get('/openapi.yaml')
      .buffer()
      .expect('Content-Type', /^application\/yaml/);
    expect(parse(yaml.text)).toEqual(json.body);
    // People read it too: descriptions of several lines are block scalars, not one escaped line.
    expect(yaml.text).toMatch(/^openapi: .*\ninfo:\n( {2}.*\n)+ {2}description: \|\n/);
    return json.body;
  };

  test('is openapi.yaml with the authentication of the deployment, and only the extensions that clients use', async () => {
    const { security, info, components, ...rest } = await served({ ...SETTINGS, AUTH: 'api-key' });
    const { contact, ...given } = info;
    const isPublic = (key: string) => !key.startsWith('x-') || ['x-known-values', 'x-exact-pattern'].includes(key);
    const contract = parse(file, (key, value) => (isPublic(String(key)) ? value : undefined));
    expect({ ...rest, info: given, components, security: contract.security }).toEqual(contract);
    expect(security).toEqual([{ bearer: [] }, { apiKey: [] }]);
    expect(contact).toEqual({ name: OPERATOR });
    expect(JSON.stringify(rest)).not.toContain('"x-');
  });

  test('has no security scheme with AUTH=none', async () => {
    const { security, components } = await served(SETTINGS);
    expect([security, components.securitySchemes]).toEqual([[], undefined]);
  });

  const PUBLIC_URL = 'https://numbers.test/telephony';
  test.each([
    [0, 'may send any number of requests'],
    [1, 'may send at most 1 request in any one second'],
    [7, 'may send at most 7 requests in any one second'],
  ])('has the limit of this instance: %i', async (limit, words) => {
    const settings = { ...SETTINGS, RATE_LIMIT_PER_SECOND: limit };
    const { info, paths, components } = await served(settings);
    const { description } = paths['/v1/brandedPhoneNumbers'].get;
    for (const text of [info.description, description]) expect(text.replace(/\s+/g, ' ')).toContain(words);
    const app = express().use(docs(settings));
    for (const path of ['/docs', '/openapi.yaml', '/openapi-3.0.json', '/problems', '/problems/rate-limit-exceeded']) {
      const { text } = await request(app).get(path).buffer();
      if (limit) expect(text).not.toMatch(/\b10 requests|q=10;|r=9;/);
    }
    if (limit) expect(components.headers.RateLimitPolicy.example).toBe(`"default";q=${limit};w=1`);
  });

  test('has PUBLIC_URL as its server, /docs as its external documentation, CONTACT and TERMS_URL', async () => {
    const TERMS_URL = 'https://numbers.test/terms';
    const { servers, externalDocs, info } = await served({
      ...SETTINGS,
      PUBLIC_URL,
      CONTACT: 'api@numbers.test',
      TERMS_URL,
    });
    expect([servers, externalDocs]).toEqual([[{ url: PUBLIC_URL }], { url: `${PUBLIC_URL}/docs` }]);
    expect([info.contact, info.termsOfService]).toEqual([{ name: OPERATOR, email: 'api@numbers.test' }, TERMS_URL]);
    const linked = await served({ ...SETTINGS, CONTACT: 'https://numbers.test/help' });
    expect(linked.info.contact).toEqual({ name: OPERATOR, url: 'https://numbers.test/help' });
  });

  test('is also served in OpenAPI 3.0, for tools that do not read 3.1', async () => {
    const app = express().use(docs({ ...SETTINGS, PUBLIC_URL: 'https://numbers.test' }));
    const { openapi, servers, security, components } = (await request(app).get('/openapi-3.0.json').expect(200)).body;
    expect([openapi, servers, security]).toEqual(['3.0.3', [{ url: 'https://numbers.test' }], []]);
    const { internalName } = components.schemas.BrandedPhoneNumber.properties;
    expect(internalName).toMatchObject({ type: 'string', nullable: true });
  });

  test.each(['/openapi.yaml', '/openapi.json', '/openapi-3.0.json'])(
    'at %s can be read from any origin, and has an ETag that gets a 304',
    async (path) => {
      const first = await request(app).get(path).expect('Access-Control-Allow-Origin', '*').expect('ETag', /^W\/"/);
      const second = await request(app).get(path).set('If-None-Match', String(first.headers.etag)).expect(304);
      // It would replace the encoding of the body that a cache has.
      expect(second.headers).not.toHaveProperty('content-encoding');
    },
  );
});

describe('the pages of /problems', () => {
  const problems = Object.entries(contract['x-problems']);

  test.each(problems)('list and explain %s, and show an example', async (name, { title, status }) => {
    expect((await getPage('/problems')).text).toContain(`<a href="problems/${name}">${title}</a>`);
    const { text } = await getPage(`/problems/${name}`);
    expect(text).toContain(`<h1>${title}</h1>`);
    expect(text).toContain(`Status ${status}`);
    expect(text).toContain(`&#34;type&#34;: &#34;/problems/${name}&#34;`);
    expect(text).toContain('href="../docs"');
  });

  test('mark up code, and escape HTML', async () => {
    const { text } = await request(app).get('/problems/unauthorized');
    expect(text).toContain('<code>Authorization: Bearer &lt;key&gt;</code>');
    expect(text).not.toContain('<key>');
  });
});

describe('docs() passes on to the API', () => {
  test.each([
    ['get', '/problems/invalid-request/'],
    ['get', '/Docs'],
    // The demo page of Swagger UI.
    ['get', '/docs/index.html'],
    ['post', '/docs'],
  ] as const)('%s %s', async (method, path) => {
    await request(app)[method](path).expect(404, { from: 'the API' });
  });
});
