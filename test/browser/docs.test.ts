/** The documentation in a real browser. */
import { createServer } from 'node:http';
import { join } from 'node:path';
import type { Locator, Request, Route } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { sample } from '../../clients/live/samples.js';
import type { BrandedPhoneNumberPage } from '../../generated/types/models/index.js';
import { parameters, resolve } from '../../src/contract.js';
import { createApiKey } from '../../src/keys/keys.js';
import { timesWords, valueWords } from '../../src/messages/parameterWords.js';
import { packageFolder } from '../../src/packageFolder.js';
import { hasNginx, startNginx } from '../service/http/nginx.js';
import { freePort } from '../support/port.js';
import { useService } from '../support/service.js';
import { repeat, until } from '../support/until.js';
import {
  accessibilityProblems,
  choice,
  clearForm,
  desktop,
  execute,
  field,
  hold,
  ignorePageErrors,
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
  tabText,
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
  const shown = () => page.locator('#programs pre:visible').last();
  const language = (within: string, name: string) =>
    page.locator(within).getByRole('button', { name, exact: true }).click();

  test('are the first of each client’s README, with this service’s address', async () => {
    await openDocs();
    const [, curlUrl = ''] = /'(.*)'/.exec((await shown().textContent()) ?? '') ?? [];
    expect((await fetch(curlUrl)).status).toBe(200);
    for (const [name, block] of Object.entries({ TypeScript: 'js', Python: 'python', Java: 'java', Go: 'go' })) {
      await language('#programs', name);
      expect((await shown().textContent())?.trim()).toBe(sample(name.toLowerCase(), block, url).trim());
    }
  });

  test('are in the language that was last chosen, also in the console and at the next visit', async () => {
    await openDocs();
    await language('#response', 'Python');
    expect(await shown().textContent()).toContain('from branded_phone_numbers_client');
    await language('#programs', 'Go');
    expect(await panel().locator('pre:visible').textContent()).toContain('package main');
    await page.reload();
    expect(await shown().textContent()).toContain('package main');
    await page.evaluate('localStorage.clear()');
  });

  test('can be copied', async () => {
    await openDocs();
    const copied = async (within: string) => {
      await page.locator(`${within} .top`).getByRole('button', { name: 'Copy', exact: true }).click();
      await page.locator(within).getByRole('button', { name: 'Copied' }).waitFor();
      return page.evaluate<string>('navigator.clipboard.readText()');
    };
    await language('#response', 'curl');
    expect(await copied('#response')).toBe(`curl '${url}${path}?status=submitted+for+review'`);
    await language('#programs', 'Java');
    expect((await copied('#programs')).trim()).toBe(sample('java', 'java', url).trim());
    await page.evaluate('localStorage.clear()');
  });
});

describe('the contents of /docs', () => {
  const links = () => page.getByRole('navigation', { name: 'On this page' }).getByRole('link');
  const current = () => page.locator('.contents [aria-current]').allTextContents();

  test('stay in view, and say which section is', async () => {
    await openDocs();
    const names = await links().allTextContents();
    expect(await current()).toEqual(names.slice(0, 1));
    for (const [index, name] of names.entries()) {
      await links().nth(index).click();
      await until(async () => (await current())[0] === name, `${name} is marked`);
      expect([name, await isInView(links().nth(index))]).toEqual([name, true]);
      if (name.includes('Swagger UI')) await swaggerIsShown();
    }
  });

  test('are behind a button on a phone, which says which section is in view', async () => {
    await page.setViewportSize({ width: 390, height: 844 });
    await openDocs();
    const button = page.getByRole('button', { name: 'On this page' });
    expect(await links().count()).toBe(0);
    await button.click();
    await page.keyboard.press('Escape');
    expect(await links().count()).toBe(0);
    await button.click();
    for (const link of await links().all()) expect(await isInView(link)).toBe(true);
    await links().filter({ hasText: 'Responses' }).click();
    await page.getByRole('button', { name: 'On this page: Responses' }).waitFor();
    expect([await isInView(button), await links().count()]).toEqual([true, 0]);
    expect(await isInView(page.locator('#responses h2'))).toBe(true);
    await page.setViewportSize(desktop);
  });
});

test.each(['parameter-status', 'page-items-carrierStatuses-detailedStatus', 'problem-errors', 'response-429'])(
  'the address /docs#%s leads to a row, which is marked, below the bar',
  async (id) => {
    await page.goto(`${url}/docs#${id}`);
    const row = page.locator(`#${id}:target`);
    expect(await isInView(row)).toBe(true);
    expect(await lightnessOf(`#${id}`)).toHaveLength(1);
    const bar = await page.locator('.bar').boundingBox();
    expect((await row.boundingBox())?.y).toBeGreaterThanOrEqual(bar?.height ?? Number.NaN);
    expect(await row.locator('dt a').getAttribute('href')).toBe(`#${id}`);
  },
);

describe('the console of /docs', () => {
  test('sends requests without Swagger UI, and shows their responses', async () => {
    const loaded: string[] = [];
    const note = (request: Request) => void loaded.push(new URL(request.url()).pathname);
    page.on('request', note);
    await openDocs();
    const names = await page.locator('.request button').allTextContents();
    expect(names).toEqual([...SHAPES.map(([name]) => name), 'A misspelled parameter']);
    for (const [name, query] of SHAPES) {
      expect([name, await queryOf(send(name))]).toEqual([name, query]);
      expect(await statusShown()).toBe('200 OK');
      expect(await page.getByLabel('Query').inputValue()).toBe(query ?? '');
      expect(await panel().getByRole('status').textContent()).toMatch(
        / \d+ ms · \d+ numbers? · \d more requests? this second$/,
      );
      expect(await tabText('curl')).toBe(`curl '${url}${path}${query ? `?${query}` : ''}'`);
      expect(await tabText('Headers')).toMatch(/RateLimit: "default";r=\d/);
      expect(await panel().locator('pre:visible').textContent()).toContain('"phoneNumber": "+1');
    }
    page.off('request', note);
    expect(loaded.filter((name) => name.includes('swagger'))).toEqual([]);
  });

  test('shows an example of the contract before the first request', async () => {
    await openDocs();
    expect(await panel().getByRole('status').textContent()).toContain('An example.');
    expect(await panel().locator('pre:visible').textContent()).toContain('"status": "submitted for review"');
  });

  test('shows the same numbers again if they have not changed', async () => {
    await openDocs();
    await send('All numbers');
    const first = await tabText('Body');
    const etag = /ETag: (W\S+)/.exec(await tabText('Headers'))?.[1];
    expect((await send('One number')).headers()['if-none-match']).toBeUndefined();
    expect((await send('All numbers')).headers()['if-none-match']).toBe(etag);
    expect(await statusShown()).toBe('304 Not Modified');
    expect(await panel().getByRole('status').textContent()).toContain('unchanged since you last sent it · 25 numbers');
    expect(await tabText('Headers')).toContain(`\nIf-None-Match: ${etag}\n`);
    expect(await tabText('Body')).toBe(first);
    expect(await tabText('curl')).toBe(`curl '${url}${path}'`);
    expect(await queryOf(press(page.getByRole('button', { name: 'Next page' })))).toMatch(/^nextCursor=/);
    // The browser's own cache sends none either: the request that is shown is the one that was sent.
    await page.reload();
    expect(await (await send('All numbers')).allHeaders()).not.toHaveProperty('if-none-match');
  });

  test.each([
    ['', ['eachNumber(api)', 'each_number(api)', '\n        .build()', '(context.Background())\n']],
    [
      'status=submitted+for+review&status=approved.optIn&size=5',
      [
        "(api, { status: ['submitted for review', 'approved.optIn'], size: 5 })",
        '(api, status=["submitted for review", "approved.optIn"], size=5)',
        '.status(List.of(StatusFilter.SUBMITTED_FOR_REVIEW, StatusFilter.APPROVED_OPT_IN)).size(5).build()',
        'Status([]client.StatusFilter{client.STATUSFILTER_SUBMITTED_FOR_REVIEW, client.STATUSFILTER_APPROVED_OPT_IN}).Size(5)',
      ],
    ],
    [
      'internalName=O%27Neil+%22A%22&businessProfileId=6513270e-269e-4d37-b2a7-4de452e6b438&detailedStatus=pending.initialOptIn',
      [
        `internalName: ['O\\'Neil "A"'], businessProfileId: '6513270e-269e-4d37-b2a7-4de452e6b438', detailedStatus: [`,
        'internal_name=["O\'Neil \\"A\\""], business_profile_id="6513270e-269e-4d37-b2a7-4de452e6b438", detailed_status=[',
        'businessProfileId(java.util.UUID.fromString("6513270e-269e-4d37-b2a7-4de452e6b438")).detailedStatus(List.of(DetailedStatus.PENDING_INITIAL_OPT_IN))',
        'InternalName([]string{"O\'Neil \\"A\\""}).BusinessProfileId("6513270e-269e-4d37-b2a7-4de452e6b438").DetailedStatus([]client.DetailedStatus{client.DETAILEDSTATUS_PENDING_INITIAL_OPT_IN})',
      ],
    ],
    [
      'internalName=a%0A%5C%22',
      [
        `internalName: ['a\\n\\\\"']`,
        'internal_name=["a\\n\\\\\\""]',
        'internalName(List.of("a\\n\\\\\\""))',
        'InternalName([]string{"a\\n\\\\\\""})',
      ],
    ],
  ])('shows the query "%s" as a program in each language', async (query, programs) => {
    await openDocs();
    await page.getByLabel('Query').fill(query);
    for (const [index, language] of ['TypeScript', 'Python', 'Java', 'Go'].entries())
      expect(await tabText(language)).toContain(programs[index]);
  });

  test.each([
    ['carier=AT%26T', 'The clients have no parameter carier.'],
    ['status=aproved', 'The clients have no status “aproved”.'],
    ['size=5&size=6', 'The clients send size only once.'],
    ['size=x', 'size must be a number.'],
  ])('says why no client sends the query %s', async (query, reason) => {
    await openDocs();
    await page.getByLabel('Query').fill(query);
    for (const language of ['TypeScript', 'Python', 'Java', 'Go']) expect(await tabText(language)).toBe(reason);
  });

  test.each([
    ['{"detail":"upstream is away","errors":"none"}', 'upstream is away'],
    ['{"title":"Bad Gateway","detail":"away","errors":[null,"x",{"detail":1}]}', 'away'],
    ['{"detail":{"reason":"away"},"type":7,"nextCursor":5}', ''],
    ['null', ''],
    ['<h1>502 Bad Gateway</h1>', ''],
  ])('shows what a gateway sends: %s', async (body, words) => {
    await openDocs();
    const gateway = (route: Route) => route.fulfill({ status: 502, headers: { 'X-Request-Id': 'gateway' }, body });
    await page.route(`**${path}*`, gateway);
    await send('In review');
    await page.unroute(`**${path}*`);
    ignorePageErrors('502');
    expect(await statusShown()).toContain('502');
    expect(await panel().locator('.outcome').textContent()).toContain(words);
    expect((await tabText('Body')).replace(/\s/g, '')).toBe(body.replace(/\s/g, ''));
  });

  test('shows the response to the last request, also if an earlier one arrives after it', async () => {
    await openDocs();
    const release = await hold('**?phoneNumber=*');
    const late = page.waitForResponse('**?phoneNumber=*');
    await page.locator('.requests').getByRole('button', { name: 'One number' }).click();
    await send('In review');
    release();
    await (await late).finished();
    // The page has read that response when the next one is shown.
    await page.evaluate(`fetch('openapi.json').then((response) => response.text())`);
    expect(await tabText('Headers')).toContain('?status=submitted+for+review');
  });

  test('leads to the next page until the last one', async () => {
    await openDocs();
    const filters = (await queryOf(send('Branding approved at AT&T'))) ?? '';
    const next = page.getByRole('button', { name: 'Next page' });
    const seen = new Set<string>();
    for (let pages = 0; pages < 10; pages++) {
      for (const number of (await tabText('Body')).match(/"\+\d+"/g) ?? []) seen.add(number);
      if (!(await next.isVisible())) break;
      expect((await queryOf(press(next)))?.replace(/&nextCursor=[\w-]+$/, '')).toBe(filters);
      expect(await statusShown()).toBe('200 OK');
    }
    const all = await fetch(`${url}${path}?${filters}&size=100`);
    expect(seen.size).toBe(((await all.json()) as BrandedPhoneNumberPage).items.length);
  });

  test('shows every fault of the reader’s own query, and leads to the problem’s page', async () => {
    await openDocs();
    await send('One number');
    await page.getByLabel('Query').fill('phoneNumber=4155550123&size=101');
    expect(await queryOf(sending(() => page.keyboard.press('Enter')))).toBe('phoneNumber=4155550123&size=101');
    expect(await statusShown()).toBe('400 Invalid Request');
    const faults = await panel().locator('li').allTextContents();
    expect(faults).toEqual([
      'size must be a page size from 1 to 100',
      expect.stringMatching(/^phoneNumber .* is not a phone number in E.164/),
    ]);
    expect(await tabText('Body')).not.toContain('"items"');
    await panel().getByRole('link').click();
    expect(await page.locator('h1').textContent()).toBe('Invalid Request');
  });

  test('shows a 429, and how long to wait', async () => {
    await openDocs();
    const stop = repeat(4, () => fetch(`${url}${path}?size=0`));
    await until(async () => {
      await send('One number');
      return (await statusShown()) === '429 Rate Limit Exceeded';
    }, 'the limit is reached');
    await stop();
    expect(await panel().getByRole('status').textContent()).toContain('retry in 1 s');
    expect(await tabText('Headers')).toContain('Retry-After: 1');
  });

  test('says that the service did not respond', async () => {
    await openDocs();
    await page.context().setOffline(true);
    await page.locator('.requests').getByRole('button', { name: 'In review' }).click();
    await panel().getByText('No response').waitFor();
    await page.context().setOffline(false);
    ignorePageErrors('ERR_INTERNET_DISCONNECTED');
  });

  test.runIf(hasNginx)('reaches the service behind a path prefix, with Swagger UI and links to problems', async () => {
    const prefixed = `http://127.0.0.1:${await freePort()}/numbers`;
    const stop = await startNginx(Number(new URL(prefixed).port), url);
    try {
      await page.goto(`${prefixed}/docs`);
      await page.getByLabel('Query').fill('size=0');
      const sent = await sending(() => page.keyboard.press('Enter'));
      expect(sent.url()).toBe(`${prefixed}${path}?size=0`);
      await swaggerIsShown();
      expect((await execute()).url()).toBe(prefixed + path);
      await panel().getByRole('link').click();
      await page.waitForURL(`${prefixed}/problems/invalid-request`);
    } finally {
      await stop();
    }
  });
});

describe('with AUTH=api-key, /docs', () => {
  const keyField = () => page.getByRole('dialog', { name: 'API key' }).getByLabel('Your API key');

  test('asks for the key, sends the pressed request with it, and forgets it if it is rejected', async () => {
    const { key } = await createApiKey(withKeys.database, 'browser', { businessProfileIds: null });
    await page.goto(`${withKeys.url}/docs`);
    expect(await page.locator('#programs pre:visible').textContent()).toContain(
      '--header "Authorization: Bearer $KEY" ',
    );
    const inReview = page.locator('.requests').getByRole('button', { name: 'In review' });
    await inReview.click();
    expect(await keyField().getAttribute('type')).toBe('password');
    expect(await keyField().evaluate((field) => field === field.ownerDocument.activeElement)).toBe(true);
    await expectAccessible('dialog');
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
    expect(await tabText('Headers')).toContain('\nAuthorization: Bearer $KEY\n');
    expect((await send('One number')).headers().authorization).toBe(`Bearer ${key}`);

    await swaggerIsShown();
    expect(await page.locator('.btn.authorize').count()).toBe(0);
    expect((await execute()).headers().authorization).toBe(`Bearer ${key}`);
    expect(await page.locator('.curl').textContent()).toContain('--header "Authorization: Bearer $KEY" ');
    expect(await page.content()).not.toContain(key);
  });

  test('asks again after the page was loaded again, and sends nothing if the reader cancels', async () => {
    const { key } = await createApiKey(withKeys.database, 'another browser', { businessProfileIds: null });
    const sent: string[] = [];
    const note = (request: Request) => void sent.push(new URL(request.url()).pathname);
    await page.goto(`${withKeys.url}/docs`);
    await swaggerIsShown();
    page.on('request', note);
    onTestFinished(() => void page.off('request', note));
    for (const button of [page.locator('button.execute'), page.locator('.ask button')]) {
      await button.click();
      await page.getByRole('button', { name: 'Cancel' }).click();
      // The button can be pressed again: nothing is under way.
      await button.click();
      await page.keyboard.press('Escape');
    }
    await page.evaluate(`fetch('openapi.json').then((response) => response.text())`);
    expect(sent.filter((name) => name === path)).toEqual([]);
    await page.locator('button.execute').click();
    await keyField().fill(key);
    expect((await sending(() => page.keyboard.press('Enter'))).headers().authorization).toBe(`Bearer ${key}`);
  });
});

describe('Swagger UI', () => {
  const examples = [...parameters].map(([name, { examples = {} }]) => ({ name, examples: Object.entries(examples) }));
  const maxExamples = Math.max(...examples.map(({ examples: all }) => all.length));

  // One load for all of these tests: it costs a second of CPU.
  beforeAll(openWithSwagger);
  beforeEach(clearForm);

  test('collapses the responses until one was received', async () => {
    const described = page.locator('tr[data-code="429"] pre').first();
    expect(await described.isVisible()).toBe(false);
    await page.locator('details > summary').click();
    expect(await described.isVisible()).toBe(true);
    await page.locator('details > summary').click();
    await execute();
    expect(await page.locator('.live-responses-table').isVisible()).toBe(true);
  });

  test.each([...Array(maxExamples).keys()])('sends example %i of each parameter that has it', async (index) => {
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
    await field('size').fill('101');
    expect(await queryOf(execute())).toBe('size=101');
    expect(await page.locator('.live-responses-table').textContent()).toContain('must be a page size from 1 to 100');
  });

  test('says the bounds of each parameter, and how often it may be given', async () => {
    for (const { name, schema } of parameters.values())
      expect(await row(name).textContent()).toContain(
        `${valueWords(resolve(schema.items ?? schema))}; ${timesWords(schema)}`,
      );
    expect(await row('size').textContent()).toContain('1 to 100, default 25; once');
  });
});

describe('with the keyboard alone, /docs', () => {
  /** Presses Tab until `target` has the focus, and calls `afterEachPress`. */
  async function tabTo(target: Locator, afterEachPress?: () => Promise<void>) {
    for (let presses = 1; presses <= 200; presses++) {
      await page.keyboard.press('Tab');
      await afterEachPress?.();
      if (await target.evaluate((element) => element === element.ownerDocument.activeElement)) return;
    }
    throw new Error(`${target} is more than 200 presses away`);
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

  test('sends a request by a button, and goes on to its response', async () => {
    await openDocs();
    await tabTo(page.locator('.requests').getByRole('button', { name: 'In review' }));
    expect(await queryOf(sending(() => page.keyboard.press('Enter')))).toBe('status=submitted+for+review');
    await tabTo(page.getByRole('button', { name: 'Next page' }));
    const body = panel().locator('[data-panel="Body"]');
    await tabTo(body);
    const end = () => body.evaluate((element) => element.scrollTop + element.clientHeight + 1 >= element.scrollHeight);
    expect(await end()).toBe(false);
    await page.keyboard.press('End');
    await until(end, 'the end of the response is in view');
    await tabTo(page.locator('#programs').getByRole('button', { name: 'curl' }));
  });

  describe('with Swagger UI', () => {
    // One load for all of these tests: it costs a second of CPU.
    beforeAll(async () => {
      await openWithSwagger();
      await send('In review');
    });
    beforeEach(() => page.evaluate('document.body.tabIndex = -1; document.body.focus()'));

    test.each(['dark', 'light'] as const)('has one visible stop for each control (%s)', async (colorScheme) => {
      await page.emulateMedia({ colorScheme });
      await swaggerFollows(colorScheme);
      const wrong: string[] = [];
      await tabTo(page.locator('#swagger-ui details > summary'), async () => {
        const html = await wrongFocus();
        if (html) wrong.push(html);
      });
      expect(wrong).toEqual([]);
    });

    test('fills in parameters and sends them', async () => {
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
});

const viewports = [desktop, { width: 768, height: 1024 }, { width: 390, height: 844 }];
const schemes = ['light', 'dark'] as const;
const looks = viewports.flatMap((viewport) => schemes.map((colorScheme) => ({ viewport, colorScheme })));

/** Waits until Swagger UI has the colors of the scheme, which it chooses by a class. */
async function swaggerFollows(colorScheme: 'light' | 'dark') {
  const root = colorScheme === 'dark' ? 'html.dark-mode' : 'html:not(.dark-mode)';
  await page.locator(root).waitFor({ state: 'attached' });
}

/** Expects the page, or its elements `within`, to be accessible, and to have the colors of the scheme, in every look. */
async function expectAccessible(within = 'html') {
  for (const { viewport, colorScheme } of looks) {
    await page.setViewportSize(viewport);
    await page.emulateMedia({ colorScheme });
    if ((await page.locator('.swagger-ui').count()) > 0) await swaggerFollows(colorScheme);
    const look = `${viewport.width} ${colorScheme}`;
    for (const lightness of await lightnessOf('body, .swagger-ui'))
      expect([look, lightness > 128]).toEqual([look, colorScheme === 'light']);
    // The schemes differ in nothing but colors.
    const rules = colorScheme === 'dark' ? ['color-contrast', 'link-in-text-block'] : undefined;
    const found = await accessibilityProblems(within, rules);
    expect([look, found]).toEqual([look, []]);
  }
  await page.setViewportSize(desktop);
}

/** Widths of windows in pixels. */
const WIDTHS = [320, 375, 640, 641, 768, 825, 960, 1024, 1025, 1280, 1440, 1920];

/** Expects the page not to scroll sideways, with lines of a readable length. */
async function expectToFit() {
  for (const [size, widths] of [
    ['100%', WIDTHS],
    ['200%', [390, 768, 1440]],
  ] as const) {
    await page.evaluate(`document.documentElement.style.fontSize = '${size}'`);
    for (const width of widths) {
      await page.setViewportSize({ width, height: 900 });
      const scrollWidth = await page.evaluate('document.documentElement.scrollWidth');
      expect([size, width, scrollWidth]).toEqual([size, width, width]);
      const longest = await page.evaluate<number>(
        `Math.max(...[...document.querySelectorAll('main p, dd, li')].map((text) => text.clientWidth))`,
      );
      if (size === '100%') expect(longest).toBeLessThanOrEqual(46 * 16);
    }
  }
  await page.setViewportSize(desktop);
}

describe('/docs, with responses', () => {
  // One load for both tests: it costs a second of CPU.
  beforeAll(async () => {
    await openWithSwagger();
    await execute();
  });

  test('is accessible in every width and color scheme, and with the pointer on what is chosen', async () => {
    await send('A misspelled parameter');
    await expectAccessible();
    await send('In review');
    await page.locator('#programs').getByRole('button', { name: 'Python' }).click();
    await page.evaluate('localStorage.clear()');
    // Nothing else has changed.
    await expectAccessible('.console, #programs');
    // Runs of axe take seconds of CPU on a busy machine.
  }, 240_000);

  test('does not scroll sideways in any width, also with text of twice the size', expectToFit);
});

describe('in every width and color scheme', () => {
  test.each(['/problems', '/problems/invalid-request', '/clients/README.md'])('%s is accessible', async (path) => {
    await page.goto(url + path);
    await expectAccessible();
  });

  test.each(viewports)('/docs shows a response in view, at $width pixels', async (viewport) => {
    await page.setViewportSize(viewport);
    // One load for both: it compiles Swagger UI.
    await openDocs();
    for (const colorScheme of schemes) {
      await page.emulateMedia({ colorScheme });
      await page.evaluate('scrollTo(0, 0)');
      const sending = page.locator('.ask button');
      expect(await isInView(sending)).toBe(true);
      await press(sending);
      for (const part of ['.outcome', '#response .top'])
        await until(() => isInView(page.locator(part)), `${part} is in view`);
      if (viewport === desktop && colorScheme === 'light') await takePicture();
    }
    await swaggerIsShown();
    expect(await layoutShift()).toBeLessThan(0.01);
    await page.setViewportSize(desktop);
  });
});

test.each(['/clients/README.md', '/clients/java/README.md', '/problems/misdirected-request'])(
  '%s does not scroll sideways in any width, also with text of twice the size',
  async (path) => {
    await page.goto(url + path);
    await expectToFit();
  },
);

test('/docs is printed whole, without what only works on a screen', async () => {
  await openDocs();
  await send('In review');
  await page.emulateMedia({ media: 'print' });
  const body = panel().locator('[data-panel="Body"]');
  expect(await body.evaluate((pre) => pre.scrollHeight - pre.clientHeight)).toBe(0);
  for (const part of ['.contents', '#explore', '.small'])
    expect([part, await page.locator(part).first().isVisible()]).toEqual([part, false]);
  const position = "getComputedStyle(document.querySelector('.bar')).position";
  expect(await page.evaluate(position)).toBe('static');
  await page.emulateMedia({ media: null });
});

test('with forced colors, /docs shows which tab, request and section is chosen', async () => {
  await page.emulateMedia({ forcedColors: 'active' });
  await openDocs();
  for (const [chosen, rest] of [
    ['#response .tab[aria-pressed="true"]', '#response .tab[aria-pressed="false"]'],
    ['.request:has([aria-pressed="true"])', '.request:has([aria-pressed="false"])'],
    ['.contents [aria-current]', '.contents a:not([aria-current])'],
  ]) {
    const [[color], others] = [await backgroundsOf(chosen as string), await backgroundsOf(rest as string)];
    expect([chosen, others.length > 0, others.includes(color as string)]).toEqual([chosen, true, false]);
  }
  await page.emulateMedia({ forcedColors: null });
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
async function lightnessOf(selector: string): Promise<number[]> {
  const colors = (await backgroundsOf(selector)).filter((color) => color.startsWith('rgb('));
  return colors.map((color) => Math.max(...(color.match(/\d+/g) ?? []).map(Number)));
}

function backgroundsOf(selector: string): Promise<string[]> {
  return page.evaluate<string[]>(
    `Array.from(document.querySelectorAll('${selector}'), (element) => getComputedStyle(element).backgroundColor)`,
  );
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

/** Takes the README's picture, only if SCREENSHOTS=1: it differs slightly each time. */
async function takePicture() {
  if (process.env.SCREENSHOTS !== '1') return;
  await page.evaluate('scrollTo(0, 0)');
  await page.screenshot({ path: join(packageFolder, 'docs', 'images', 'docs.png') });
}
