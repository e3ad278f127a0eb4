/** What the contract and the problem pages show as an answer is, word for word, what the service answers. */
import { createReadStream } from 'node:fs';
import { join } from 'node:path';
import { sql } from 'drizzle-orm';
import request, { type Response } from 'supertest';
import { beforeAll, describe, expect, it } from 'vitest';
import type { Problem } from '../../generated/types/models/index.js';
import { contract, resolve } from '../../src/contract.js';
import { createApiKey } from '../../src/keys/keys.js';
import { importNumbers } from '../../src/numbers/import.js';
import { packageFolder } from '../../src/packageFolder.js';
import type { ProblemName } from '../../src/problem/problem.js';
import { problemOf } from '../answer.js';
import { createDatabase } from '../database.js';
import { service as failing, start } from '../faults/failingDatabase.js';
import { openToxicProxy } from '../faults/toxicProxy.js';
import { type TestService, useService } from '../service.js';

interface Body {
  example?: unknown;
  examples?: Record<string, { value: unknown }>;
}
interface Answer {
  headers: Record<string, { $ref: string }>;
  content?: Record<string, Body>;
}

const answers = contract.components.responses as Record<string, Answer>;

/** Every problem that is shown as the body of an answer. */
const shown = Object.values(answers)
  .map(({ content }) => content?.['application/problem+json'] ?? {})
  .flatMap(({ example, examples = {} }) => [example, ...Object.values(examples).map(({ value }) => value)])
  .filter((body): body is Problem => body !== undefined);

const list = '/v1/brandedPhoneNumbers';
const cursor = new URLSearchParams(exampleOfHeader('Link').slice(1).split(/[?>]/)[1]).get('nextCursor');

function exampleOfHeader(name: string): string {
  return resolve<{ example: string }>(answers.Listed?.headers[name] as { $ref: string }).example;
}

const service = useService();
const withLimit = useService({ RATE_LIMIT_PER_SECOND: '10' });
const withKeys = useService({ AUTH: 'api-key' });

beforeAll(() => importNumbers(service.database, createReadStream(join(packageFolder, 'demo', 'numbers.ndjson'))));

const get = ({ app }: TestService, target: string) => request(app).get(target);

/** How to make the service answer with each kind of problem. */
const provoke: Record<ProblemName, () => Promise<unknown>> = {
  'invalid-request': async () => problemOf(await get(service, `${list}?carier=AT%26T&size=0`)),
  'invalid-cursor': async () => problemOf(await get(service, `${list}?status=approved&nextCursor=${cursor}`)),
  unauthorized: async () => problemOf(await get(withKeys, list)),
  'not-found': async () => problemOf(await get(service, list.toLowerCase())),
  'method-not-allowed': async () => problemOf(await request(service.app).post(list)),
  'misdirected-request': async () => problemOf(await get(service, list).set('Host', 'numbers.example.com')),
  'rate-limit-exceeded': async () => {
    const burst: Response[] = await Promise.all(Array.from({ length: 30 }, () => get(withLimit, list)));
    return problemOf(burst.find(({ status }) => status === 429) as Response);
  },
  'internal-error': async () => {
    const { key } = await createApiKey(withKeys.database, 'unlucky', { businessProfileIds: null });
    // Nothing but a fault of ours lets the lookup of a key divide by zero.
    await withKeys.database.execute(sql`ALTER TABLE api_keys RENAME TO keys`);
    await withKeys.database.execute(sql`
      CREATE VIEW api_keys AS
      SELECT id, business_profile_ids, expires_at, revoked_at, last_used_on, (1 / length(left(hash, 0)))::text AS hash FROM keys`);
    return problemOf(await get(withKeys, list).auth(key, { type: 'bearer' }));
  },
  unavailable: async () => {
    const { url, drop } = await createDatabase();
    const proxy = await openToxicProxy(Number(new URL(url).port));
    await start(proxy.through(url));
    proxy.behave('refusing');
    const answer = await fetch(`${failing.url}${list}`);
    await failing.close();
    await proxy.close();
    await drop();
    return answer.json();
  },
};

describe('The example of a problem is what the service answers:', () => {
  it.each(shown.map((body) => [body.type, body] as const))('%s', async (type, body) => {
    expect(await provoke[type.replace('/problems/', '') as ProblemName]()).toEqual(body);
  });

  it('each kind has one', () => {
    expect(shown.map(({ type }) => type).sort()).toEqual(
      Object.keys(contract['x-problems'])
        .map((name) => `/problems/${name}`)
        .sort(),
    );
  });
});

it('The example of a page is what the service answers to size=1 with the demo data, and its cursor works', async () => {
  const answer = await get(service, `${list}?size=1`);
  expect(answer.body).toEqual(answers.Listed?.content?.['application/json']?.examples?.page?.value);
  expect([answer.get('Link'), answer.get('ETag')]).toEqual([exampleOfHeader('Link'), exampleOfHeader('ETag')]);
  const { body } = await get(service, `${list}?nextCursor=${answer.body.nextCursor}`).expect(200);
  expect(body.items).toHaveLength(25);
});
