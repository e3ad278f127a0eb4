/** Phone numbers, keys and query values stay out of the log and the metrics, wherever a request has them. */
import fc from 'fast-check';
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createApiKey } from '../../src/keys/keys.js';
import type { Service } from '../../src/service/server.js';
import { useDatabase } from '../support/database.js';
import { numberWith, write } from '../support/numbers.js';
import { exchange } from '../support/rawHttp.js';
import { freshSeed } from '../support/seed.js';
import { listenOn, metricsOf } from '../support/service.js';
import { until } from '../support/until.js';

const PATH = '/v1/brandedPhoneNumbers';
const REQUESTS = 400;

let log = '';
let service: Service;
const created = useDatabase();
let goodKey: string;
let goodId: string;

beforeAll(async () => {
  const { key, created: made } = await createApiKey(created.drizzle, 'partner');
  [goodKey, goodId] = [key, made.id];
  const stream = {
    write(line: string) {
      log += line;
    },
  };
  const environment = { AUTH: 'api-key', TRUST_PROXY: '1', REQUEST_TIMEOUT_SECONDS: '2' };
  service = await listenOn(created.url, environment, pino({ level: 'trace' }, stream));
});
afterAll(() => service.close());

/** The lines of a request, and everything in it that must not be logged. */
interface Sent {
  head: string[];
  secrets: string[];
}

const digits = fc.stringMatching(/^[1-9][0-9]{10,13}$/);
const key = fc.stringMatching(/^bpn_[A-Za-z0-9_-]{43}$/);
const word = fc.stringMatching(/^[a-z]{12}$/);
const uuid = fc.uuid();
/** A phone number without its `+`, in one of several notations. */
const phoneNumber = fc
  .tuple(digits, fc.constantFrom('', '-', '.', '_', ':'))
  .map(([number, between]) => number.replace(/(?<=^.{1,7}$|^.{4}|^.{7})/g, between).replace(/\W+$|_+$/, ''));
const secret = fc.oneof(phoneNumber, key, word, uuid);

const NAMES = ['phoneNumber', 'businessProfileId', 'internalName', 'carrier', 'reportingGroup', 'status', 'nextCursor'];
const parameter = fc.oneof(
  fc.tuple(fc.constantFrom(...NAMES), secret).map(([name, value]) => ({ text: `${name}=${value}`, secrets: [value] })),
  digits.map((number) => ({ text: `phoneNumber=%2B${number}`, secrets: [number] })),
  // Unknown names, invalid encodings, and numbers as names.
  fc.tuple(secret, secret).map(([name, value]) => ({ text: `${name}=${value}`, secrets: [name, value] })),
  secret.map((value) => ({ text: `%ZZ${value}%00`, secrets: [value] })),
);
/** One of several texts, followed by a secret. */
const withSecret = (texts: string[], value = secret) =>
  fc.tuple(fc.constantFrom(...texts), value).map(([text, value]) => ({ text: `${text}${value}`, secrets: [value] }));
const withoutSecret = (...texts: string[]) =>
  fc.constantFrom(...texts).map((text) => ({ text, secrets: [] as string[] }));

const header = fc.oneof(
  withoutSecret(''),
  withSecret(['Authorization: Bearer ', 'Authorization: ', 'Cookie: key=', 'Referer: http://a/?q=']),
  withSecret(['X-Forwarded-For: ', 'X-Forwarded-For: fe80::1%', 'Forwarded: for=', 'User-Agent: ']),
  withSecret(['Host: ', 'If-None-Match: ', 'Content-Type: a/', 'Expect: ', 'Origin: http://']),
  withSecret(
    ['', 'tel:', 'call-', '+', 'a b '].map((text) => `X-Request-Id: ${text}`),
    fc.oneof(phoneNumber, key),
  ),
);
const line = fc.oneof(
  { weight: 6, arbitrary: withoutSecret(`GET ${PATH}?`) },
  withoutSecret(`HEAD ${PATH}?`, `POST ${PATH}?`),
  withSecret([`GET ${PATH}/`, 'GET /', 'GET /docs/']).map(({ text, secrets }) => ({ text: `${text}?`, secrets })),
  secret.map((value) => ({ text: `${value} ${PATH}?`, secrets: [value] })),
);

const request: fc.Arbitrary<Sent> = fc
  .tuple(line, fc.array(parameter, { maxLength: 4 }), fc.array(header, { maxLength: 4 }), fc.boolean())
  .map(([first, parameters, headers, isKnown]) => ({
    head: [
      `${first.text}${parameters.map(({ text }) => text).join('&')} HTTP/1.1`,
      ...(headers.some(({ text }) => text.startsWith('Host')) ? [] : ['Host: numbers.example']),
      ...(isKnown ? [`Authorization: Bearer ${goodKey}`] : []),
      ...headers.map(({ text }) => text).filter(Boolean),
    ],
    secrets: [first, ...parameters, ...headers].flatMap(({ secrets }) => secrets),
  }));

/** Returns the secrets that `text` contains. */
const secretsIn = (text: string, secrets: string[]) => secrets.filter((secret) => text.includes(secret));

describe('the log and the metrics', () => {
  it('contain no secrets of random requests', async () => {
    const sent = fc.sample(request, { seed: freshSeed(), numRuns: REQUESTS });
    const statuses = new Set<number>();
    for (const { head } of sent) statuses.add((await exchange(service.url, head)).status);
    // Requests that succeed, and that fail at each stage.
    expect([...statuses]).toEqual(expect.arrayContaining([200, 400, 401, 404, 405]));
    expect(statuses).not.toContain(500);
    const authorized = [`Authorization: Bearer ${goodKey}`, 'X-Request-Id: the-last'];
    await exchange(service.url, [`GET ${PATH} HTTP/1.1`, 'Host: a', ...authorized]);
    await until(() => log.includes('"the-last"'), 'the last request is logged');
    const last = log.split('\n').find((line) => line.includes('"the-last"')) ?? '';
    const { milliseconds, ...logged } = JSON.parse(last);
    expect(logged).toMatchObject({ method: 'GET', route: PATH, status: 200, rows: 0, client: `key:${goodId}` });
    expect(milliseconds).toBeGreaterThan(0);
    expect(log.split('\n').length).toBeGreaterThan(REQUESTS / 2);
    const secrets = [goodKey, ...sent.flatMap(({ secrets }) => secrets)];
    expect(secrets.length).toBeGreaterThan(REQUESTS);
    expect(secretsIn(log, secrets)).toEqual([]);
    expect(secretsIn(await metricsOf(service), secrets)).toEqual([]);
  });

  it('contain no values of a request that fails in the database, even if PostgreSQL quotes them', async () => {
    const secrets = ['14155550177', 'abcdefghijkl'];
    const { drizzle } = created;
    const { $client: sql } = drizzle;
    await write(drizzle, [numberWith({ phoneNumber: `+${secrets[0]}`, internalName: secrets[1] ?? '' })]);
    // PostgreSQL then adds the parameters of a statement to its errors, which its clients get.
    await sql.unsafe(`ALTER DATABASE ${created.url.split('/').at(-1)} SET log_parameter_max_length_on_error = -1`);
    const columns = await sql`
      SELECT string_agg(attname, ', ' ORDER BY attnum) AS names FROM pg_attribute
      WHERE attrelid = 'items'::regclass AND attnum > 0 AND NOT attisdropped AND attname <> 'item_tail'`;
    // A view whose cast fails makes PostgreSQL quote a value.
    await sql.unsafe(`
      ALTER TABLE items RENAME TO numbers;
      CREATE VIEW items AS SELECT ${columns[0]?.names}, phone_number::uuid::text AS item_tail FROM numbers;
      SELECT pg_terminate_backend(pid) FROM pg_stat_activity
      WHERE datname = current_database() AND pid <> pg_backend_pid()`);
    const { status } = await exchange(service.url, [
      `GET ${PATH}?phoneNumber=%2B${secrets[0]}&internalName=${secrets[1]} HTTP/1.1`,
      'Host: numbers.example',
      `Authorization: Bearer ${goodKey}`,
    ]);
    expect(status).toBe(500);
    await until(() => log.includes('request failed'), 'the failure is logged');
    const [line = ''] = log.split('\n').filter((line) => line.includes('request failed'));
    expect(JSON.parse(line).err).toMatchObject({ code: '22P02', stack: expect.stringContaining('at ') });
    expect(secretsIn(log, secrets)).toEqual([]);
  });
});
