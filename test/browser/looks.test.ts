/** The documentation in a real browser: its layout, colors and accessibility on a desktop and a phone. */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Locator } from 'playwright-core';
import { beforeEach, describe, expect, test } from 'vitest';
import { packageFolder } from '../../src/packageFolder.js';
import { until } from '../support/until.js';
import {
  accessibilityProblems,
  desktop,
  execute,
  field,
  followProblem,
  ignorePageErrors,
  openDocs,
  page,
  phone,
  responseStatus,
  url,
  usePage,
} from './page.js';

usePage();

const looks = [desktop, phone].flatMap((viewport) =>
  (['light', 'dark'] as const).map((colorScheme) => ({ viewport, width: viewport.width, colorScheme })),
);

describe.each(looks)('in a $colorScheme window of $width pixels', ({ viewport, width, colorScheme }) => {
  beforeEach(async () => {
    await page.setViewportSize(viewport);
    await page.emulateMedia({ colorScheme });
  });

  test('/docs fits, is accessible, has a stable layout, and scrolls its response into view', async () => {
    await openDocs();
    expect(await layoutShift()).toBeLessThan(0.01);
    const button = page.getByRole('button', { name: 'In review' });
    expect(await isInView(button, 50)).toBe(true);
    await button.click();
    await until(() => isInView(page.locator(responseStatus), 20), 'the status of the response is in view');
    expect(await isInView(page.getByRole('button', { name: 'Next page' }), 50)).toBe(true);
    if (colorScheme === 'light') await screenshot(`docs-${width === phone.width ? 'phone' : 'desktop'}.png`);
    const body = page.locator('.live-response pre', { hasText: '"phoneNumber"' });
    await until(() => isInView(body, 200), 'the top of the response body is in view');
    await check();
    await field('size').fill('0');
    await execute();
    for (const summary of await page.locator('details > summary').all()) await summary.click();
    await check();
    expect(await accessibilityProblems()).toEqual([]);
    await followProblem('Invalid Request');
    await check();
    expect(await accessibilityProblems()).toEqual([]);
  });

  test.each(['/problems', '/problems/no-such-problem'])(
    '%s fits the window, and follows the color scheme',
    async (path) => {
      await page.goto(url + path);
      await check();
      ignorePageErrors('404');
    },
  );

  async function check() {
    expect(await overflow()).toBe(0);
    for (const element of ['body', '#swagger-ui > .swagger-ui', 'main']) {
      for (const lightness of await backgroundsOf(element)) expect(lightness > 128).toBe(colorScheme === 'light');
    }
    const levels = await page.evaluate<number[]>(
      "Array.from(document.querySelectorAll('h1,h2,h3,h4,h5,h6'), (h) => +h.tagName[1])",
    );
    expect(levels.filter((level, index) => level > (levels[index - 1] ?? 0) + 1)).toEqual([]);
  }
});

test('/docs follows the system’s color scheme when it changes', async () => {
  await openDocs();
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

/** Returns the lightness of these elements' backgrounds, from 0 to 255, except for transparent ones. */
function backgroundsOf(selector: string): Promise<number[]> {
  return page.evaluate<number[]>(`
    Array.from(document.querySelectorAll('${selector}'), (element) => getComputedStyle(element).backgroundColor)
      .filter((color) => color.startsWith('rgb('))
      .map((color) => Math.max(...color.match(/\\d+/g)))`);
}

/** Returns whether the top `pixels` of an element, or all of a smaller one, are in the window. */
async function isInView(element: Locator, pixels: number): Promise<boolean> {
  const [box, size] = [await element.boundingBox(), page.viewportSize()];
  return !!box && !!size && box.y >= 0 && box.y + Math.min(box.height, pixels) <= size.height;
}

/** Returns the cumulative layout shift (CLS), a fraction of the window. */
function layoutShift(): Promise<number> {
  return page.evaluate<number>(`(() => {
    const observer = new PerformanceObserver(() => {});
    observer.observe({ type: 'layout-shift', buffered: true });
    return observer.takeRecords().reduce((sum, { value }) => sum + value, 0);
  })()`);
}

function overflow(): Promise<number> {
  return page.evaluate<number>('document.documentElement.scrollWidth - document.documentElement.clientWidth');
}

/** Takes the README's screenshots, only if SCREENSHOTS=1: they differ slightly each time. */
async function screenshot(name: string) {
  if (process.env.SCREENSHOTS !== '1') return;
  const folder = join(packageFolder, 'docs', 'images');
  await mkdir(folder, { recursive: true });
  await page.screenshot({ path: join(folder, name) });
}
