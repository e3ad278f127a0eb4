/** Requests from a page of another origin in a real browser, with CORS_ORIGINS. */
import { createServer } from 'node:http';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { useListeningService } from '../support/listening.js';
import { freePort } from '../support/port.js';
import { openChromium } from './chromium.js';

const port = await freePort();
const service = useListeningService({ CORS_ORIGINS: `http://127.0.0.1:${port}` });
const pages = createServer((_request, response) => response.setHeader('Content-Type', 'text/html').end('<p>'));
let browser: Browser;
let page: Page;

beforeAll(async () => {
  pages.listen(port, '127.0.0.1');
  browser = await openChromium();
  page = await browser.newPage();
});
afterAll(async () => {
  await browser?.close();
  pages.closeAllConnections();
  pages.close();
});

/** Returns the status that a page at `origin` gets for a request with these headers, or the browser's error. */
async function statusAt(origin: string, headers: Record<string, string>): Promise<number | string> {
  await page.goto(origin);
  const fetched = `fetch(${JSON.stringify(`${service.url}/v1/brandedPhoneNumbers`)}, { headers: ${JSON.stringify(headers)} })`;
  return page.evaluate<number | string>(`${fetched}.then(({ status }) => status, String)`);
}

it('a page may send an API key and its tools’ headers only if its origin is listed', async () => {
  const tools = { baggage: 'a=b', traceparent: `00-${'1'.repeat(32)}-${'1'.repeat(16)}-01`, 'x-requested-with': 'x' };
  const ours = { Authorization: 'Bearer x', 'If-None-Match': '"x"', 'X-Request-Id': 'x' };
  expect(await statusAt(`http://127.0.0.1:${port}`, { ...tools, ...ours })).toBe(200);
  expect(await statusAt(`http://localhost:${port}`, {})).toContain('Failed to fetch');
});
