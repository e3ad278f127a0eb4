/** The documentation in a real browser: does every example of the document work when a person tries it out? */
import { mkdir } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { Browser, BrowserContext, Page, Request } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { parameters } from '../src/contract.js';
import { createApiKey } from '../src/keys/keys.js';
import { packageFolder } from '../src/packageFolder.js';
import { openChromium } from './chromium.js';
import { entryWith, numberWith, write } from './numbers.js';
import { useService } from './service.js';

const desktop = { width: 1280, height: 900 };
const phone = { width: 375, height: 812 };
const path = '/v1/brandedPhoneNumbers';

/** The status of the answer that Swagger UI shows below Execute. */
const answerStatus = '.live-responses-table tbody .response-col_status';

interface Service {
  url: string;
  close(): Promise<void>;
}

const real = useService({ RATE_LIMIT_PER_SECOND: '10' });
const withKeys = useService({ AUTH: 'api-key', PUBLIC_URL: 'https://numbers.example/telephony' });

/** Makes the service listen on a port of its own, behind a `prefix` that is taken off as a proxy would. */
async function listen(prefix = '', { app } = real): Promise<Service> {
  const server = createServer((request, response) => {
    request.url = request.url?.slice(prefix.length) ?? '';
    app.emit('request', request, response);
  }).listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}${prefix}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

let browser: Browser;
let context: BrowserContext;
let service: Service;
let page: Page;
let requests: Request[];
let complaints: string[];

beforeAll(async () => {
  await write(real.database, [
    numberWith({
      phoneNumber: '+14155550123',
      internalName: 'Mortgage Sales Line',
      carrierStatuses: [entryWith('AT&T', 'brandedCallerId', 'approved.optIn')],
    }),
  ]);
  [browser, service] = await Promise.all([openChromium(), listen()]);
  // One for all pages: what was fetched once is cached, as for a person who comes back.
  context = await browser.newContext({ viewport: desktop });
});

afterAll(async () => {
  await browser?.close();
  await service?.close();
});

beforeEach(async () => {
  page = await context.newPage();
  requests = [];
  complaints = [];
  page.on('request', (request) => requests.push(request));
  page.on('requestfailed', (request) => complaints.push(`${request.url()}: ${request.failure()?.errorText}`));
  page.on('pageerror', (error) => complaints.push(String(error)));
  // The browser reports violations of the Content-Security-Policy here, too.
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) complaints.push(message.text());
  });
});

afterEach(async () => {
  await page.close();
  expect(complaints).toEqual([]);
  expect(requests.map((request) => new URL(request.url()).hostname)).toEqual(requests.map(() => '127.0.0.1'));
});

describe('the documentation', () => {
  test('shows our name, and no box to load other documents', async () => {
    await openDocs();
    expect(await page.title()).toBe('Branded Phone Numbers');
    expect(await page.locator('h1, h2').first().textContent()).toContain('Branded Phone Numbers');
    expect(await page.locator('.topbar, .download-url-input').count()).toBe(0);
    expect(new Set(requests.map((request) => new URL(request.url()).origin))).toEqual(new Set([service.url]));
  });

  test.each(['/docs', '/problems', '/problems/invalid-request'])('fits a phone at %s', async (place) => {
    await page.setViewportSize(phone);
    await page.goto(service.url + place);
    if (place === '/docs') {
      await operationIsShown();
      await choose('status', 'decided');
      await execute();
      await page.evaluate('window.scrollTo(0, 0)');
    }
    expect(await overflow()).toBe(0);
    if (place === '/docs') await screenshot('docs-phone.png');
  });

  test('works behind a path prefix', async () => {
    const behindPrefix = await listen('/telephony');
    try {
      await page.goto(`${behindPrefix.url}/docs/`);
      await operationIsShown();
      const sent = await execute();
      expect(sent.url().split('?')[0]).toBe(behindPrefix.url + path);
      expect(await statusShown()).toBe('200');
    } finally {
      await behindPrefix.close();
    }
  });
});

describe('trying it out', () => {
  test('asks for all numbers at first: no filter is filled in', async () => {
    await openDocs();
    expect(await queryOf(execute())).toBe('size=25');
    expect(await statusShown()).toBe('200');
  });

  const examples = [...parameters].map(([name, { examples = {} }]) => ({ name, examples: Object.entries(examples) }));

  /** The first example of each parameter, then the second of those that have two, and so on. */
  test.each([0, 1, 2])('sends every example correctly encoded: number %i of each parameter', async (index) => {
    await openDocs();
    await choose('size', 'leftOut');
    const sent: string[] = [];
    for (const { name, examples: all } of examples) {
      const [example, { value }] = all[index] ?? ['', { value: undefined }];
      if (!example) continue;
      await choose(name, example);
      sent.push(encoded(name, value));
    }
    expect(sent).not.toEqual([]);
    expect(await queryOf(execute())).toBe(sent.join('&'));
    expect(await statusShown()).toBe('200');
  });

  test('no parameter has more examples than that', () => {
    expect(Math.max(...examples.map(({ examples: all }) => all.length))).toBe(3);
  });

  test('sends examples of several parameters together', async () => {
    await openDocs();
    await choose('size', 'largest');
    await choose('carrier', 'one');
    await choose('status', 'optedIn');
    expect(await queryOf(execute())).toBe('size=100&carrier=AT%26T&status=approved.optIn');
    expect(await statusShown()).toBe('200');
    await page
      .locator('.execute-wrapper, .btn-group')
      .first()
      .evaluate((element) => element.scrollIntoView());
    await screenshot('docs-desktop.png');
  });

  test('sends nothing for a parameter that was cleared, rather than an empty value', async () => {
    await openDocs();
    for (const name of ['carrier', 'status', 'phoneNumber']) {
      await choose(name, Object.keys(parameters.get(name)?.examples ?? {})[0] as string);
    }
    await row('carrier').locator('.json-schema-form-item-remove').click();
    await row('phoneNumber').locator('input').fill('');
    await choose('status', 'leftOut');
    expect(await queryOf(execute())).toBe('size=25');
    expect(await statusShown()).toBe('200');
  });

  test('offers all values of status, the dotted ones too', async () => {
    await openDocs();
    const offered = await row('status').locator('select[multiple] option').allTextContents();
    expect(offered).toEqual(expect.arrayContaining(['submitted for review', 'unregistered', 'pending.initialOptIn']));
  });

  test('sends the key that was entered, and forgets it with the page', async () => {
    const { key } = await createApiKey(withKeys.database, 'browser', { businessProfileIds: null });
    const asking = await listen('', withKeys);
    const open = async () => {
      await page.goto(`${asking.url}/docs`);
      await operationIsShown();
    };
    try {
      await open();
      await page.click('.btn.authorize');
      await page.fill('.auth-container input', `Bearer ${key}`);
      await page.click('.auth-btn-wrapper .authorize');
      await page.click('.btn-done');
      expect((await execute()).headers().authorization).toBe(`Bearer ${key}`);
      expect(await statusShown()).toBe('200');
      await open();
      expect((await execute()).headers().authorization).toBeUndefined();
      expect(await statusShown()).toBe('401');
      complaints = complaints.filter((complaint) => !complaint.includes('401'));
    } finally {
      await asking.close();
    }
  });

  test('offers no box for a key where none is needed', async () => {
    await openDocs();
    expect(await page.locator('.btn.authorize').count()).toBe(0);
  });
});

async function openDocs() {
  await page.goto(`${service.url}/docs`);
  await operationIsShown();
}

function operationIsShown() {
  return page.waitForSelector('button.execute');
}

function row(parameter: string) {
  return page.locator(`tr[data-param-name="${parameter}"]`);
}

function choose(parameter: string, example: string) {
  return row(parameter).locator('.examples-select-element').selectOption(example);
}

/** Presses Execute, and returns the request when its answer is shown. */
async function execute(): Promise<Request> {
  const clear = page.locator('button.btn-clear');
  if (await clear.isVisible()) await clear.click();
  const sent = page.waitForRequest((request) => new URL(request.url()).pathname.endsWith(path));
  await page.click('button.execute');
  await page.waitForSelector(answerStatus);
  return sent;
}

async function queryOf(sent: Promise<Request>): Promise<string | undefined> {
  return (await sent).url().split('?')[1];
}

async function statusShown(): Promise<string> {
  return (await page.locator(answerStatus).textContent())?.trim() ?? '';
}

/** How RFC 3986 and our description want it: only unreserved characters bare, a parameter repeated for each value. */
function encoded(name: string, value: unknown): string {
  return [value]
    .flat()
    .map((one) => `${name}=${encodeURIComponent(String(one))}`)
    .join('&');
}

function overflow(): Promise<number> {
  return page.evaluate<number>('document.documentElement.scrollWidth - document.documentElement.clientWidth');
}

/** Pictures for the README are taken on demand only, for they differ a little each time. */
async function screenshot(name: string) {
  if (process.env.SCREENSHOTS !== '1') return;
  const folder = join(packageFolder, 'docs', 'images');
  await mkdir(folder, { recursive: true });
  await page.screenshot({ path: join(folder, name) });
}
