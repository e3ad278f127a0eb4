/** The documentation in a real browser: does every example of the document work when a person tries it out? */
import { createReadStream } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import axe, { type AxeResults } from 'axe-core';
import type { Browser, BrowserContext, Locator, Page, Request } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { BrandedPhoneNumberPage } from '../generated/types/models/index.js';
import { contract, parameters, resolve } from '../src/contract.js';
import { importNumbers } from '../src/import/import.js';
import { createApiKey } from '../src/keys/keys.js';
import { packageFolder } from '../src/packageFolder.js';
import { openChromium } from './chromium.js';
import { useService } from './service.js';
import { until } from './until.js';

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
    const { url = '' } = request;
    if (!url.startsWith(prefix)) return void response.writeHead(404).end();
    request.url = url.slice(prefix.length);
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
  await importNumbers(real.database, createReadStream(join(packageFolder, 'demo', 'numbers.ndjson')));
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
  test('shows our name, no box to load other documents, and no menu of servers', async () => {
    await openDocs();
    expect(await page.title()).toBe('Branded Phone Numbers');
    expect(await page.locator('h1, h2').first().textContent()).toContain('Branded Phone Numbers');
    expect(await page.locator('.topbar, .download-url-input, .servers').count()).toBe(0);
    expect(new Set(requests.map((request) => new URL(request.url()).origin))).toEqual(new Set([service.url]));
  });

  test('says in words what each parameter may be', async () => {
    await openDocs();
    for (const { name, schema } of parameters.values()) {
      const words = await row(name).locator('.parameter-words').textContent();
      const item = schema.items ? resolve(schema.items) : schema;
      expect(words).toContain(schema.items ? `up to ${schema.maxItems} times` : 'once');
      if (item.minimum !== undefined) expect(words).toContain(`${item.minimum} to ${item.maximum}`);
      if (item.default !== undefined) expect(words).toContain(`default ${item.default}`);
      if (item.maxLength !== undefined) expect(words).toMatch(new RegExp(`\\b${item.maxLength} characters`));
      if (item.pattern !== undefined) expect(words).toContain(`pattern ${item.pattern}`);
      for (const value of item.enum ?? []) expect(await choice(name, value).count()).toBe(1);
    }
  });

  test('folds the answers that few clients meet', async () => {
    await openDocs();
    const body = (status: number) => page.locator(`tr[data-code="${status}"] pre`).first();
    for (const status of [200, 400, 429]) expect([status, await body(status).isVisible()]).toEqual([status, true]);
    for (const status of [401, 404, 503]) {
      expect([status, await body(status).isVisible()]).toEqual([status, false]);
      await page.locator(`tr[data-code="${status}"] summary`).click();
      expect([status, await body(status).isVisible()]).toEqual([status, true]);
    }
  });

  test.each(['', '/telephony'])('has only links that lead somewhere, behind the prefix "%s"', async (prefix) => {
    const behindPrefix = await listen(prefix, withKeys);
    const start = `${behindPrefix.url}/docs`;
    const seen = new Set([start]);
    try {
      // Grows while it is walked.
      for (const url of seen) {
        const answer = await fetch(url);
        expect([url, answer.status]).toEqual([url, 200]);
        expect(`${answer.url}/`).toContain(`${behindPrefix.url}/`);
        if (!answer.headers.get('content-type')?.startsWith('text/html')) continue;
        await page.goto(url);
        if (url === start) await operationIsShown();
        const links = await page.evaluate<string[]>('Array.from(document.links, ({ href }) => href.split("#")[0])');
        for (const link of links) if (new URL(link).hostname === '127.0.0.1') seen.add(link);
      }
      expect([...seen].filter((url) => url.includes('/problems/'))).toHaveLength(
        Object.keys(contract['x-problems']).length,
      );
      // A page that only an address leads to.
      await page.goto(`${behindPrefix.url}/problems/no-such-problem`);
      await page.click('text=All problems');
      await page.waitForLoadState();
      expect(page.url()).toBe(`${behindPrefix.url}/problems`);
      complaints = complaints.filter((complaint) => !complaint.includes('404'));
    } finally {
      await behindPrefix.close();
    }
  });

  test('works behind a path prefix', async () => {
    const behindPrefix = await listen('/telephony');
    try {
      await page.goto(`${behindPrefix.url}/docs/`);
      await operationIsShown();
      const sent = await execute();
      expect(sent.url().split('?')[0]).toBe(behindPrefix.url + path);
      expect(await statusShown()).toBe('200');
      await field('size').fill('0');
      await execute();
      await followProblem('Invalid Request');
      expect(page.url()).toBe(`${behindPrefix.url}/problems/invalid-request`);
    } finally {
      await behindPrefix.close();
    }
  });
});

const places = ['/docs', '/problems', '/problems/invalid-request', '/problems/no-such-problem'];
const looks = [desktop, phone].flatMap((viewport) =>
  (['light', 'dark'] as const).map((colorScheme) => ({ viewport, width: viewport.width, colorScheme })),
);

describe.each(looks)('in a $colorScheme window of $width pixels', ({ viewport, width, colorScheme }) => {
  beforeEach(async () => {
    await page.setViewportSize(viewport);
    await page.emulateMedia({ colorScheme });
  });

  test.each(places)('%s fits, has the right colors, and shuts nobody out', async (place) => {
    await page.goto(service.url + place);
    if (place === '/docs') await operationIsShown();
    await check();
    complaints = complaints.filter((complaint) => !complaint.includes('404'));
    if (place !== '/docs') return;
    await field('size').fill('0');
    await execute();
    for (const summary of await page.locator('details > summary').all()) await summary.click();
    await check();
    await followProblem('Invalid Request');
  });

  async function check() {
    expect(await overflow()).toBe(0);
    for (const element of ['body', '#swagger-ui > .swagger-ui', 'main']) {
      for (const lightness of await backgroundsOf(element)) expect(lightness > 128).toBe(colorScheme === 'light');
    }
    expect(await barriers()).toEqual([]);
  }

  test('has a request at hand, and its answer in view', async () => {
    await openDocs();
    const button = page.getByRole('button', { name: 'In review' });
    expect(await isInView(button, 50)).toBe(true);
    await button.click();
    await until(() => isInView(page.locator(answerStatus), 20), 'the status of the answer is in view');
    if (colorScheme === 'light') await screenshot(`docs-${width === phone.width ? 'phone' : 'desktop'}.png`);
    const body = page.locator('.answer pre', { hasText: '"phoneNumber"' });
    await until(() => isInView(body, 200), 'the beginning of its body is in view');
  });
});

test('the page follows the system into the dark and back', async () => {
  await openDocs();
  for (const colorScheme of ['dark', 'light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme });
    const [lightness = 0] = await backgroundsOf('body');
    expect(lightness > 128).toBe(colorScheme === 'light');
    // Swagger UI's own colors.
    await page
      .locator(colorScheme === 'dark' ? 'html.dark-mode' : 'html:not(.dark-mode)')
      .waitFor({ state: 'attached' });
  }
});

describe('the requests at hand', () => {
  /** The shapes that the service is specified for. */
  const shapes: [name: string, query: string | undefined][] = [
    ['All numbers', undefined],
    ['One number', 'phoneNumber=%2B14155550123'],
    ['In review', 'status=submitted%20for%20review'],
    ['Approved or rejected', 'status=approved&status=rejected'],
    ['Branding approved at AT&T', 'carrier=AT%26T&feature=brandedCallerId&status=approved.optIn'],
    ['Spam remediation approved', 'feature=spamRemediation&status=approved.optIn'],
  ];

  test('send what their names say, and nothing else that was filled in', async () => {
    await openDocs();
    expect(await page.locator('.requests button').allTextContents()).toEqual(shapes.map(([name]) => name));
    for (const [name, query] of shapes) {
      await field('internalName').fill('left from before');
      expect([name, await queryOf(send(name))]).toEqual([name, query]);
      expect(await statusShown()).toBe('200');
      // What was sent stands in the fields.
      for (const [parameter, value] of new URLSearchParams(query)) {
        if (await choice(parameter, value).count()) expect(await choice(parameter, value).isChecked()).toBe(true);
        else expect(await field(parameter).inputValue()).toBe(value);
      }
      expect(await field('internalName').inputValue()).toBe('');
    }
  });

  test('go on with the next page, until there is none', async () => {
    await openDocs();
    await send('In review');
    const next = page.getByRole('button', { name: 'Next page' });
    const seen = new Set<string>();
    for (let pages = 0; pages < 10; pages++) {
      const numbers =
        (await page.locator('.answer pre', { hasText: '"items"' }).textContent())?.match(/"\+\d+"/g) ?? [];
      for (const number of numbers) seen.add(number);
      if (!(await next.isVisible())) break;
      const query = await queryOf(press(next));
      expect(query).toMatch(/^nextCursor=[\w-]+&status=submitted%20for%20review$/);
      expect(await statusShown()).toBe('200');
    }
    const all = await fetch(`${service.url}${path}?status=submitted+for+review&size=100`);
    expect(seen.size).toBe(((await all.json()) as BrandedPhoneNumberPage).items.length);
  });
});

describe('the keyboard', () => {
  /** Presses Tab until `target` has the focus. */
  async function tabTo(target: Locator, most: number) {
    for (let presses = 1; presses <= most; presses++) {
      await page.keyboard.press('Tab');
      if (await target.evaluate((element) => element === element.ownerDocument.activeElement)) return;
    }
    throw new Error(`${target} is more than ${most} presses away`);
  }

  test('sends a request at hand, and then reads the answer', async () => {
    await openDocs();
    await tabTo(page.getByRole('button', { name: 'In review' }), 10);
    expect(await queryOf(sending(() => page.keyboard.press('Enter')))).toBe('status=submitted%20for%20review');
    await tabTo(page.getByRole('button', { name: 'Next page' }), 1);
    const body = page.locator('.answer pre', { hasText: '"items"' });
    await tabTo(body, 10);
    const end = () => body.evaluate((element) => element.scrollTop + element.clientHeight + 1 >= element.scrollHeight);
    expect(await end()).toBe(false);
    await page.keyboard.press('End');
    await until(end, 'the end of the answer is in view');
  });

  test('fills in the parameters, and sends them', async () => {
    await openDocs();
    await tabTo(field('size'), 20);
    await page.keyboard.type('5');
    await tabTo(field('carrier'), 20);
    await page.keyboard.type('AT&T');
    await page.keyboard.press('Enter');
    await page.keyboard.type('Verizon');
    await tabTo(choice('status', 'approved.optIn'), 20);
    await page.keyboard.press('Space');
    await tabTo(page.locator('button.execute'), 30);
    const sent = sending(() => page.keyboard.press('Enter'));
    expect(await queryOf(sent)).toBe('size=5&carrier=AT%26T&carrier=Verizon&status=approved.optIn');
    expect(await statusShown()).toBe('200');
  });
});

describe('trying it out', () => {
  test('asks for all numbers at first: nothing is filled in', async () => {
    await openDocs();
    expect(await queryOf(execute())).toBeUndefined();
    expect(await statusShown()).toBe('200');
  });

  const examples = [...parameters].map(([name, { examples = {} }]) => ({ name, examples: Object.entries(examples) }));

  /** The first example of each parameter, then the second of those that have two, and so on. */
  test.each([0, 1, 2])('sends every example correctly encoded: number %i of each parameter', async (index) => {
    await openDocs();
    const sent: string[] = [];
    for (const { name, examples: all } of examples) {
      const [example, { value }] = all[index] ?? ['', { value: undefined }];
      if (!example) continue;
      await choose(name, example, value);
      sent.push(encoded(name, value));
    }
    expect(sent).not.toEqual([]);
    expect(await queryOf(execute())).toBe(sent.join('&'));
    expect(await statusShown()).toBe('200');
  });

  test('no parameter has more examples than that', () => {
    expect(Math.max(...examples.map(({ examples: all }) => all.length))).toBe(3);
  });

  test('sends nothing for a parameter that was cleared, rather than an empty value', async () => {
    await openDocs();
    await field('phoneNumber').fill('+14155550123');
    await field('carrier').fill('AT&T\n\nVerizon\n');
    await choice('status', 'approved').check();
    expect(await queryOf(execute())).toBe('phoneNumber=%2B14155550123&carrier=AT%26T&carrier=Verizon&status=approved');
    await field('phoneNumber').fill('');
    await field('carrier').fill('');
    await choice('status', 'approved').uncheck();
    expect(await queryOf(execute())).toBeUndefined();
    expect(await statusShown()).toBe('200');
  });

  test('shows what the service says of a wrong value, and no longer the answer before', async () => {
    await openDocs();
    await send('One number');
    const answer = page.locator('.answer');
    expect(await answer.textContent()).toContain('"phoneNumber": "+14155550123"');
    await field('phoneNumber').fill('4155550123');
    await field('size').fill('101');
    await execute();
    expect(await statusShown()).toBe('400');
    const text = await answer.textContent();
    expect(text).toContain('must be a page size from 1 to 100');
    expect(text).toContain('is not a phone number in E.164');
    expect(text).not.toContain('"items"');
    expect(await page.locator('.validation-errors').count()).toBe(0);
    await followProblem('Invalid Request');
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
      expect(await barriers()).toEqual([]);
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

/** The field of a parameter without a closed list of values. */
function field(parameter: string) {
  return row(parameter).locator('input[type="text"], textarea');
}

function choice(parameter: string, value: string) {
  return row(parameter).locator(`input[type="checkbox"][value="${value}"]`);
}

async function choose(parameter: string, example: string, value: unknown) {
  const button = row(parameter).locator(`button[data-example="${example}"]`);
  if (await button.count()) return button.click();
  for (const each of [value].flat()) await choice(parameter, String(each)).check();
}

const execute = () => press(page.locator('button.execute'));
const send = (name: string) => press(page.locator('.requests').getByRole('button', { name }));
const press = (button: Locator) => sending(() => button.click());

/** Does what sends a request, and returns it when its answer is shown. */
async function sending(action: () => Promise<void>): Promise<Request> {
  const answered = page.waitForResponse((response) => new URL(response.url()).pathname.endsWith(path));
  await action();
  const answer = await answered;
  await page.locator('.answer', { hasText: answer.headers()['x-request-id'] ?? '' }).waitFor();
  if (answer.status() === 400) complaints = complaints.filter((complaint) => !complaint.includes('400'));
  return answer.request();
}

/** Follows the `type` of the problem that is shown. */
async function followProblem(title: string) {
  await page.locator('.answer pre a').click();
  expect(await page.locator('h1').textContent()).toBe(title);
}

async function queryOf(sent: Promise<Request>): Promise<string | undefined> {
  return (await sent).url().split('?')[1];
}

async function statusShown(): Promise<string> {
  return (await page.locator(answerStatus).textContent())?.trim() ?? '';
}

/** What axe-core says keeps people out: its critical and serious findings. */
async function barriers(): Promise<string[]> {
  await page.evaluate(axe.source);
  // What passed would be described at length as well.
  const { violations } = await page.evaluate<AxeResults>("axe.run({ resultTypes: ['violations'] })");
  return violations
    .filter(({ impact }) => impact === 'critical' || impact === 'serious')
    .flatMap(({ id, nodes }) => nodes.map(({ target, failureSummary }) => `${id}: ${target}: ${failureSummary}`));
}

/** How light the backgrounds of these elements are, from 0 to 255; nothing for those that let another shine through. */
function backgroundsOf(selector: string): Promise<number[]> {
  return page.evaluate<number[]>(`
    Array.from(document.querySelectorAll('${selector}'), (element) => getComputedStyle(element).backgroundColor)
      .filter((color) => color.startsWith('rgb('))
      .map((color) => Math.max(...color.match(/\\d+/g)))`);
}

/** Whether the beginning of an element is in the window: its first pixels, or all of it where it has no more. */
async function isInView(element: Locator, pixels: number): Promise<boolean> {
  const [box, size] = [await element.boundingBox(), page.viewportSize()];
  return !!box && !!size && box.y >= 0 && box.y + Math.min(box.height, pixels) <= size.height;
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
