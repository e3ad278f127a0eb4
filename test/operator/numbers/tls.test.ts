/** Commands over TLS, where what they write is not sent at once. */
import { Readable } from 'node:stream';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { migrateDatabase } from '../../../src/database/migrations.js';
import { deriveAll } from '../../../src/operator/numbers/check.js';
import { deleteNumbers } from '../../../src/operator/numbers/delete.js';
import { importNumbers } from '../../../src/operator/numbers/import.js';
import { migrationsFolder } from '../../../src/packageFolder.js';
import { hasOpenssl, startPostgresWithTls } from '../../support/certificates.js';
import { ndjson } from '../../support/ndjson.js';
import type { PostgresServer } from '../../support/postgresServer.js';
import { manyNumbers } from './importing.js';

describe.runIf(hasOpenssl)('over TLS', () => {
  let server: PostgresServer;
  let url: string;
  beforeAll(async () => {
    server = await startPostgresWithTls();
    url = `${server.url}?sslmode=require`;
    await migrateDatabase(url, migrationsFolder);
  });
  afterAll(() => server?.remove());

  test.each([1, 1000])('%d numbers are imported, checked and deleted', async (count) => {
    const numbers = manyNumbers(count);
    expect(await importNumbers(url, Readable.from([ndjson(numbers)]))).toMatchObject({ numbers: count });
    expect(await deriveAll(url, { keep: false })).toEqual([]);
    const phoneNumbers = numbers.map(({ phoneNumber }) => `${phoneNumber}\n`).join('');
    expect(await deleteNumbers(url, Readable.from([phoneNumbers]))).toEqual({ lines: count, deleted: count });
  });
});
