/** The demo data. */
import { createReadStream } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { importNumbers } from '../../src/operator/numbers/import.js';
import { packageFolder } from '../../src/packageFolder.js';

/** Imports the demo data into the database at `url`. */
export const importDemo = (url: string) =>
  importNumbers(url, createReadStream(join(packageFolder, 'demo', 'numbers.ndjson')));

/** Expects the first page of the demo data. */
export async function expectDemoPage(url: string): Promise<void> {
  const response = await fetch(`${url}/v1/brandedPhoneNumbers`);
  expect(response.status).toBe(200);
  expect(((await response.json()) as { items: object[] }).items).toHaveLength(25);
}
