/** The documentation in a real browser. */
import { mkdir } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import type { Locator } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { sample } from '../../clients/live/samples.js';
import type { BrandedPhoneNumberPage } from '../../generated/types/models/index.js';
import { parameters } from '../../src/contract.js';
import { createApiKey } from '../../src/keys/keys.js';
import { packageFolder } from '../../src/packageFolder.js';
import { freePort } from '../support/port.js';
import { useService } from '../support/service.js';
import { until } from '../support/until.js';
import {
  accessibilityProblems,
  choice,
  desktop,
  execute,
  field,
  hold,
  ignorePageErrors,
  listen,
  openDocs,
  openWithSwagger,
  page,
  panel,
  path,
  press,
  queryOf,
  row,
  send,
  sending,
  statusShown,
  swaggerIsShown,
  url,
  usePage,
} from './page.js';

const port = await freePort();
const LISTED = `http://127.0.0.1:${port}`;
usePage(LISTED);
const withKeys = useService({ AUTH: 'api-key', PUBLIC_URL: 'https://numbers.example/telephony' });

/** The requests of the specification. */
const SHAPES: [name: string, query: string | undefined][] = [
  ['All numbers', undefined],
  ['One number', 'phoneNumber=%2B14155550123'],
  ['In review', 'status=submitted+for+review'],
  ['Approved or rejected', 'status=approved&status=rejected'],
  ['Branding approved at AT&T', 'carrier=AT%26T&feature=brandedCallerId&status=approved.optIn'],
  ['Spam remediation approved', 'feature=spamRemediation&status=approved.optIn'],
];

describe('the samples of /docs', () => {
  test('are the first of each client’s README, with this service’s address', async () => {
    await openDocs();
    const shown = page.locator('.start pre:visible');
    const [, curlUrl = ''] = /'(.*)'/.exec((await shown.textContent()) ?? '') ?? [];
    expect((await fetch(curlUrl)).status).toBe(200);
    for (const [language, block] of Object.entries({ TypeScript: 'js', Python: 'python', Java: 'java', Go: 'go' })) {
      await page.getByRole('button', { name: language, exact: true }).click();
      expect((await shown.last().textContent())?.trim()).toBe(sample(language.toLowerCase(), block, url).trim());
    }
  });

  test('can be copied', async () => {
    await openDocs();
    await page.locator('.request', { hasText: 'In review' }).getByRole('button', { name: 'Copy' }).click();
    await page.getByRole('button', { name: 'Copied' }).waitFor();
    const copied = await page.evaluate<string>('navigator.clipboard.readText()');
    expect(copied).toBe(`curl '${url}${path}?status=submitted+for+review'`);
  });

  test('keep the chosen language’s name readable under the pointer', async () => {
    await openDocs();
    // The pointer stays there. axe compares the colors.
    await page.getByRole('button', { name: 'Python', exact: true }).click();
    expect(await accessibilityProblems()).toEqual([]);
  });
});

describe('the requests of /docs', () => {
  test('are sent without Swagger UI, and their responses are shown', async () => {
    const release = await hold('**/swagger-ui-bundle.js');
    await openDocs();
    expect(await page.locator('.request > button:not(form *)').allTextContents()).toEqual(SHAPES.map(([name]) => name));
    for (const [name, query] of SHAPES) {
      expect([name, await queryOf(send(name))]).toEqual([name, query]);
      expect(await statusShown()).toBe('200 OK');
      const text = await panel().textContent();
      expect(text).toContain(`curl '${url}${path}${query ? `?${query}` : ''}'`);
      expect(text).toMatch(/ in \d+ ms/);
      expect(text).toMatch(/RateLimit: "default";r=\d/);
      expect(text).toContain('"phoneNumber": "+1');
    }
    expect(await page.locator('#swagger-ui button').count()).toBe(0);
    release();
    await swaggerIsShown();
  });

  test('get a 304 when they are sent again', async () => {
    await openDocs();
    await send('In review');
    const etag = /ETag: (W\S+)/.exec((await panel().textContent()) ?? '')?.[1];
    expect((await send('In review')).headers()['if-none-match']).toBe(etag);
    expect(await statusShown()).toBe('304 Not Modified');
    expect(await panel().textContent()).toContain(`--header 'If-None-Match: ${etag}'`);
    expect(await panel().locator('.body').count()).toBe(0);
    expect((await send('One number')).headers()['if-none-match']).toBeUndefined();
    // The browser's own cache sends none either: the request that is shown is the one that was sent.
    await page.reload();
    expect(await (await send('In review')).allHeaders()).not.toHaveProperty('if-none-match');
  });

  test('show the response to the last one, also if an earlier one arrives after it', async () => {
    await openDocs();
    const release = await hold('**?phoneNumber=*');
    const late = page.waitForResponse('**?phoneNumber=*');
    await page.locator('.requests').getByRole('button', { name: 'One number' }).click();
    await send('In review');
    release();
    await (await late).finished();
    // The page has read that response when the next one is shown.
    await page.evaluate(`fetch('openapi.json').then((response) => response.text())`);
    expect(await panel().textContent()).toContain('?status=submitted+for+review');
  });

  test('lead to the next page until the last one', async () => {
    await openDocs();
    const filters = (await queryOf(send('Branding approved at AT&T'))) ?? '';
    const next = page.getByRole('button', { name: 'Next page' });
    const seen = new Set<string>();
    for (let pages = 0; pages < 10; pages++) {
      for (const number of (await panel().locator('.body').textContent())?.match(/"\+\d+"/g) ?? []) seen.add(number);
      if (!(await next.isVisible())) break;
      expect((await queryOf(press(next)))?.replace(/&nextCursor=[\w-]+$/, '')).toBe(filters);
      expect(await statusShown()).toBe('200 OK');
    }
    const all = await fetch(`${url}${path}?${filters}&size=100`);
    expect(seen.size).toBe(((await all.json()) as BrandedPhoneNumberPage).items.length);
  });

  test('show every fault of the reader’s own query, and lead to the problem’s page', async () => {
    await openDocs();
    await send('One number');
    await page.getByLabel('Your own query').fill('phoneNumber=4155550123&size=101');
    expect(await queryOf(sending(() => page.keyboard.press('Enter')))).toBe('phoneNumber=4155550123&size=101');
    expect(await statusShown()).toBe('400 Invalid Request');
    const faults = await panel().locator('li').allTextContents();
    expect(faults).toEqual([
      'size must be a page size from 1 to 100',
      expect.stringMatching(/^phoneNumber .* is not a phone number in E.164/),
    ]);
    expect(await panel().textContent()).not.toContain('"items"');
    await panel().getByRole('link').click();
    expect(await page.locator('h1').textContent()).toBe('Invalid Request');
  });

  test('show a 429, and how long to wait', async () => {
    await openDocs();
    let isOver = false;
    const flood = Array.from({ length: 4 }, async () => {
      while (!isOver) await fetch(`${url}${path}?size=0`);
    });
    await until(async () => {
      await send('One number');
      return (await statusShown()) === '429 Rate Limit Exceeded';
    }, 'the limit is reached');
    isOver = true;
    await Promise.all(flood);
    expect(await panel().textContent()).toContain('Retry-After: 1');
  });

  test('say that the service did not respond', async () => {
    await openWithSwagger();
    await page.context().setOffline(true);
    await page.locator('.requests').getByRole('button', { name: 'In review' }).click();
    await panel().getByText('No response').waitFor();
    await page.context().setOffline(false);
    ignorePageErrors('ERR_INTERNET_DISCONNECTED');
  });

  test('go to the service behind a path prefix, with Swagger UI and links to problems', async () => {
    const behindPrefix = await listen('/telephony');
    try {
      await page.goto(`${behindPrefix.url}/docs`);
      await page.getByLabel('Your own query').fill('size=0');
      const sent = await sending(() => page.keyboard.press('Enter'));
      expect(sent.url()).toBe(`${behindPrefix.url}${path}?size=0`);
      await swaggerIsShown();
      expect((await execute()).url()).toBe(behindPrefix.url + path);
      await panel().getByRole('link').click();
      await page.waitForURL(`${behindPrefix.url}/problems/invalid-request`);
    } finally {
      await behindPrefix.close();
    }
  });
});

describe('with AUTH=api-key, /docs', () => {
  const keyField = () => page.getByRole('dialog', { name: 'API key' }).getByLabel('Your API key');

  test('asks for the key, sends the pressed request with it, and forgets it if it is rejected', async () => {
    const { key } = await createApiKey(withKeys.database, 'browser', { businessProfileIds: null });
    const listening = await listen('', withKeys);
    try {
      await page.goto(`${listening.url}/docs`);
      expect(await page.locator('.start pre:visible').textContent()).toContain(
        '--header "Authorization: Bearer $KEY" ',
      );
      const inReview = page.locator('.requests').getByRole('button', { name: 'In review' });
      await inReview.click();
      expect(await keyField().getAttribute('type')).toBe('password');
      expect(await keyField().evaluate((field) => field === field.ownerDocument.activeElement)).toBe(true);
      for (const colorScheme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme });
        expect(await accessibilityProblems()).toEqual([]);
      }
      await page.keyboard.press('Escape');
      expect(await keyField().isVisible()).toBe(false);

      await inReview.click();
      await page.keyboard.type('not-a-key');
      await sending(() => page.keyboard.press('Enter'));
      expect(await statusShown()).toBe('401 Unauthorized');

      await inReview.click();
      await page.keyboard.type(key);
      const sent = await sending(() => page.keyboard.press('Enter'));
      expect(sent.url()).toContain('?status=submitted+for+review');
      expect(sent.headers().authorization).toBe(`Bearer ${key}`);
      expect(await statusShown()).toBe('200 OK');
      expect(await panel().textContent()).not.toContain(key);
      expect((await send('One number')).headers().authorization).toBe(`Bearer ${key}`);

      await swaggerIsShown();
      expect(await page.locator('.btn.authorize').count()).toBe(0);
      expect((await execute()).headers().authorization).toBe(`Bearer ${key}`);

      await page.reload();
      await swaggerIsShown();
      await page.locator('button.execute').click();
      await keyField().fill(key);
      expect((await sending(() => page.keyboard.press('Enter'))).headers().authorization).toBe(`Bearer ${key}`);
    } finally {
      await listening.close();
    }
  });
});

describe('Swagger UI', () => {
  const examples = [...parameters].map(([name, { examples = {} }]) => ({ name, examples: Object.entries(examples) }));
  const maxExamples = Math.max(...examples.map(({ examples: all }) => all.length));

  test.each([...Array(maxExamples).keys()])('sends example %i of each parameter that has it', async (index) => {
    await openWithSwagger();
    const sent: string[] = [];
    for (const { name, examples: all } of examples) {
      const [example, { value }] = all[index] ?? ['', { value: undefined }];
      if (!example) continue;
      await choose(name, example, value);
      sent.push(encoded(name, value));
    }
    expect(sent).not.toEqual([]);
    expect(await queryOf(execute())).toBe(sent.join('&'));
  });

  test('omits parameters that are empty or were cleared', async () => {
    await openWithSwagger();
    expect(await queryOf(execute())).toBeUndefined();
    await field('phoneNumber').fill('+14155550123');
    await field('carrier').fill('AT&T\n\nVerizon\n');
    await choice('status', 'approved').check();
    expect(await queryOf(execute())).toBe('phoneNumber=%2B14155550123&carrier=AT%26T&carrier=Verizon&status=approved');
    await field('phoneNumber').fill('');
    await field('carrier').fill('');
    await choice('status', 'approved').uncheck();
    expect(await queryOf(execute())).toBeUndefined();
  });

  test('leaves the faults of a value to the service', async () => {
    await openWithSwagger();
    await field('size').fill('101');
    expect(await queryOf(execute())).toBe('size=101');
    expect(await page.locator('.live-responses-table').textContent()).toContain('must be a page size from 1 to 100');
  });

  test('collapses rare responses', async () => {
    await openWithSwagger();
    const body = (status: number) => page.locator(`tr[data-code="${status}"] pre`).first();
    for (const status of [200, 400, 429]) expect([status, await body(status).isVisible()]).toEqual([status, true]);
    for (const status of [401, 404, 503]) {
      expect([status, await body(status).isVisible()]).toEqual([status, false]);
      await page.locator(`tr[data-code="${status}"] summary`).click();
      expect([status, await body(status).isVisible()]).toEqual([status, true]);
    }
  });
});

describe('with the keyboard alone, /docs', () => {
  /** Presses Tab until `target` has the focus, and calls `afterEachPress`. */
  async function tabTo(target: Locator, afterEachPress?: () => Promise<void>) {
    for (let presses = 1; presses <= 150; presses++) {
      await page.keyboard.press('Tab');
      await afterEachPress?.();
      if (await target.evaluate((element) => element === element.ownerDocument.activeElement)) return;
    }
    throw new Error(`${target} is more than 150 presses away`);
  }

  /** Returns the focused element's HTML if it is not visibly focused, or if it is a part of the previous stop. */
  const wrongFocus = () =>
    page.evaluate<string | null>(`(() => {
      const focused = document.activeElement;
      const isNested = window.previousStop?.contains(focused);
      window.previousStop = focused;
      const { outlineStyle, outlineWidth } = getComputedStyle(focused);
      const { left, right, top, bottom } = focused.getBoundingClientRect();
      const x = (Math.max(left, 0) + Math.min(right, innerWidth)) / 2;
      const y = (Math.max(top, 0) + Math.min(bottom, innerHeight)) / 2;
      const isOutlined = outlineStyle !== 'none' && parseFloat(outlineWidth) > 2;
      const isVisible = isOutlined && right > left && focused.contains(document.elementFromPoint(x, y));
      return isVisible && !isNested ? null : focused.outerHTML;
    })()`);

  test.each(['dark', 'light'] as const)('has one visible stop for each control (%s)', async (scheme) => {
    await page.emulateMedia({ colorScheme: scheme });
    await openWithSwagger();
    await send('In review');
    await page.evaluate('document.activeElement.blur(); scrollTo(0, 0)');
    const wrong: string[] = [];
    await tabTo(page.locator('tr[data-code="default"] summary'), async () => {
      const html = await wrongFocus();
      if (html) wrong.push(html);
    });
    expect(wrong).toEqual([]);
  });

  test('sends a request by a button, and goes on to its response', async () => {
    await openDocs();
    await tabTo(page.locator('.requests').getByRole('button', { name: 'In review' }));
    expect(await queryOf(sending(() => page.keyboard.press('Enter')))).toBe('status=submitted+for+review');
    await tabTo(page.getByRole('button', { name: 'Next page' }));
    const body = panel().locator('.body');
    await tabTo(body);
    const end = () => body.evaluate((element) => element.scrollTop + element.clientHeight + 1 >= element.scrollHeight);
    expect(await end()).toBe(false);
    await page.keyboard.press('End');
    await until(end, 'the end of the response is in view');
    await tabTo(page.locator('.requests').getByRole('button', { name: 'Approved or rejected' }));
  });

  test('fills in parameters and sends them', async () => {
    await openWithSwagger();
    await tabTo(field('size'));
    await page.keyboard.type('5');
    await tabTo(field('carrier'));
    await page.keyboard.type('AT&T');
    await page.keyboard.press('Enter');
    await page.keyboard.type('Verizon');
    await tabTo(choice('status', 'approved.optIn'));
    await page.keyboard.press('Space');
    await tabTo(page.locator('button.execute'));
    const sent = sending(() => page.keyboard.press('Enter'));
    expect(await queryOf(sent)).toBe('size=5&carrier=AT%26T&carrier=Verizon&status=approved.optIn');
  });
});

const looks = [desktop, { width: 768, height: 1024 }, { width: 390, height: 844 }].flatMap((viewport) =>
  (['light', 'dark'] as const).map((colorScheme) => ({ viewport, width: viewport.width, colorScheme })),
);

describe.each(looks)('in a $colorScheme window of $width pixels', ({ viewport, width, colorScheme }) => {
  beforeEach(async () => {
    await page.setViewportSize(viewport);
    await page.emulateMedia({ colorScheme });
  });

  test('/docs is accessible, and shows the response in view with the buttons around it', async () => {
    await openDocs();
    const [pressed, next] = ['In review', 'Approved or rejected'].map((name) =>
      page.locator('.requests').getByRole('button', { name, exact: true }),
    ) as [Locator, Locator];
    expect(await isInView(page.locator('.requests').getByRole('button', { name: 'All numbers' }))).toBe(true);
    await swaggerIsShown();
    expect(await layoutShift()).toBeLessThan(0.01);
    await press(pressed);
    for (const part of [pressed, panel(), next]) await until(() => isInView(part), `${part} is in view`);
    const place = await panel().boundingBox();
    expect((place?.y ?? 0) > ((await pressed.boundingBox())?.y ?? 0)).toBe(width < 960);
    await screenshot(`docs-${width}-${colorScheme}.png`);
    await execute();
    for (const summary of await page.locator('details > summary').all()) await summary.click();
    await expectColors();
    expect(await accessibilityProblems()).toEqual([]);
  });

  test.each(['/problems', '/problems/invalid-request', '/clients/README.md'])(
    '%s is accessible, and follows the color scheme',
    async (path) => {
      await page.goto(url + path);
      await expectColors();
      expect(await accessibilityProblems()).toEqual([]);
    },
  );

  async function expectColors() {
    for (const lightness of await backgroundsOf('body, .swagger-ui'))
      expect(lightness > 128).toBe(colorScheme === 'light');
  }
});

describe('no page scrolls sideways', () => {
  const WIDTHS = [320, 375, 640, 641, 768, 825, 960, 1024, 1025, 1280, 1440, 1920];

  test.each(['/docs', '/clients/README.md', '/clients/java/README.md', '/problems/misdirected-request'])(
    '%s',
    async (path) => {
      await page.goto(url + path);
      if (path === '/docs') {
        await swaggerIsShown();
        await send('In review');
        await execute();
        for (const summary of await page.locator('details > summary').all()) await summary.click();
      }
      for (const width of WIDTHS) {
        await page.setViewportSize({ width, height: 900 });
        expect([width, await page.evaluate('document.documentElement.scrollWidth')]).toEqual([width, width]);
        const longest = await page.evaluate<number>(
          `Math.max(...[...document.querySelectorAll('main p, dd, li')].map((text) => text.clientWidth))`,
        );
        expect(longest).toBeLessThanOrEqual(46 * 16);
      }
      await page.setViewportSize(desktop);
    },
  );
});

test('/docs follows the system’s color scheme when it changes', async () => {
  await openWithSwagger();
  for (const colorScheme of ['dark', 'light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme });
    const [lightness = 0] = await backgroundsOf('body');
    expect(lightness > 128).toBe(colorScheme === 'light');
    // Swagger UI chooses its colors by this class.
    await page
      .locator(colorScheme === 'dark' ? 'html.dark-mode' : 'html:not(.dark-mode)')
      .waitFor({ state: 'attached' });
  }
});

describe('a page of another origin', () => {
  const pages = createServer((_request, response) => response.setHeader('Content-Type', 'text/html').end('<p>'));
  beforeAll(() => void pages.listen(port, '127.0.0.1'));
  afterAll(() => {
    pages.closeAllConnections();
    pages.close();
  });

  /** Returns the status that a page at `origin` gets for a request with these headers, or the browser's error. */
  async function statusAt(origin: string, headers: Record<string, string>): Promise<number | string> {
    const other = await page.context().newPage();
    await other.goto(origin);
    const fetched = `fetch(${JSON.stringify(url + path)}, { headers: ${JSON.stringify(headers)} })`;
    const status = await other.evaluate<number | string>(`${fetched}.then(({ status }) => status, String)`);
    await other.close();
    return status;
  }

  test('may send an API key and its tools’ headers only if its origin is listed', async () => {
    const tools = { baggage: 'a=b', traceparent: `00-${'1'.repeat(32)}-${'1'.repeat(16)}-01`, 'x-requested-with': 'x' };
    const ours = { Authorization: 'Bearer x', 'If-None-Match': '"x"', 'X-Request-Id': 'x' };
    expect(await statusAt(LISTED, { ...tools, ...ours })).toBe(200);
    expect(await statusAt(LISTED.replace('127.0.0.1', 'localhost'), {})).toContain('Failed to fetch');
  });
});

/** Returns a parameter for each value, with all characters encoded except RFC 3986's unreserved ones. */
function encoded(name: string, value: unknown): string {
  return [value]
    .flat()
    .map((one) => `${name}=${encodeURIComponent(String(one))}`)
    .join('&');
}

async function choose(parameter: string, example: string, value: unknown) {
  const button = row(parameter).locator(`button[data-example="${example}"]`);
  if (await button.count()) return button.click();
  for (const one of [value].flat()) await choice(parameter, String(one)).check();
}

/** Returns the lightness of these elements' backgrounds, from 0 to 255, except for transparent ones. */
function backgroundsOf(selector: string): Promise<number[]> {
  return page.evaluate<number[]>(`
    Array.from(document.querySelectorAll('${selector}'), (element) => getComputedStyle(element).backgroundColor)
      .filter((color) => color.startsWith('rgb('))
      .map((color) => Math.max(...color.match(/\\d+/g)))`);
}

async function isInView(element: Locator): Promise<boolean> {
  const [box, size] = [await element.boundingBox(), page.viewportSize()];
  return !!box && !!size && box.y >= 0 && box.y + box.height <= size.height;
}

/** Returns the cumulative layout shift (CLS), a fraction of the window. */
function layoutShift(): Promise<number> {
  return page.evaluate<number>(`(() => {
    const observer = new PerformanceObserver(() => {});
    observer.observe({ type: 'layout-shift', buffered: true });
    return observer.takeRecords().reduce((sum, { value, hadRecentInput }) => sum + (hadRecentInput ? 0 : value), 0);
  })()`);
}

/** Takes the pictures in docs/images, only if SCREENSHOTS=1: they differ slightly each time. */
async function screenshot(name: string) {
  if (process.env.SCREENSHOTS !== '1') return;
  const folder = join(packageFolder, 'docs', 'images');
  await mkdir(folder, { recursive: true });
  await page.screenshot({ path: join(folder, name) });
}
