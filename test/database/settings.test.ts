/** Every command and the list behave the same, whatever settings a database or a role has as its defaults. */
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import request from 'supertest';
import { afterAll, describe, expect, inject, test } from 'vitest';
import { readConfig } from '../../src/config/config.js';
import { packageFolder } from '../../src/packageFolder.js';
import { runOn } from '../support/command.js';
import { connectTo, useConnection } from '../support/connection.js';
import { createDatabase, inTransaction, openDatabase } from '../support/database.js';
import { listenOn } from '../support/service.js';

/** All but default_transaction_read_only, with which an operator forbids writing. */
const SETTINGS: Record<string, string> = {
  array_nulls: 'off',
  backslash_quote: 'off',
  bytea_output: 'escape',
  check_function_bodies: 'off',
  client_min_messages: 'error',
  constraint_exclusion: 'on',
  DateStyle: 'SQL, DMY',
  default_transaction_deferrable: 'on',
  default_transaction_isolation: 'serializable',
  enable_hashjoin: 'off',
  enable_indexscan: 'off',
  enable_sort: 'off',
  extra_float_digits: '-15',
  from_collapse_limit: '1',
  idle_in_transaction_session_timeout: '3s',
  idle_session_timeout: '1s',
  IntervalStyle: 'sql_standard',
  jit_above_cost: '0',
  join_collapse_limit: '1',
  lock_timeout: '1ms',
  plan_cache_mode: 'force_custom_plan',
  'plpgsql.extra_errors': 'all',
  'plpgsql.variable_conflict': 'use_column',
  quote_all_identifiers: 'on',
  row_security: 'off',
  search_path: 'nowhere',
  session_replication_role: 'replica',
  standard_conforming_strings: 'off',
  statement_timeout: '1ms',
  synchronize_seqscans: 'on',
  TimeZone: 'Asia/Kathmandu',
  transform_null_equals: 'on',
  work_mem: '64kB',
  xmloption: 'document',
};
const NUMBER = JSON.stringify({
  phoneNumber: '+19',
  businessProfile: { id: '00000000-0000-4000-8000-000000000001', businessName: 'O\'Neil\\ "1"', status: 'approved' },
  internalName: 'back\\slash',
  brandingNameShort: null,
  brandingNameLong: null,
  reportingGroup: 'NULL',
  carrierStatuses: [{ carrier: 'NULL', feature: 'brandedCallerId', detailedStatus: 'approved.optIn' }],
});
const RUNS = 3 * inject('tries');

const admin = connectTo(inject('postgresUrl'));
afterAll(() => admin.end());

/** Returns what the commands and the list do on a new database with these settings. */
async function outcome(settings: string[]) {
  const url = await createDatabase({ isEmpty: true });
  for (const name of settings) {
    const value = name === 'search_path' ? SETTINGS[name] : `'${SETTINGS[name]}'`;
    await admin.unsafe(`ALTER DATABASE ${new URL(url).pathname.slice(1)} SET ${name} = ${value}`);
  }
  const run = async (args: string[], input = '') => {
    const { code, stdout, stderr } = await runOn(url, args, input);
    const stable = stdout.replaceAll(/bpn_[\w-]+|"(id|hash|createdAt|updatedAt)":"[^"]+"/g, '');
    return { command: args[0], code, stderr, stdout: createHash('sha256').update(stable).digest('hex') };
  };
  const commands = [
    await run(['migrate']),
    await run(['import', join(packageFolder, 'demo', 'numbers.ndjson'), '-'], NUMBER),
    await run(['check']),
    await run(['export']),
    await run(['delete'], '+19\n'),
    await run(['check']),
    await run(['keys', 'create', '--name', 'x', '--json', '--expires', '2127-01-31']),
    await run(['keys', 'list', '--json']),
  ];
  const service = await listenOn(url, { RATE_LIMIT_PER_SECOND: '10' });
  const { status, body } = await request(service.url).get('/v1/brandedPhoneNumbers?size=100&carrier=AT%26T');
  await service.close();
  return { commands, status, numbers: body.items.length };
}

test('the commands and the list behave the same with any defaults of a database', async () => {
  const expected = await outcome([]);
  for (const { command, code, stderr } of expected.commands) expect([command, code], stderr).toEqual([command, 0]);
  expect(expected.status).toBe(200);
  const names = Object.keys(SETTINGS);
  const randomly = fc.sample(fc.shuffledSubarray(names, { minLength: 5, maxLength: 12 }), Math.max(RUNS - 1, 0));
  for (const settings of [names, ...randomly]) expect(await outcome(settings), settings.join()).toEqual(expected);
});

test('a transaction of a command outlasts the transaction_timeout of its database', async () => {
  const url = await createDatabase();
  const [server] = await admin`SELECT current_setting('server_version_num')::int AS version`;
  // PostgreSQL has this setting since version 17.
  if (server?.version >= 170_000)
    await admin.unsafe(`ALTER DATABASE ${new URL(url).pathname.slice(1)} SET transaction_timeout = '1s'`);
  const result = await inTransaction(url, 'READ COMMITTED', async (sql) => {
    await sleep(1100);
    return sql`SELECT 1 AS one`;
  });
  expect(result).toEqual([{ one: 1 }]);
});

describe('options in DATABASE_URL', () => {
  const read = (options: string) => () =>
    readConfig({ DATABASE_URL: `postgres://user@host/numbers?${new URLSearchParams({ options })}` });
  const limitWith = async (options: string) => {
    const connection = { options } as Record<string, string>;
    return (await useConnection(inject('postgresUrl'), { connection })`SHOW lock_timeout`)[0]?.lock_timeout;
  };

  test.each([
    '-c lock_timeout=7',
    '-clock_timeout=7',
    '--lock-timeout=7',
    '\t-c  LOCK_timeout=7 -c geqo=off',
    String.raw`-c geqo=off -c l\ock\_timeout=7`,
  ])('that set what each session sets are rejected, as PostgreSQL reads them: %s', async (options) => {
    expect(await limitWith(options)).toBe('7ms');
    expect(read(options)).toThrow('DATABASE_URL has options that set lock_timeout, which each session sets itself');
  });

  test.each(['-c geqo=off', String.raw`-c a.b=1\ -c\ lock_timeout=7`, '-c a.lock_timeout=7', '--work-mem=1MB'])(
    'may set anything else: %s',
    async (options) => {
      expect(await limitWith(options)).toBe('0');
      expect(read(options)).not.toThrow();
    },
  );

  test('can set nothing that a session sets at its start', () => {
    const { connection } = openDatabase('postgres://host/database').$client.options;
    for (const name of Object.keys(connection)) expect(read(`-c ${name}=x`), name).toThrow(`set ${name}, which`);
  });
});
