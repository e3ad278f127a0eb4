/** Services that count their reads from the database. */
import request from 'supertest';
import { vi } from 'vitest';
import { Reader } from '../../src/database/reads.js';
import type { Log } from '../../src/log.js';
import { useDatabase } from './database.js';
import { useServiceOn } from './service.js';

/** Opens services on one database, each for the current test, with a rate limit. */
export function useCountedServices() {
  const database = useDatabase();
  async function open(environment: Record<string, string> = {}, log?: Log) {
    const readOfAny = vi.spyOn(Reader.prototype, 'read');
    const settings = { TRUST_PROXY: '1', RATE_LIMIT_PER_SECOND: '10', ...environment };
    const { url } = await useServiceOn(database.url, settings, log);
    // A service connects its reader of pages and keys first, and then the one of /readyz.
    const [reader] = readOfAny.mock.contexts as [Reader];
    readOfAny.mockRestore();
    const list = `${url}/v1/brandedPhoneNumbers`;
    return {
      /** The URL of the list. */
      list,
      /** Records each read. */
      read: vi.spyOn(reader, 'read'),
      /** Requests the first page as the client with the address `from`. */
      get: (from: string, search = '') => request(list).get(search).set('X-Forwarded-For', from),
    };
  }
  return { database, open };
}
