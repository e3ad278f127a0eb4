/** Tests the installed package in a browser. */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { openChromium } from '../../../test/browser/chromium.js';

const { SERVICE_URL = '', CACHE = '' } = process.env;
const modules = join(CACHE, 'installed', 'typescript', 'node_modules', 'branded-phone-numbers-client', 'dist', 'esm');

/** Serves an empty page, the package's modules, the service below /api, and redirects to it below /moved. */
const server = createServer(async ({ url = '' }, response) => {
  if (url === '/') return response.setHeader('Content-Type', 'text/html').end('<!doctype html>');
  const [, folder, path = ''] = /^\/(\w+)(\/.*)$/.exec(url) ?? [];
  if (folder === 'moved') return response.writeHead(308, { Location: SERVICE_URL + path }).end();
  if (folder === 'api')
    return response.setHeader('Content-Type', 'application/json').end(await (await fetch(SERVICE_URL + path)).text());
  return response.setHeader('Content-Type', 'text/javascript').end(readFileSync(join(modules, path)));
});
const browser = await openChromium();

beforeAll(async () => void (await once(server.listen(0, '127.0.0.1'), 'listening')));
afterAll(async () => {
  await browser.close();
  server.close();
});

/** Requests a page in the browser; returns how many numbers it has, or the message of the error. */
async function list(basePath: string): Promise<number | string> {
  const page = await browser.newPage();
  await page.goto(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  return page.evaluate(`import('/modules/index.js').then(({ BrandedPhoneNumbersApi, Configuration }) =>
    new BrandedPhoneNumbersApi(new Configuration({ basePath: '${basePath}' })).listBrandedPhoneNumbers()
      .then(({ items }) => items.length, ({ message }) => message))`);
}

it('reads a page in a browser, at a base URL that is relative to the address of the page', async () => {
  expect(await list('/api')).toBe(25);
});

it('follows no redirect in a browser, which hides where it leads to', async () => {
  const found = 'redirected to another address: set that as the base URL';
  expect(await list('/moved')).toBe(`0 Unexpected Response: ${found}`);
});
