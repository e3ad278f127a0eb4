/** The documentation page in a real browser. */
import { createReadStream } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import axe, { type AxeResults } from 'axe-core';
import type { Browser, Locator, Page, Request } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, expect } from 'vitest';
import { parameters } from '../../src/contract.js';
import { importNumbers } from '../../src/operator/numbers/import.js';
import { packageFolder } from '../../src/packageFolder.js';
import { type TestService, useService } from '../support/service.js';
import { openChromium } from './chromium.js';

export const desktop = { width: 1280, height: 900 };
export const phone = { width: 375, height: 812 };
export const path = '/v1/brandedPhoneNumbers';

/** Selects the status of the response that Swagger UI shows below Execute. */
export const responseStatus = '.live-responses-table tbody .response-col_status';

interface Listening {
  url: string;
  close(): Promise<void>;
}

let service: TestService;
/** The service's URL. */
export let url: string;
export let page: Page;
/** The requests that the page has sent. */
let requests: Request[];
let pageErrors: string[];

/** Starts a service with the demo data and opens a page for all tests of a file; a test fails if its page has errors. */
export function usePage(): void {
  let browser: Browser;
  let listening: Listening;
  service = useService({ RATE_LIMIT_PER_SECOND: '10' });

  beforeAll(async () => {
    await importNumbers(service.database, createReadStream(join(packageFolder, 'demo', 'numbers.ndjson')));
    [browser, listening] = await Promise.all([openChromium(), listen()]);
    url = listening.url;
    // One page for all tests, which is faster: scripts are fetched and compiled once.
    page = await (await browser.newContext({ viewport: desktop })).newPage();
    page.on('request', (request) => requests.push(request));
    page.on('requestfailed', (request) => pageErrors.push(`${request.url()}: ${request.failure()?.errorText}`));
    page.on('pageerror', (error) => pageErrors.push(String(error)));
    // These include violations of the Content-Security-Policy.
    page.on('console', (message) => {
      if (['error', 'warning'].includes(message.type())) pageErrors.push(message.text());
    });
  });

  afterAll(async () => {
    await browser?.close();
    await listening?.close();
  });

  beforeEach(() => {
    requests = [];
    pageErrors = [];
  });

  afterEach(async () => {
    // The next test would interrupt unfinished requests, and get their errors.
    await page.waitForLoadState();
    expect(pageErrors).toEqual([]);
    expect(requests.map((request) => new URL(request.url()).hostname)).toEqual(requests.map(() => '127.0.0.1'));
  });
}

/** Removes the page errors that a test expects, by a part of their text. */
export function ignorePageErrors(text: string): void {
  pageErrors = pageErrors.filter((error) => !error.includes(text));
}

/** Listens on a new port, and removes `prefix` from paths as a proxy does. */
export async function listen(prefix = '', { app } = service): Promise<Listening> {
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

/** Opens the documentation unless it is open; only for tests that set all fields they use. */
export async function showDocs() {
  if (page.url() !== `${url}/docs`) await openDocs();
}

export async function openDocs() {
  await page.goto(`${url}/docs`);
  await operationIsShown();
}

/** Waits for the rows of parameters and responses, which Swagger UI renders last. */
export async function operationIsShown() {
  await page.waitForSelector('button.execute');
  for (const name of parameters.keys()) await row(name).locator('button, input, select, textarea').first().waitFor();
  for (const status of [200, 400, 429]) await page.locator(`tr[data-code="${status}"] pre`).first().waitFor();
}

export function row(parameter: string) {
  return page.locator(`tr[data-param-name="${parameter}"]`);
}

/** Returns the text field of a parameter. */
export function field(parameter: string) {
  return row(parameter).locator('input[type="text"], textarea');
}

export function choice(parameter: string, value: string) {
  return row(parameter).locator(`input[type="checkbox"][value="${value}"]`);
}

export const execute = () => press(page.locator('button.execute'));
export const send = (name: string) => press(page.locator('.requests').getByRole('button', { name }));
export const press = (button: Locator) => sending(() => button.click());

/** Runs an action that sends a request, and returns the request once its response is shown. */
export async function sending(action: () => Promise<void>): Promise<Request> {
  const responded = page.waitForResponse((response) => new URL(response.url()).pathname.endsWith(path));
  await action();
  const outcome = await responded;
  await page.locator('.live-response', { hasText: outcome.headers()['x-request-id'] ?? '' }).waitFor();
  if (outcome.status() === 400) ignorePageErrors('400');
  return outcome.request();
}

/** Follows the link in the `type` of the shown problem. */
export async function followProblem(title: string) {
  await page.locator('.live-response pre a').click();
  expect(await page.locator('h1').textContent()).toBe(title);
}

export async function queryOf(sent: Promise<Request>): Promise<string | undefined> {
  return (await sent).url().split('?')[1];
}

export async function statusShown(): Promise<string> {
  return (await page.locator(responseStatus).textContent())?.trim() ?? '';
}

/** Returns the accessibility problems that axe-core rates critical or serious. */
export async function accessibilityProblems(): Promise<string[]> {
  await page.evaluate(axe.source);
  // By default, axe would describe everything that passed, too.
  const { violations } = await page.evaluate<AxeResults>("axe.run({ resultTypes: ['violations'] })");
  return violations
    .filter(({ impact }) => impact === 'critical' || impact === 'serious')
    .flatMap(({ id, nodes }) => nodes.map(({ target, failureSummary }) => `${id}: ${target}: ${failureSummary}`));
}
