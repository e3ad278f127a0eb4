/** The documentation page in a real browser. */
import axe, { type AxeResults } from 'axe-core';
import type { Browser, Locator, Page, Request } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, expect, onTestFinished } from 'vitest';
import { parameters } from '../../src/contract.js';
import { importDemo } from '../support/demo.js';
import { useService } from '../support/service.js';
import { until } from '../support/until.js';
import { openChromium } from './chromium.js';

const desktop = { width: 1440, height: 900 };
export const path = '/v1/brandedPhoneNumbers';

let browser: Browser;
/** The service's URL. */
export let url: string;
export let page: Page;
/** The requests that the page has sent. */
let requests: Request[] = [];
let pageErrors: string[] = [];

/** Starts a service with the demo data, and opens a page for all tests of a file; a test fails if its page has errors. */
export function usePage(): void {
  const service = useService({ RATE_LIMIT_PER_SECOND: '10' });

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
      // A test went on before a file was loaded.
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
    await page.setViewportSize(desktop);
    await page.emulateMedia({ media: null, forcedColors: null });
    expect(pageErrors).toEqual([]);
    expect(requests.map((request) => new URL(request.url()).hostname)).toEqual(requests.map(() => '127.0.0.1'));
  });
}

/** Removes the page errors that a test expects, by a part of their text. */
export function ignorePageErrors(text: string): void {
  pageErrors = pageErrors.filter((error) => !error.includes(text));
}

export async function openDocs() {
  await page.goto(`${url}/docs`);
}

/** Opens /swagger, and waits for the rows of parameters and responses, which Swagger UI renders last. */
export async function openSwagger(root = url) {
  await page.goto(`${root}/swagger`);
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
  const checked = page.locator('.choices input:checked');
  while (await checked.count()) await checked.first().uncheck();
  for (const name of parameters.keys())
    if ((await field(name).count()) && (await field(name).inputValue())) await field(name).fill('');
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
async function accessibilityProblems(within: string, rules?: string[]): Promise<string[]> {
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

/** Presses Tab until `target` has the focus, and calls `afterEachPress`. */
export async function tabTo(target: Locator, afterEachPress?: () => Promise<void>) {
  // Found once: a press takes less time without a search.
  const found = await target.elementHandle();
  for (let presses = 1; presses <= 200; presses++) {
    await page.keyboard.press('Tab');
    await afterEachPress?.();
    if (await found?.evaluate((element) => element === element.ownerDocument.activeElement)) return;
  }
  throw new Error(`${target} is more than 200 presses away`);
}

/** Returns the focused element's HTML if it is not visibly focused, or if it is a part of the previous stop. */
export const wrongFocus = () =>
  page.evaluate<string | null>(`(() => {
    const focused = document.activeElement;
    const isNested = window.previousStop?.contains(focused);
    window.previousStop = focused;
    const { outlineStyle, outlineWidth } = getComputedStyle(focused.closest('.request') ?? focused);
    // A link may be broken into two lines.
    const [{ left, right, top, bottom }] = focused.getClientRects();
    const x = (Math.max(left, 0) + Math.min(right, innerWidth)) / 2;
    const y = (Math.max(top, 0) + Math.min(bottom, innerHeight)) / 2;
    const isOutlined = outlineStyle !== 'none' && parseFloat(outlineWidth) > 2;
    const isVisible = isOutlined && right > left && focused.contains(document.elementFromPoint(x, y));
    return isVisible && !isNested ? null : focused.outerHTML;
  })()`);

export const viewports = [desktop, { width: 768, height: 1024 }, { width: 390, height: 844 }];
export const schemes = ['light', 'dark'] as const;
export const looks = viewports.flatMap((viewport) => schemes.map((colorScheme) => ({ viewport, colorScheme })));
type Look = (typeof looks)[number];

/** Sets the color scheme, and waits until Swagger UI, if it is there, has its colors: it chooses them by a class. */
export async function setScheme(colorScheme: 'light' | 'dark') {
  await page.emulateMedia({ colorScheme });
  if ((await page.locator('.swagger-ui').count()) === 0) return;
  const root = colorScheme === 'dark' ? 'html.dark-mode' : 'html:not(.dark-mode)';
  await page.locator(root).waitFor({ state: 'attached' });
}

/** Expects the page, or its elements `within`, to be accessible, and to have the colors of the scheme, in these looks. */
export async function expectAccessible(within: string, inLooks: Look[]) {
  for (const { viewport, colorScheme } of inLooks) {
    await page.setViewportSize(viewport);
    await setScheme(colorScheme);
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
export const WIDTHS = [320, 375, 640, 641, 768, 825, 960, 1024, 1025, 1280, 1440, 1920];

/** Expects the page not to scroll sideways in windows of these widths, also with text of twice the size, with lines of a readable length. */
export async function expectToFit(widths: number[], widthsOfLargeText: number[]) {
  for (const [size, sizeWidths] of [
    ['100%', widths],
    ['200%', widthsOfLargeText],
  ] as const) {
    await page.evaluate(`document.documentElement.style.fontSize = '${size}'`);
    for (const width of sizeWidths) {
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

/** Returns the lightness of these elements' backgrounds, from 0 to 255, except for transparent ones. */
export async function lightnessOf(selector: string): Promise<number[]> {
  const colors = (await backgroundsOf(selector)).filter((color) => color.startsWith('rgb('));
  return colors.map((color) => Math.max(...(color.match(/\d+/g) ?? []).map(Number)));
}

export function backgroundsOf(selector: string): Promise<string[]> {
  return page.evaluate<string[]>(
    `Array.from(document.querySelectorAll('${selector}'), (element) => getComputedStyle(element).backgroundColor)`,
  );
}

export async function isInView(element: Locator): Promise<boolean> {
  const [box, size] = [await element.boundingBox(), page.viewportSize()];
  return !!box && !!size && box.y >= 0 && box.y + box.height <= size.height;
}

/** Returns the cumulative layout shift (CLS), a fraction of the window. */
export function layoutShift(): Promise<number> {
  return page.evaluate<number>(`(() => {
    const observer = new PerformanceObserver(() => {});
    observer.observe({ type: 'layout-shift', buffered: true });
    return observer.takeRecords().reduce((sum, { value, hadRecentInput }) => sum + (hadRecentInput ? 0 : value), 0);
  })()`);
}

/** Sends the request that is shown, and expects its outcome to be in view. */
export async function expectResponseInView() {
  const button = page.locator('.ask button');
  expect(await isInView(button)).toBe(true);
  await press(button);
  for (const part of ['.outcome', '#response .top'])
    await until(() => isInView(page.locator(part).first()), `${part} is in view`);
}

/** The field of the dialog for the key. */
export const keyField = () => page.getByRole('dialog', { name: 'API key' }).getByLabel('Your API key');

/** Cancels the dialog for the key, which this button opens, and expects that nothing was sent. */
export async function expectNothingSent(button: Locator): Promise<void> {
  await button.click();
  await page.getByRole('button', { name: 'Cancel' }).click();
  // The button can be pressed again: nothing is under way.
  await button.click();
  await page.keyboard.press('Escape');
  await page.evaluate(`fetch('openapi.json').then((response) => response.text())`);
  expect(requests.map((request) => new URL(request.url()).pathname).filter((name) => name === path)).toEqual([]);
}

const examples = [...parameters].map(([name, { examples = {} }]) => ({ name, examples: Object.entries(examples) }));
export const maxExamples = Math.max(...examples.map(({ examples: all }) => all.length));

/** Expects the form of /swagger to send the example with this index of each parameter that has it. */
export async function expectExamples(index: number): Promise<void> {
  const sent: string[] = [];
  for (const { name, examples: all } of examples) {
    const [example, { value }] = all[index] ?? ['', { value: undefined }];
    if (!example) continue;
    await choose(name, example, value);
    sent.push(encoded(name, value));
  }
  expect(sent).not.toEqual([]);
  expect(await queryOf(execute())).toBe(sent.join('&'));
}

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
