/** The documentation in a real browser. */
import { randomUUID } from 'node:crypto';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import express from 'express';
import type { Route } from 'playwright-core';
import { beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { sample } from '../../clients/live/samples.js';
import type { BrandedPhoneNumberPage } from '../../generated/types/models/index.js';
import { readConfig } from '../../src/config/config.js';
import { contract, parameters, resolve } from '../../src/contract.js';
import { createApiKey } from '../../src/keys/keys.js';
import { timesWords, valueWords } from '../../src/messages/parameterWords.js';
import { packageFolder } from '../../src/packageFolder.js';
import { docs } from '../../src/service/docs/docs.js';
import { hasNginx, startNginx } from '../service/http/nginx.js';
import { freePort } from '../support/port.js';
import { useService } from '../support/service.js';
import { repeat, until } from '../support/until.js';
import {
  backgroundsOf,
  choice,
  clearForm,
  execute,
  expectAccessible,
  expectExamples,
  expectNothingSent,
  expectResponseInView,
  expectToFit,
  field,
  hold,
  ignorePageErrors,
  isInView,
  keyField,
  lightnessOf,
  looks,
  openDocs,
  openSwagger,
  page,
  panel,
  path,
  press,
  queryOf,
  row,
  send,
  sending,
  statusShown,
  tabText,
  tabTo,
  url,
  usePage,
} from './page.js';

usePage();
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
    await language('#response', 'Code');
    await language('#response', 'Python');
    expect(await shown().textContent()).toContain('from branded_phone_numbers_client');
    await language('#programs', 'Go');
    expect(await panel().locator('pre:visible').textContent()).toContain('package main');
    await page.reload();
    expect(await shown().textContent()).toContain('package main');
    await send('In review');
    await language('#response', 'Code');
    expect(await panel().locator('pre:visible').textContent()).toContain('package main');
    await page.evaluate('localStorage.clear()');
  });

  test('have the address of the page, on every page, with a button that copies them', async () => {
    const file = `branded-phone-numbers-client-${contract.info.version}.tgz`;
    const packages = new Map([[file, () => {}]]);
    const server = express()
      .use(docs(readConfig({ HOST: '0.0.0.0', AUTH: 'none' }), packages))
      .listen(0);
    onTestFinished(() => void server.close());
    const address = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    for (const [path, block, command] of [
      ['docs', '.address', address],
      ['packages/', '.code', `npm install ${address}/packages/${file}`],
      ['clients/typescript/README.md', '.code', `npm install ${address}/packages/${file}`],
    ] as const) {
      await page.goto(`${address}/${path}`);
      expect(await page.locator('main').textContent()).not.toContain('localhost:3000');
      const place = page.locator(block).filter({ hasText: command }).first();
      await place.getByRole('button', { name: 'Copy' }).click();
      await place.getByRole('button', { name: 'Copied' }).waitFor();
      expect(await page.evaluate<string>('navigator.clipboard.readText()')).toContain(command);
    }
  });

  test('can be copied', async () => {
    await openDocs();
    const copied = async (within: string) => {
      await page.locator(`${within} .top`).getByRole('button', { name: 'Copy', exact: true }).click();
      await page.locator(within).getByRole('button', { name: 'Copied' }).waitFor();
      return page.evaluate<string>('navigator.clipboard.readText()');
    };
    await language('#response', 'Code');
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
    }
    // A bold title could wrap, and move those below it.
    const weights = "Array.from(document.querySelectorAll('.contents a'), (link) => getComputedStyle(link).fontWeight)";
    expect(new Set(await page.evaluate<string[]>(weights)).size).toBe(1);
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
    await links().filter({ hasText: 'Status codes' }).click();
    await page.getByRole('button', { name: 'On this page: Status codes' }).waitFor();
    expect([await isInView(button), await links().count()]).toEqual([true, 0]);
    expect(await isInView(page.locator('#responses h2'))).toBe(true);
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
  test('shows an example of the contract, and then sends requests, and shows their responses', async () => {
    await openDocs();
    expect(await panel().getByRole('status').textContent()).toContain('An example.');
    expect(await panel().locator('pre:visible').textContent()).toContain('"status": "submitted for review"');
    const next = `${await page.getByLabel('Query').inputValue()}&nextCursor=${JSON.parse(await tabText('Body')).nextCursor}`;
    expect((await fetch(`${url}${path}?${next}`)).status).toBe(200);
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
  });

  test('puts the last request into the address of the page, where another reader finds it', async () => {
    await page.goto(`${url}/docs#parameters`);
    await send('Branding approved at AT&T');
    const address = `${url}/docs#${path}?carrier=AT%26T&feature=brandedCallerId&status=approved.optIn`;
    expect(page.url()).toBe(address);
    const other = await page.context().newPage();
    await other.goto(address);
    expect(await other.getByLabel('Query').inputValue()).toBe(address.split('?')[1]);
    expect(await other.locator('.request [aria-pressed="true"]').textContent()).toBe('Branding approved at AT&T');
    // Another address in the same window, with characters that an address encodes.
    await other.evaluate(`location.hash = '${path}?internalName=a b%2B"Ü"#1'`);
    await until(async () => (await other.getByLabel('Query').inputValue()).startsWith('internalName'), 'it is shown');
    expect(new URLSearchParams(await other.getByLabel('Query').inputValue()).get('internalName')).toBe('a b+"Ü"#1');
    await other.evaluate(`location.hash = '${path}'`);
    await until(async () => (await other.getByLabel('Query').inputValue()) === '', 'it is empty');
    await other.evaluate(`location.hash = 'problem'`);
    expect(await other.locator('.request [aria-pressed="true"]').textContent()).toBe('All numbers');
    await other.close();
  });

  test('says whose response is shown if it is not that of the request', async () => {
    await openDocs();
    const query = page.getByLabel('Query');
    /** Expects a line with these words above the response, and no other. */
    const expectLine = async (words: string) => {
      await panel().getByText(words).waitFor();
      expect(await panel().locator('.outcome:visible, .stale:visible:not(:empty)').count()).toBe(1);
    };
    await query.fill('size=5');
    await expectLine('The response to another request: status=submitted+for+review.');
    await send('All numbers');
    await page.getByRole('link', { name: 'detailedStatus=approved.optIn' }).click();
    await expectLine('The response to another request: no filter.');
    expect([await isInView(query), await query.inputValue()]).toEqual([true, 'detailedStatus=approved.optIn']);
    await page.goBack();
    await expectLine('200 OK');
    await page.goForward();
    const release = await hold('**?detailedStatus=*');
    const responded = sending(() => query.press('Enter'));
    await expectLine('Waiting for the response');
    release();
    await responded;
    await expectLine('200 OK');
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

  describe('once loaded', () => {
    beforeAll(openDocs);

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
        'internalName=O%27Neil+%22A%22%0A%5C&businessProfileId=6513270e-269e-4d37-b2a7-4de452e6b438&detailedStatus=pending.initialOptIn',
        [
          `internalName: ['O\\'Neil "A"\\n\\\\'], businessProfileId: '6513270e-269e-4d37-b2a7-4de452e6b438', detailedStatus: [`,
          'internal_name=["O\'Neil \\"A\\"\\n\\\\"], business_profile_id="6513270e-269e-4d37-b2a7-4de452e6b438", detailed_status=[',
          'internalName(List.of("O\'Neil \\"A\\"\\n\\\\")).businessProfileId(java.util.UUID.fromString("6513270e-269e-4d37-b2a7-4de452e6b438")).detailedStatus(List.of(DetailedStatus.PENDING_INITIAL_OPT_IN))',
          'InternalName([]string{"O\'Neil \\"A\\"\\n\\\\"}).BusinessProfileId("6513270e-269e-4d37-b2a7-4de452e6b438").DetailedStatus([]client.DetailedStatus{client.DETAILEDSTATUS_PENDING_INITIAL_OPT_IN})',
        ],
      ],
    ])('shows the query "%s" as a program in each language', async (query, programs) => {
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
      const headers = { 'X-Request-Id': randomUUID() };
      const gateway = (route: Route) => route.fulfill({ status: 502, headers, body });
      await page.route(`**${path}*`, gateway);
      await send('In review');
      await page.unroute(`**${path}*`);
      ignorePageErrors('502');
      expect(await statusShown()).toContain('502');
      expect(await panel().locator('.outcome').textContent()).toContain(words);
      expect((await tabText('Body')).replace(/\s/g, '')).toBe(body.replace(/\s/g, ''));
    });

    test('shows the response to the last request, also if an earlier one arrives after it', async () => {
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

    test('shows a 429, and how long to wait', async () => {
      const stop = repeat(4, () => fetch(`${url}${path}?size=0`));
      await until(async () => {
        await send('One number');
        return (await statusShown()) === '429 Rate Limit Exceeded';
      }, 'the limit is reached');
      await stop();
      expect(await panel().getByRole('status').textContent()).toContain('retry in 1 s');
      expect(await tabText('Headers')).toContain('Retry-After: 1');
      // Otherwise, the tests that follow would be refused, too.
      await sleep(1000);
    });

    test('says that the service did not respond', async () => {
      await page.context().setOffline(true);
      await page.locator('.requests').getByRole('button', { name: 'In review' }).click();
      await panel().getByText('No response').waitFor();
      await page.context().setOffline(false);
      ignorePageErrors('ERR_INTERNET_DISCONNECTED');
    });

    test('shows every fault of the reader’s own query, and leads to the problem’s page', async () => {
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
  });

  test.runIf(hasNginx)('reaches the service behind a path prefix, and leads to problems', async () => {
    const prefixed = `http://127.0.0.1:${await freePort()}/numbers`;
    const stop = await startNginx(Number(new URL(prefixed).port), url);
    try {
      await page.goto(`${prefixed}/docs`);
      expect(await page.locator('.address code').textContent()).toBe(prefixed);
      await page.getByLabel('Query').fill('size=0');
      const sent = await sending(() => page.keyboard.press('Enter'));
      expect(sent.url()).toBe(`${prefixed}${path}?size=0`);
      await panel().getByRole('link').click();
      await page.waitForURL(`${prefixed}/problems/invalid-request`);
    } finally {
      await stop();
    }
  });
});

describe('with AUTH=api-key, /docs', () => {
  test('asks for the key, sends the pressed request with it, and forgets it if it is rejected', async () => {
    const { key } = await createApiKey(withKeys.database, 'browser');
    await page.goto(`${withKeys.url}/docs`);
    expect(await page.locator('#programs .block pre:visible').textContent()).toContain(
      '--header "Authorization: Bearer $KEY" ',
    );
    const inReview = page.locator('.requests').getByRole('button', { name: 'In review' });
    await inReview.click();
    expect(await keyField().getAttribute('type')).toBe('password');
    expect(await keyField().evaluate((field) => field === field.ownerDocument.activeElement)).toBe(true);
    await expectAccessible('dialog', looks.slice(0, 1));
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
    expect(await page.content()).not.toContain(key);
    expect(page.url()).toBe(`${withKeys.url}/docs#${path}?phoneNumber=%2B14155550123`);
  });

  test('asks again on another page, sends nothing if the reader cancels, and changes and forgets a key', async () => {
    const keys = [];
    for (const name of ['one', 'another']) keys.push((await createApiKey(withKeys.database, name)).key);
    await page.goto(`${withKeys.url}/docs`);
    const state = page.locator('.key').getByRole('status');
    const button = (name: string) => page.locator('.key').getByRole('button', { name });
    expect(await state.textContent()).toBe('No API key is set.');
    expect(await button('Forget it').isVisible()).toBe(false);
    await expectNothingSent(page.locator('.ask button'));
    for (const [index, name] of ['Enter the key', 'Change it'].entries()) {
      await button(name).click();
      await keyField().fill(keys[index] ?? '');
      await page.getByRole('button', { name: 'Use this key' }).click();
      expect(await state.textContent()).toBe('An API key is set.');
      expect((await send('One number')).headers().authorization).toBe(`Bearer ${keys[index]}`);
    }
    await button('Change it').click();
    await page.keyboard.press('Escape');
    expect((await send('All numbers')).headers().authorization).toBe(`Bearer ${keys[1]}`);
    await button('Forget it').click();
    expect(await state.textContent()).toBe('No API key is set.');
    expect(await button('Enter the key').evaluate((element) => element === element.ownerDocument.activeElement)).toBe(
      true,
    );
    await page.locator('.ask button').click();
    expect(await keyField().isVisible()).toBe(true);
    await page.keyboard.press('Escape');
  });
});

describe('/swagger', () => {
  // One load for all of these tests: it costs a second of CPU.
  beforeAll(() => openSwagger());
  beforeEach(clearForm);

  test.each([
    ['is loading', async () => {}, 'Loading the form …'],
    ['can’t be loaded', (route: Route) => route.abort(), 'The form could not be loaded. Reload the page to retry.'],
  ])('says that it %s', async (_words, handle, text) => {
    const other = await page.context().newPage();
    await other.route('**/swagger-ui-bundle.js', handle);
    await other.goto(`${url}/swagger`, { waitUntil: 'commit' });
    await other.locator('#swagger-ui').getByText(text).waitFor();
    await other.close();
  });

  test('omits empty parameters, and collapses the responses until one was received', async () => {
    const described = page.locator('tr[data-code="429"] pre').first();
    expect(await described.isVisible()).toBe(false);
    await page.locator('details > summary').click();
    expect(await described.isVisible()).toBe(true);
    await page.locator('details > summary').click();
    expect(await queryOf(execute())).toBeUndefined();
    expect(await page.locator('.live-responses-table').isVisible()).toBe(true);
  });

  test('has the font of the page', async () => {
    const fonts = "Array.from(document.querySelectorAll('#swagger-ui *'), (part) => getComputedStyle(part).fontFamily)";
    for (const font of new Set(await page.evaluate<string[]>(fonts))) expect(font).toMatch(/^system-ui|mono/);
  });

  // The soak has their other examples.
  test('sends the first example of each parameter', () => expectExamples(0));

  test('omits parameters that were cleared', async () => {
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

test('with the keyboard alone, /docs skips to the content, sends a request, and goes on to its response', async () => {
  await openDocs();
  const skip = page.getByRole('link', { name: 'Skip to the content' });
  await tabTo(skip);
  expect(await isInView(skip)).toBe(true);
  await page.keyboard.press('Enter');
  await tabTo(page.locator('.address button'));
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

describe('at a desk, in the light scheme', () => {
  test('/docs takes at most 6,200 pixels, and shows a response in view', async () => {
    await openDocs();
    expect(await page.evaluate('document.documentElement.scrollHeight')).toBeLessThanOrEqual(6200);
    await expectResponseInView();
    await takePicture();
    // The longest request is seen whole.
    await send('Branding approved at AT&T');
    expect(await page.getByLabel('Query').evaluate((input) => input.scrollWidth - input.clientWidth)).toBe(0);
  });

  test('/docs, with a response, is accessible, and does not scroll sideways with text of any size', async () => {
    await openDocs();
    await send('A misspelled parameter');
    await expectAccessible('html', looks.slice(0, 1));
    await send('In review');
    await expectToFit([320, 1024], [390]);
  });
});

test('on a phone, the header of /docs is one line with a menu, and no tab is beneath Copy', async () => {
  await page.setViewportSize({ width: 360, height: 740 });
  await openDocs();
  const menu = page.getByRole('button', { name: 'Menu' });
  const links = page.getByRole('navigation', { name: 'Documentation' }).getByRole('link');
  expect(await page.locator('.bar').evaluate(({ clientHeight }) => clientHeight)).toBeLessThan(60);
  expect(await links.count()).toBe(0);
  await menu.click();
  for (const link of await links.all()) expect(await isInView(link)).toBe(true);
  await page.keyboard.press('Escape');
  const covered = `[...document.querySelectorAll('#programs .tab')].filter((tab) => {
    tab.scrollIntoView({ block: 'center' });
    const { left, top, width, height } = tab.getBoundingClientRect();
    return document.elementFromPoint(left + width / 2, top + height / 2) !== tab;
  }).length`;
  expect(await page.evaluate(covered)).toBe(0);
  // A browser without popovers has no use for the button.
  await page.route('**/style.css', async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, body: (await response.text()).replace(':popover-open', ':unknown') });
  });
  await openDocs();
  await page.unroute('**/style.css');
  expect([await menu.count(), await isInView(links.last())]).toEqual([0, true]);
});

test('/docs is printed whole, without what only works on a screen', async () => {
  await openDocs();
  await send('In review');
  await page.emulateMedia({ media: 'print' });
  // As wide as a sheet of paper.
  await page.setViewportSize({ width: 718, height: 1000 });
  const body = panel().locator('[data-panel="Body"]');
  expect(await body.evaluate((pre) => pre.scrollHeight - pre.clientHeight)).toBe(0);
  const ink =
    "[...new Set(Array.from(document.querySelectorAll('pre, pre *'), (part) => getComputedStyle(part).color))]";
  expect(await page.evaluate(ink)).toEqual(['rgb(0, 0, 0)']);
  for (const part of ['.contents', '.skip', '.small'])
    expect([part, await page.locator(`${part}:visible`).count()]).toEqual([part, 0]);
  const position = "getComputedStyle(document.querySelector('.bar')).position";
  expect(await page.evaluate(position)).toBe('static');
  // A list that can't be divided moves to the next sheet, and leaves most of one empty.
  const breaks = "Array.from(document.querySelectorAll('.member'), (row) => getComputedStyle(row).breakAfter)";
  expect(new Set(await page.evaluate<string[]>(breaks))).toEqual(new Set(['auto']));
});

test('without JavaScript, /docs shows the program of each language, and nothing that can’t be pressed', async () => {
  const context = await page.context().browser()?.newContext({ javaScriptEnabled: false });
  const other = await context?.newPage();
  await other?.goto(`${url}/docs`);
  await other?.setViewportSize({ width: 390, height: 844 });
  expect(await other?.locator('.contents a:visible').count()).toBe(10);
  expect(await other?.locator('.contents button').isVisible()).toBe(false);
  for (const name of ['curl', 'TypeScript', 'Python', 'Java', 'Go'])
    expect(await other?.locator(`#programs [data-panel="${name}"]`).isVisible()).toBe(true);
  expect(await other?.locator('.tab:visible, .ask:visible, .outcome:visible').count()).toBe(0);
  expect(await other?.locator('.address').textContent()).toBe(`Base URL: ${url}`);
  await context?.close();
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
  // All that is chosen, and all within, has the system's color for it. Nothing else keeps a color of the page.
  const styles = "Array.from(document.querySelectorAll('*'), (part) => getComputedStyle(part))";
  const colors = `${styles}.filter((style) => style.forcedColorAdjust === 'none').map(({ color }) => color)`;
  expect(new Set(await page.evaluate<string[]>(colors)).size).toBe(1);
});

/**
 * Takes the README's picture, only if SCREENSHOTS=1: it differs slightly each time. Before you commit it, run
 * `mogrify +dither -colors 256 docs/images/docs.png` (ImageMagick): a third of the size, and no difference to see.
 */
async function takePicture() {
  if (process.env.SCREENSHOTS !== '1') return;
  await page.evaluate('scrollTo(0, 0)');
  await page.screenshot({ path: join(packageFolder, 'docs', 'images', 'docs.png') });
}
