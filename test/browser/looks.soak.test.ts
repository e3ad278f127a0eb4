/** The documentation in a real browser, in every width and color scheme; docs.test.ts has one of each. */
import { beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { hasNginx, startNginx } from '../service/http/nginx.js';
import { freePort } from '../support/port.js';
import { useService } from '../support/service.js';
import {
  execute,
  expectAccessible,
  expectResponseInView,
  expectToFit,
  ignorePageErrors,
  layoutShift,
  looks,
  openDocs,
  openSwagger,
  page,
  path,
  schemes,
  send,
  setScheme,
  tabTo,
  url,
  usePage,
  viewports,
  WIDTHS,
  wrongFocus,
} from './page.js';

usePage();
const withKeys = useService({ AUTH: 'api-key' });

describe('in every width and color scheme', () => {
  const PAGES = ['problems', 'problems/invalid-request', 'clients/README.md', 'clients/java/README.md', 'packages/'];

  test.each([...PAGES, 'docs/deprecation.md', 'nothing'])('/%s is accessible', async (name) => {
    await page.goto(`${url}/${name}`);
    ignorePageErrors('404');
    await expectAccessible('html', looks);
  });

  test('/docs is accessible with responses, and with the pointer on what is chosen', async () => {
    await openDocs();
    await send('A misspelled parameter');
    await expectAccessible('html', looks);
    await send('In review');
    await page.locator('#programs').getByRole('button', { name: 'Python' }).click();
    await page.evaluate('localStorage.clear()');
    // Nothing else has changed.
    await expectAccessible('.console, #programs', looks);
  });

  test('/swagger is accessible with a response', async () => {
    await openSwagger();
    await execute();
    await expectAccessible('html', looks);
  });

  test.each(['docs', 'swagger'])('the dialog for the key is accessible on /%s', async (name) => {
    await page.goto(`${withKeys.url}/${name}`);
    await expectAccessible('html', looks);
    await page.getByRole('button', { name: 'Enter the key' }).click();
    await expectAccessible('dialog', looks);
  });

  test.each(viewports)('/docs shows a response in view, at $width pixels', async (viewport) => {
    await page.setViewportSize(viewport);
    await openDocs();
    for (const colorScheme of schemes) {
      await page.emulateMedia({ colorScheme });
      await page.evaluate('scrollTo(0, 0)');
      await expectResponseInView();
    }
    expect(await layoutShift()).toBeLessThan(0.01);
  });
});

describe('in every width, also with text of twice the size, does not scroll sideways', () => {
  const LARGE_TEXT = [390, 768, 1440];

  test.each(['problems/misdirected-request', 'clients/README.md', 'clients/java/README.md', 'packages/'])(
    '/%s',
    async (name) => {
      await page.goto(`${url}/${name}`);
      await expectToFit(WIDTHS, LARGE_TEXT);
    },
  );

  test('/docs, with a response', async () => {
    await openDocs();
    await send('In review');
    await expectToFit(WIDTHS, LARGE_TEXT);
  });

  test('/swagger, with a response', async () => {
    await openSwagger();
    await execute();
    await expectToFit(WIDTHS, LARGE_TEXT);
  });
});

describe('with the keyboard alone, there is one visible stop for each control', () => {
  beforeEach(() => page.evaluate('document.body.tabIndex = -1; document.body.focus()'));

  describe.each([
    ['/docs', '#responses a', openDocs],
    ['/swagger', '#swagger-ui details > summary', openSwagger],
  ] as const)('of %s', (_path, last, open) => {
    beforeAll(() => open());

    test.each(schemes)('in the %s scheme', async (colorScheme) => {
      await setScheme(colorScheme);
      const wrong: string[] = [];
      await tabTo(page.locator(last).last(), async () => {
        const html = await wrongFocus();
        if (html) wrong.push(html);
      });
      expect(wrong).toEqual([]);
    });
  });
});

test.runIf(hasNginx)('/swagger sends its requests behind a path prefix', async () => {
  const prefixed = `http://127.0.0.1:${await freePort()}/numbers`;
  const stop = await startNginx(Number(new URL(prefixed).port), url);
  try {
    await openSwagger(prefixed);
    expect((await execute()).url()).toBe(prefixed + path);
  } finally {
    await stop();
  }
});
