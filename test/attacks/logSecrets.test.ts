/** No phone number, key or query value reaches the log or the metrics, no matter where in a request it is sent. */
import { Writable } from 'node:stream';
import fc from 'fast-check';
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { closeDatabase, openDatabase } from '../../src/database/connect.js';
import { createApiKey } from '../../src/keys/keys.js';
import type { Service } from '../../src/service/server.js';
import { useDatabase } from '../support/database.js';
import { listenOn, metricsOf } from '../support/listening.js';
import { numberWith, write } from '../support/numbers.js';
import { exchange } from '../support/rawHttp.js';
import { freshSeed } from '../support/seed.js';
import { until } from '../support/until.js';

const PATH = '/v1/brandedPhoneNumbers';
const REQUESTS = 400;

let log = '';
let service: Service;
const created = useDatabase();
let goodKey: string;
let goodId: string;

beforeAll(async () => {
  const database = openDatabase(created.url);
  const { key, created: made } = await createApiKey(database, 'partner', { businessProfileIds: null, expiresAt: null });
  [goodKey, goodId] = [key, made.id];
  await closeDatabase(database);
  const stream = new Writable({
    write(chunk, _encoding, done) {
      log += chunk;
      done();
    },
  });
  const environment = { AUTH: 'api-key', TRUST_PROXY: '1', REQUEST_TIMEOUT_SECONDS: '2' };
  service = await listenOn(created.url, environment, pino({ level: 'trace' }, stream));
});
afterAll(() => service.close());

/** A handmade request, and everything in it that must not appear in the log. */
interface Sent {
  head: string[];
  secrets: string[];
}

const digits = fc.stringMatching(/^[1-9][0-9]{10,13}$/);
const key = fc.stringMatching(/^bpn_[A-Za-z0-9_-]{43}$/);
const word = fc.stringMatching(/^[a-z]{12}$/);
const uuid = fc.uuid();
/** Ways to write a phone number; everything but the `+` is searched for. */
const phoneNumber = fc
  .tuple(digits, fc.constantFrom('', '-', '.', '_', ':'))
  .map(([number, between]) => number.replace(/(?<=^.{1,7}$|^.{4}|^.{7})/g, between).replace(/\W+$|_+$/, ''));
const secret = fc.oneof(phoneNumber, key, word, uuid);

const NAMES = ['phoneNumber', 'businessProfileId', 'internalName', 'carrier', 'reportingGroup', 'status', 'nextCursor'];
const parameter = fc.oneof(
  fc.tuple(fc.constantFrom(...NAMES), secret).map(([name, value]) => ({ text: `${name}=${value}`, secrets: [value] })),
  digits.map((number) => ({ text: `phoneNumber=%2B${number}`, secrets: [number] })),
  // Unknown names, broken encodings, and a number in the place of its parameter's name.
  fc.tuple(secret, secret).map(([name, value]) => ({ text: `${name}=${value}`, secrets: [name, value] })),
  secret.map((value) => ({ text: `%ZZ${value}%00`, secrets: [value] })),
);
const header = fc.oneof(
  fc.constant({ text: '', secrets: [] as string[] }),
  fc
    .tuple(
      fc.constantFrom('Authorization: Bearer ', 'Authorization: ', 'Cookie: key=', 'Referer: http://a/?q='),
      secret,
    )
    .map(([name, value]) => ({ text: `${name}${value}`, secrets: [value] })),
  fc
    .tuple(fc.constantFrom('X-Forwarded-For: ', 'X-Forwarded-For: fe80::1%', 'Forwarded: for=', 'User-Agent: '), secret)
    .map(([name, value]) => ({ text: `${name}${value}`, secrets: [value] })),
  fc
    .tuple(fc.constantFrom('Host: ', 'If-None-Match: ', 'Content-Type: a/', 'Expect: ', 'Origin: http://'), secret)
    .map(([name, value]) => ({ text: `${name}${value}`, secrets: [value] })),
  fc
    .tuple(fc.constantFrom('', 'tel:', 'call-', '+', 'a b '), fc.oneof(phoneNumber, key))
    .map(([before, value]) => ({ text: `X-Request-Id: ${before}${value}`, secrets: [value] })),
);
const line = fc.oneof(
  { weight: 6, arbitrary: fc.constantFrom({ text: `GET ${PATH}?`, secrets: [] as string[] }) },
  fc.constantFrom({ text: `HEAD ${PATH}?`, secrets: [] }, { text: `POST ${PATH}?`, secrets: [] }),
  secret.map((value) => ({ text: `GET ${PATH}/${value}?`, secrets: [value] })),
  secret.map((value) => ({ text: `GET /${value}?`, secrets: [value] })),
  secret.map((value) => ({ text: `GET /docs/${value}?`, secrets: [value] })),
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

/** Those of `secrets` that can be read in `text`. */
const readable = (text: string, secrets: string[]) => secrets.filter((each) => text.includes(each));

describe('the log and the metrics', () => {
  it('show nothing of what random requests carry', async () => {
    const sent = fc.sample(request, { seed: freshSeed(), numRuns: REQUESTS });
    const statuses = new Set<number>();
    for (const { head } of sent) statuses.add((await exchange(service.url, head)).status);
    // Of all kinds: those that are answered, and those that fail in each place.
    expect([...statuses]).toEqual(expect.arrayContaining([200, 400, 401, 404, 405]));
    expect(statuses).not.toContain(500);
    const authorized = [`Authorization: Bearer ${goodKey}`, 'X-Request-Id: the-last'];
    await exchange(service.url, [`GET ${PATH} HTTP/1.1`, 'Host: a', ...authorized]);
    await until(() => log.includes('"the-last"'), 'the last request is logged');
    const last = log.split('\n').find((each) => each.includes('"the-last"')) ?? '';
    const { milliseconds, ...logged } = JSON.parse(last);
    expect(logged).toMatchObject({ method: 'GET', route: PATH, status: 200, rows: 0, client: `key:${goodId}` });
    expect(milliseconds).toBeGreaterThan(0);
    expect(log.split('\n').length).toBeGreaterThan(REQUESTS / 2);
    const secrets = [goodKey, ...sent.flatMap((each) => each.secrets)];
    expect(secrets.length).toBeGreaterThan(REQUESTS);
    expect(readable(log, secrets)).toEqual([]);
    expect(readable(await metricsOf(service), secrets)).toEqual([]);
  });

  it('show nothing of a request that fails in the database, even if PostgreSQL quotes its values', async () => {
    const secrets = ['14155550177', 'abcdefghijkl'];
    const database = openDatabase(created.url);
    await write(database, [numberWith({ phoneNumber: `+${secrets[0]}`, internalName: secrets[1] ?? '' })]);
    const sql = database.$client;
    // The statement's parameters become part of the context of an error, which clients of PostgreSQL get, too.
    await sql.unsafe(`ALTER DATABASE ${created.url.split('/').at(-1)} SET log_parameter_max_length_on_error = -1`);
    const columns = await sql`
      SELECT string_agg(attname, ', ' ORDER BY attnum) AS names FROM pg_attribute
      WHERE attrelid = 'items'::regclass AND attnum > 0 AND NOT attisdropped AND attname <> 'item_tail'`;
    // No release would do this: it makes PostgreSQL fail on a value that it can't parse, and quote it.
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
    await closeDatabase(database);
    const [line = ''] = log.split('\n').filter((each) => each.includes('request failed'));
    expect(JSON.parse(line).err).toMatchObject({ code: '22P02', stack: expect.stringContaining('at ') });
    expect(readable(log, secrets)).toEqual([]);
  });
});
