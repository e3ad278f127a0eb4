/** Further uses of /swagger; docs.test.ts has one of each kind. */
import { beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createApiKey } from '../../src/keys/keys.js';
import { useService } from '../support/service.js';
import {
  clearForm,
  execute,
  expectExamples,
  expectNothingSent,
  keyField,
  maxExamples,
  openSwagger,
  page,
  sending,
  usePage,
} from './page.js';

usePage();
const withKeys = useService({ AUTH: 'api-key', PUBLIC_URL: 'https://numbers.example/telephony' });

describe('/swagger sends', () => {
  beforeAll(() => openSwagger());
  beforeEach(clearForm);

  test.each(Array.from({ length: maxExamples - 1 }, (_, i) => i + 1))(
    'example %i of each parameter that has it',
    expectExamples,
  );
});

test('with AUTH=api-key, /swagger asks for the key, sends nothing if the reader cancels, and keeps the key from what it shows', async () => {
  const { key } = await createApiKey(withKeys.database, 'browser');
  await openSwagger(withKeys.url);
  await expectNothingSent(page.locator('button.execute'));
  await page.locator('button.execute').click();
  await keyField().fill(key);
  expect((await sending(() => page.keyboard.press('Enter'))).headers().authorization).toBe(`Bearer ${key}`);
  expect(await page.locator('.key').getByRole('status').textContent()).toBe('An API key is set.');
  expect(await page.locator('.btn.authorize').count()).toBe(0);
  expect((await execute()).headers().authorization).toBe(`Bearer ${key}`);
  expect(await page.locator('.curl').textContent()).toContain('--header "Authorization: Bearer $KEY" ');
  expect(await page.content()).not.toContain(key);
});
