/** The documentation in a real browser. */
import type { Locator } from 'playwright-core';
import { describe, expect, test } from 'vitest';
import { sample } from '../../clients/live/samples.js';
import type { BrandedPhoneNumberPage } from '../../generated/types/models/index.js';
import { contract, parameters, resolve } from '../../src/contract.js';
import { createApiKey } from '../../src/keys/keys.js';
import { useService } from '../support/service.js';
import { until } from '../support/until.js';
import {
  accessibilityProblems,
  choice,
  execute,
  field,
  followProblem,
  ignorePageErrors,
  listen,
  openDocs,
  operationIsShown,
  page,
  path,
  press,
  queryOf,
  row,
  send,
  sending,
  showDocs,
  statusShown,
  url,
  usePage,
} from './page.js';

usePage();
const withKeys = useService({ AUTH: 'api-key', PUBLIC_URL: 'https://numbers.example/telephony' });

describe('the documentation', () => {
  test('shows the name of the API, and no fields for documents, servers or keys', async () => {
    await openDocs();
    expect(await page.locator('h1, h2').first().textContent()).toContain('Branded Phone Numbers');
    expect(await page.locator('.topbar, .download-url-input, .servers, .btn.authorize').count()).toBe(0);
  });

  test('describes the bounds and lists the values of each parameter', async () => {
    await showDocs();
    for (const { name, schema } of parameters.values()) {
      const words = await row(name).locator('.parameter-words').textContent();
      const item = schema.items ? resolve(schema.items) : schema;
      expect(words).toContain(schema.items ? `up to ${schema.maxItems} times` : 'once');
      if (item.minimum !== undefined) expect(words).toContain(`${item.minimum} to ${item.maximum}`);
      if (item.default !== undefined) expect(words).toContain(`default ${item.default}`);
      if (item.maxLength !== undefined) expect(words).toMatch(new RegExp(`\\b${item.maxLength} characters`));
      for (const value of item.enum ?? []) expect(await choice(name, value).count()).toBe(1);
    }
  });

  test('begins with the first sample of each client’s README, with this service’s URL', async () => {
    await openDocs();
    const shown = page.locator('.start pre');
    const [, curlUrl = ''] = /'(.*)'/.exec((await shown.textContent()) ?? '') ?? [];
    expect((await fetch(curlUrl)).status).toBe(200);
    for (const [language, block] of Object.entries({ TypeScript: 'js', Python: 'python', Java: 'java', Go: 'go' })) {
      await page.getByRole('button', { name: language, exact: true }).click();
      const program = sample(language.toLowerCase(), block, url).replaceAll('\t', '    ').trim();
      await until(async () => (await shown.last().textContent())?.trim() === program, `the program in ${language}`);
    }
  });

  test('collapses rare responses', async () => {
    await openDocs();
    const body = (status: number) => page.locator(`tr[data-code="${status}"] pre`).first();
    for (const status of [200, 400, 429]) expect([status, await body(status).isVisible()]).toEqual([status, true]);
    for (const status of [401, 404, 503]) {
      expect([status, await body(status).isVisible()]).toEqual([status, false]);
      await page.locator(`tr[data-code="${status}"] summary`).click();
      expect([status, await body(status).isVisible()]).toEqual([status, true]);
    }
  });

  test('works behind a path prefix, and has no broken links', async () => {
    const behindPrefix = await listen('/telephony', withKeys);
    const start = `${behindPrefix.url}/docs`;
    const seen = new Set([start]);
    try {
      // The loop adds links to the set that it iterates.
      for (const url of seen) {
        const outcome = await fetch(url);
        expect([url, outcome.status]).toEqual([url, 200]);
        expect(`${outcome.url}/`).toContain(`${behindPrefix.url}/`);
        if (!outcome.headers.get('content-type')?.startsWith('text/html')) continue;
        await page.goto(url);
        if (url === start) {
          await operationIsShown();
          expect((await execute()).url().split('?')[0]).toBe(behindPrefix.url + path);
          expect(await statusShown()).toBe('401');
          const problem = page.locator('.live-response pre a', { hasText: '/telephony/problems/unauthorized' });
          expect(await problem.first().getAttribute('href')).toBe(`${behindPrefix.url}/problems/unauthorized`);
          ignorePageErrors('401');
        }
        const links = await page.evaluate<string[]>('Array.from(document.links, ({ href }) => href.split("#")[0])');
        for (const link of links) if (new URL(link).hostname === '127.0.0.1') seen.add(link);
      }
      expect([...seen].filter((url) => url.includes('/problems/'))).toHaveLength(
        Object.keys(contract['x-problems']).length,
      );
      // No page links to this one.
      await page.goto(`${behindPrefix.url}/problems/no-such-problem`);
      await page.click('text=All problems');
      await page.waitForLoadState();
      expect(page.url()).toBe(`${behindPrefix.url}/problems`);
      ignorePageErrors('404');
    } finally {
      await behindPrefix.close();
    }
  });
});

describe('the sample requests', () => {
  /** The requests of the specification. */
  const shapes: [name: string, query: string | undefined][] = [
    ['All numbers', undefined],
    ['One number', 'phoneNumber=%2B14155550123'],
    ['In review', 'status=submitted%20for%20review'],
    ['Approved or rejected', 'status=approved&status=rejected'],
    ['Branding approved at AT&T', 'carrier=AT%26T&feature=brandedCallerId&status=approved.optIn'],
    ['Spam remediation approved', 'feature=spamRemediation&status=approved.optIn'],
  ];

  test('send the filters that they name, and clear all other fields', async () => {
    await showDocs();
    expect(await page.locator('.requests button').allTextContents()).toEqual(shapes.map(([name]) => name));
    for (const [name, query] of shapes) {
      await field('internalName').fill('left from before');
      expect([name, await queryOf(send(name))]).toEqual([name, query]);
      expect(await statusShown()).toBe('200');
      // The fields show the query that was sent.
      for (const [parameter, value] of new URLSearchParams(query)) {
        if (await choice(parameter, value).count()) expect(await choice(parameter, value).isChecked()).toBe(true);
        else expect(await field(parameter).inputValue()).toBe(value);
      }
      expect(await field('internalName').inputValue()).toBe('');
    }
  });

  test('lead to the next page until the last one', async () => {
    await showDocs();
    const filters = (await queryOf(send('Branding approved at AT&T'))) ?? '';
    const next = page.getByRole('button', { name: 'Next page' });
    const seen = new Set<string>();
    for (let pages = 0; pages < 10; pages++) {
      const numbers =
        (await page.locator('.live-response pre', { hasText: '"items"' }).textContent())?.match(/"\+\d+"/g) ?? [];
      for (const number of numbers) seen.add(number);
      if (!(await next.isVisible())) break;
      expect((await queryOf(press(next)))?.replace(/^nextCursor=[\w-]+&/, '')).toBe(filters);
      expect(await statusShown()).toBe('200');
    }
    const all = await fetch(`${url}${path}?${filters}&size=100`);
    expect(seen.size).toBe(((await all.json()) as BrandedPhoneNumberPage).items.length);
  });
});

describe('the keyboard', () => {
  /** Presses Tab until `target` has the focus, at most `limit` times, and calls `afterEachPress`. */
  async function tabTo(target: Locator, limit: number, afterEachPress?: () => Promise<void>) {
    for (let presses = 1; presses <= limit; presses++) {
      await page.keyboard.press('Tab');
      await afterEachPress?.();
      if (await target.evaluate((element) => element === element.ownerDocument.activeElement)) return;
    }
    throw new Error(`${target} is more than ${limit} presses away`);
  }

  /** Returns the focused element if it is invisible: without an outline or a size, outside the window, or covered. */
  const hiddenFocus = () =>
    page.evaluate<string | null>(`(() => {
      const focused = document.activeElement;
      const { outlineStyle, outlineWidth } = getComputedStyle(focused);
      const { left, right, top, bottom } = focused.getBoundingClientRect();
      const x = (Math.max(left, 0) + Math.min(right, innerWidth)) / 2;
      const y = (Math.max(top, 0) + Math.min(bottom, innerHeight)) / 2;
      const isOutlined = outlineStyle !== 'none' && parseFloat(outlineWidth) > 2;
      return isOutlined && right > left && focused.contains(document.elementFromPoint(x, y)) ? null : focused.outerHTML;
    })()`);

  test.each(['dark', 'light'] as const)('has a visible focus on every element of the %s page', async (colorScheme) => {
    await page.emulateMedia({ colorScheme });
    await openDocs();
    const last = page.locator('.models-control');
    const hidden: string[] = [];
    await tabTo(last, 150, async () => {
      const focused = await hiddenFocus();
      if (focused) hidden.push(focused);
    });
    expect(hidden).toEqual([]);
  });

  test('sends a request by a button, and scrolls the response', async () => {
    await openDocs();
    await tabTo(page.getByRole('button', { name: 'In review' }), 20);
    expect(await queryOf(sending(() => page.keyboard.press('Enter')))).toBe('status=submitted%20for%20review');
    await tabTo(page.getByRole('button', { name: 'Next page' }), 1);
    const body = page.locator('.live-response pre', { hasText: '"items"' });
    await tabTo(body, 10);
    const end = () => body.evaluate((element) => element.scrollTop + element.clientHeight + 1 >= element.scrollHeight);
    expect(await end()).toBe(false);
    await page.keyboard.press('End');
    await until(end, 'the end of the response is in view');
  });

  test('fills in parameters and sends them', async () => {
    await openDocs();
    await tabTo(field('size'), 30);
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
  const examples = [...parameters].map(([name, { examples = {} }]) => ({ name, examples: Object.entries(examples) }));

  const maxExamples = Math.max(...examples.map(({ examples: all }) => all.length));
  test.each([...Array(maxExamples).keys()])(
    'encodes and sends example %i of each parameter that has it',
    async (index) => {
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
    },
  );

  test('omits parameters that are empty or were cleared', async () => {
    await openDocs();
    expect(await queryOf(execute())).toBeUndefined();
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

  test('replaces the previous response by the problem if a value is invalid', async () => {
    await showDocs();
    await send('One number');
    const outcome = page.locator('.live-response');
    expect(await outcome.textContent()).toContain('"phoneNumber": "+14155550123"');
    await field('phoneNumber').fill('4155550123');
    await field('size').fill('101');
    await execute();
    expect(await statusShown()).toBe('400');
    const text = await outcome.textContent();
    expect(text).toContain('must be a page size from 1 to 100');
    expect(text).toContain('is not a phone number in E.164');
    expect(text).not.toContain('"items"');
    expect(await page.locator('.validation-errors').count()).toBe(0);
    await followProblem('Invalid Request');
  });

  test('sends the key that was entered, until the page is closed', async () => {
    const { key } = await createApiKey(withKeys.database, 'browser', { businessProfileIds: null });
    const listening = await listen('', withKeys);
    const open = async () => {
      await page.goto(`${listening.url}/docs`);
      await operationIsShown();
    };
    try {
      await open();
      expect(await page.locator('.start pre').textContent()).toContain('curl --header "Authorization: Bearer $KEY" ');
      await page.getByRole('button', { name: 'All numbers' }).click();
      expect(await accessibilityProblems()).toEqual([]);
      const bearer = page.locator('.auth-container', { hasText: '(http, Bearer)' });
      await bearer.locator('input').fill(key);
      await bearer.locator('.auth-btn-wrapper .authorize').click();
      await page.click('.btn-done');
      expect((await execute()).headers().authorization).toBe(`Bearer ${key}`);
      expect(await statusShown()).toBe('200');
      await open();
      expect((await execute()).headers().authorization).toBeUndefined();
      expect(await statusShown()).toBe('401');
      ignorePageErrors('401');
    } finally {
      await listening.close();
    }
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
