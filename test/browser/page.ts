/** The documentation page in a real browser. */
import axe, { type AxeResults } from 'axe-core';
import type { Browser, Locator, Page, Request } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, expect, onTestFinished } from 'vitest';
import { parameters } from '../../src/contract.js';
import { importDemo } from '../support/demo.js';
import { useService } from '../support/service.js';
import { openChromium } from './chromium.js';

export const desktop = { width: 1440, height: 900 };
export const path = '/v1/brandedPhoneNumbers';

let browser: Browser;
/** The service's URL. */
export let url: string;
export let page: Page;
/** The requests that the page has sent. */
let requests: Request[] = [];
let pageErrors: string[] = [];

/**
 * Starts a service with the demo data, whose CORS_ORIGINS has the origin `listed`, and opens a page for all tests of a file; a
 * test fails if its page has errors.
 */
export function usePage(listed: string): void {
  const service = useService({ RATE_LIMIT_PER_SECOND: '10', CORS_ORIGINS: listed });

  beforeAll(async () => {
    await importDemo(service.databaseUrl);
    browser = await openChromium();
    url = service.url;
    // One page for all tests, which is faster: scripts are fetched and compiled once.
    page = await (
      await browser.newContext({ viewport: desktop, permissions: ['clipboard-read', 'clipboard-write'] })
    ).newPage();
    page.on('request', (request) => requests.push(request));
    page.on('requestfailed', (request) => {
      const error = request.failure()?.errorText;
      // A test went on before Swagger UI was loaded.
      if (error !== 'net::ERR_ABORTED') pageErrors.push(`${request.url()}: ${error}`);
    });
    page.on('pageerror', (error) => pageErrors.push(String(error)));
    // These include violations of the Content-Security-Policy.
    page.on('console', (message) => {
      if (['error', 'warning'].includes(message.type())) pageErrors.push(message.text());
    });
  });

  afterAll(() => browser?.close());

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

/** Opens /docs at its top, where Swagger UI is not loaded. */
export async function openDocs() {
  await page.goto(`${url}/docs`);
}

/** Opens /docs, and scrolls to Swagger UI. */
export async function openWithSwagger() {
  await openDocs();
  await swaggerIsShown();
}

/** Scrolls to Swagger UI, and waits for the rows of parameters and responses, which it renders last. */
export async function swaggerIsShown() {
  await page.locator('#swagger-ui').scrollIntoViewIfNeeded();
  await page.locator('#swagger-ui:not([aria-busy]) button.execute').waitFor();
  for (const name of parameters.keys()) await row(name).locator('button, input, select, textarea').first().waitFor();
  await page.locator('tr[data-code="default"]').waitFor({ state: 'attached' });
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

/** Empties all parameters of Swagger UI. */
export async function clearForm() {
  for (const box of await page.locator('.choices input').all()) await box.uncheck();
  for (const name of parameters.keys()) if (await field(name).count()) await field(name).fill('');
}

/** The part of the console with the response; Swagger UI shows its responses in its own. */
export const panel = () => page.locator('#response');
/** Returns what a tab of the console shows, whether or not it is chosen. */
export const tabText = async (name: string) => (await panel().locator(`[data-panel="${name}"]`).textContent()) ?? '';
const panels = () => page.locator('#response, .responses-inner');

export const execute = () => press(page.locator('button.execute'));
export const send = (name: string) => press(page.locator('.requests').getByRole('button', { name, exact: true }));
export const press = (button: Locator) => sending(() => button.click());

/** Holds requests to addresses like `pattern` back; returns a function that lets them go on. */
export async function hold(pattern: string): Promise<() => void> {
  let release = () => {};
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  await page.route(pattern, async (route) => {
    await released;
    await route.continue();
  });
  onTestFinished(() => page.unroute(pattern));
  return release;
}

/** Runs an action that sends a request, and returns the request once its response is shown. */
export async function sending(action: () => Promise<void>): Promise<Request> {
  const responded = page.waitForResponse((response) => new URL(response.url()).pathname.endsWith(path));
  await action();
  const outcome = await responded;
  await panels()
    .filter({ hasText: outcome.headers()['x-request-id'] ?? '' })
    .waitFor();
  // The browser logs each of them as an error.
  for (const status of [400, 401, 429]) if (outcome.status() === status) ignorePageErrors(String(status));
  return outcome.request();
}

export async function queryOf(sent: Promise<Request>): Promise<string | undefined> {
  return (await sent).url().split('?')[1];
}

/** Returns the status in the panel of the page, such as "200 OK". */
export async function statusShown(): Promise<string> {
  return (await panel().locator('strong').textContent()) ?? '';
}

/**
 * Returns all that axe-core finds in the elements that a selector matches, by `rules`, or by default by all of its rules, best
 * practices included.
 */
export async function accessibilityProblems(within: string, rules?: string[]): Promise<string[]> {
  if (!(await page.evaluate("'axe' in window"))) await page.evaluate(axe.source);
  // Colors may still be changing to those of another color scheme.
  await page.evaluate('document.getAnimations().forEach((transition) => transition.finish())');
  // By default, axe would describe everything that passed, too.
  const options = JSON.stringify({ resultTypes: ['violations', 'incomplete'], runOnly: rules });
  const { violations, incomplete } = await page.evaluate<AxeResults>(
    `axe.run(document.querySelectorAll('${within}'), ${options})`,
  );
  // axe is not sure whether text in the color of its background is a fault.
  const invisible = incomplete.filter(({ nodes }) => JSON.stringify(nodes).includes('equalRatio'));
  return [...violations, ...invisible].flatMap(({ id, nodes }) =>
    nodes.map(({ target, failureSummary }) => `${id}: ${target}: ${failureSummary}`),
  );
}
