/** The privileges in docs/operations.md are sufficient for each role, and no role has more. */
import { readFile } from 'node:fs/promises';
import { Readable } from 'node:stream';
import type { Sql } from 'postgres';
import request from 'supertest';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { findForeignRoles } from '../../src/database/foreignRoles.js';
import { migrateDatabase } from '../../src/database/migrations.js';
import { createApiKey } from '../../src/keys/keys.js';
import { importNumbers } from '../../src/operator/numbers/import.js';
import { migrationsFolder } from '../../src/packageFolder.js';
import { runOn, runProgram, runServe } from '../support/command.js';
import { useConnection } from '../support/connection.js';
import { createDatabase, useDatabase } from '../support/database.js';
import { expectDerivedToAgree } from '../support/derived.js';
import { entryWith, numberWith } from '../support/numbers.js';
import { useServiceOn } from '../support/service.js';

const ROLES = { server: `server_${process.pid}`, importer: `importer_${process.pid}` };
const PASSWORD = 'few rights';

const database = useDatabase();
let owner: Sql;
const urlOf = {} as Record<keyof typeof ROLES, string>;

beforeAll(async () => {
  owner = database.sql;
  for (const [name, role] of Object.entries(ROLES) as [keyof typeof ROLES, string][]) {
    await owner.unsafe(`CREATE ROLE ${role} LOGIN PASSWORD '${PASSWORD}'`);
    urlOf[name] = Object.assign(new URL(database.url), { username: role, password: PASSWORD }).href;
  }
  const operations = await readFile('docs/operations.md', 'utf8');
  const grants =
    /^```sql\n([^`]*GRANT[^`]*)^```/m.exec(operations)?.[1] ?? expect.fail('docs/operations.md has no GRANTs');
  const name = new URL(database.url).pathname.slice(1);
  await owner.unsafe(`REVOKE ALL ON DATABASE ${name} FROM PUBLIC`);
  await owner.unsafe(
    grants
      .replaceAll(':"DBNAME"', name)
      .replace(/\bTO (server|importer);/g, (_to, name: keyof typeof ROLES) => `TO ${ROLES[name]};`),
  );
});
afterAll(async () => {
  for (const role of Object.values(ROLES)) await owner.unsafe(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
});

const numberOf = (detailedStatus: 'approved.optIn' | 'rejected.optIn') => {
  const carrierStatuses = [
    entryWith('AT&T', 'brandedCallerId', detailedStatus),
    entryWith(detailedStatus, 'spamRemediation', detailedStatus),
  ];
  return numberWith({ phoneNumber: '+14155550123', carrierStatuses });
};

test('migrate warns neither the owner nor these roles of the privileges in docs/operations.md', async () => {
  for (const url of [database.url, ...Object.values(urlOf)]) expect(await findForeignRoles(url)).toEqual([]);
});

test('migrate and serve name every further role that has privileges, and what it may do', async () => {
  const url = await createDatabase({ isEmpty: true });
  const sql = useConnection(url);
  const visitors = `visitors_${process.pid}`;
  const anon = `"anon ${process.pid}"`;
  const member = `"member ${process.pid}"`; // of the owner, so that it has the owner's rights anyway
  await sql.unsafe(`CREATE ROLE ${anon}; CREATE ROLE ${visitors}; CREATE ROLE ${member} IN ROLE CURRENT_USER`);
  await sql.unsafe(`
    ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO ${member};
    ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO ${anon};
    ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON TABLES TO ${anon}, ${visitors};
    ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON FUNCTIONS TO ${anon}`);
  const migrate = () => runOn(url, ['migrate']);
  try {
    const { code, stderr } = await migrate();
    const warnings = [
      ...stderr.matchAll(
        /^the role (\S+|".*") may read and write (.*); unless that is intended, revoke its privileges$/gm,
      ),
    ];
    expect([code, warnings.map(([, role]) => role)]).toEqual([0, [anon, visitors]]);
    const [, , names] = warnings[0] ?? [];
    const tables =
      await sql`SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'`;
    expect(names?.split(', ').sort()).toEqual([...tables.map(({ relname }) => relname), 'FUNCTION derive'].sort());

    const service = await runServe([], { DATABASE_URL: url });
    await service.untilReady();
    service.stop();
    expect(await service.end()).toBe(0);
    for (const role of [anon, visitors]) {
      expect(service.out.stdout).toContain(JSON.stringify(`the role ${role} may read and write `).slice(1, -1));
    }

    await sql.unsafe(`DROP OWNED BY ${anon}, ${visitors}`);
    // A privilege that is not one by default in this schema was granted on purpose.
    await sql.unsafe(`CREATE SCHEMA other; ALTER DEFAULT PRIVILEGES IN SCHEMA other GRANT SELECT ON TABLES TO ${anon}`);
    await sql.unsafe(`GRANT SELECT ON items TO ${anon}`);
    expect(await migrate()).toMatchObject({ code: 0, stderr: '' });
    await sql`GRANT SELECT ON api_keys TO PUBLIC`;
    expect((await migrate()).stderr).toMatch(/^the role PUBLIC may read api_keys; .*\n$/);
  } finally {
    await sql.unsafe(`DROP OWNED BY ${anon}, ${member}, ${visitors}`);
    await sql.unsafe(`DROP ROLE ${anon}, ${member}, ${visitors}`);
  }
});

test('the role importer, which owns nothing, imports new and changed numbers', async () => {
  await migrateDatabase(urlOf.importer, migrationsFolder);
  for (const detailedStatus of ['approved.optIn', 'rejected.optIn'] as const) {
    const line = JSON.stringify({ ...numberOf(detailedStatus), updatedAt: undefined });
    expect(await importNumbers(urlOf.importer, Readable.from([Buffer.from(line)]))).toEqual({
      numbers: 1,
      carrierStatuses: 2,
    });
    await expectDerivedToAgree(owner);
  }
  expect(await owner`SELECT status FROM items`).toEqual([{ status: 'rejected' }]);
});

test('the role server, which may only read numbers, serves pages and counts requests for the rate limit', async () => {
  await migrateDatabase(urlOf.server, migrationsFolder);
  const { url } = await useServiceOn(urlOf.server, { RATE_LIMIT_PER_SECOND: '2' });
  const responses = [];
  for (let i = 0; i < 3; i++) responses.push(await request(url).get('/v1/brandedPhoneNumbers?carrier=AT%26T'));
  expect(responses.map(({ status }) => status)).toEqual([200, 200, 429]);
  expect(responses[0]?.body.items).toHaveLength(1);
});

test('row-level security that would hide rows from a role is an error, in requests and commands', async () => {
  const tables = [
    'items',
    'postings',
    'terms',
    'business_profiles',
    'branded_phone_numbers',
    'carrier_statuses',
    'api_keys',
  ];
  const hide = (table: string, verb: string) => owner.unsafe(`ALTER TABLE ${table} ${verb} ROW LEVEL SECURITY`);
  const keys = [await createApiKey(database.drizzle, 'Known'), await createApiKey(database.drizzle, 'New')];
  const { url, metricsUrl } = await useServiceOn(urlOf.server, { AUTH: 'api-key' });
  const list = (i = 0) =>
    request(url)
      .get('/v1/brandedPhoneNumbers')
      .set('Authorization', keys[i]?.key ?? '');
  const run = (role: keyof typeof ROLES, args: string[], input = '') =>
    runProgram(args, input, { environment: { DATABASE_URL: urlOf[role], AUTH: 'none', PORT: '0' } });
  const sentence = expect.stringMatching(/row-level security policy for table "\w+": give the role .* BYPASSRLS/);
  try {
    expect((await list()).status).toBe(200);
    await hide('api_keys', 'ENABLE');
    expect((await list(1)).status).toBe(503);
    await hide('items', 'ENABLE');
    expect((await list()).status).toBe(503);
    for (const table of tables) await hide(table, 'ENABLE');
    expect((await request(url).get('/readyz')).body.status).toBe(
      'row-level security hides rows of the database from this service',
    );
    const ready = await request(metricsUrl ?? expect.fail()).get('/readyz');
    expect([ready.status, ready.body.status]).toEqual([503, sentence]);
    expect(await run('server', ['export'])).toMatchObject({ code: 1, stdout: '', stderr: sentence });
    expect(await run('server', ['serve'])).toMatchObject({ code: 1, stderr: sentence });
    await hide('items', 'DISABLE');
    const line = JSON.stringify(numberOf('approved.optIn'));
    expect(await run('importer', ['import', '-'], line)).toMatchObject({ code: 1, stderr: sentence });
  } finally {
    for (const table of tables) await hide(table, 'DISABLE');
  }
});

test('row-level security that would hide rows from the triggers is an error', async () => {
  const url = await createDatabase({ isEmpty: true });
  const name = new URL(url).pathname.slice(1);
  const role = `owner_${name}`;
  await owner.unsafe(`CREATE ROLE ${role} LOGIN PASSWORD '${PASSWORD}'; ALTER DATABASE ${name} OWNER TO ${role}`);
  const ownerUrl = Object.assign(new URL(url), { username: role, password: PASSWORD }).href;
  await migrateDatabase(ownerUrl, migrationsFolder);
  const sql = useConnection(ownerUrl);
  await sql`INSERT INTO business_profiles VALUES ('00000000-0000-4000-8000-000000000001', 'Circle Bank', 'approved')`;
  await sql`
    INSERT INTO branded_phone_numbers (phone_number, business_profile_id)
    VALUES ('+19', '00000000-0000-4000-8000-000000000001')`;
  const deferred = `SET LOCAL branded_phone_numbers.defer = 'on'; UPDATE branded_phone_numbers SET internal_name = 'x'`;
  for (const [table, statement] of [
    ['carrier_statuses', `INSERT INTO carrier_statuses VALUES ('+19', 'AT&T', 'brandedCallerId', 'approved.optIn')`],
    ['carrier_statuses', deferred],
    ['branded_phone_numbers', 'TRUNCATE carrier_statuses'],
  ] as const) {
    const hiding = `ALTER TABLE ${table} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
      CREATE POLICY writing ON ${table} FOR INSERT WITH CHECK (true)`;
    const writing = sql.unsafe(`BEGIN; ${hiding}; ${statement}; COMMIT`);
    await expect(writing, statement).rejects.toThrow('row-level security policy');
    await sql`ROLLBACK`;
  }
});

test.each([
  ['server', 'DELETE FROM items'],
  ['server', 'SELECT FROM carrier_statuses'],
  ['importer', 'INSERT INTO items SELECT * FROM items'],
  ['importer', `UPDATE items SET status = 'approved'`],
  ['importer', 'DELETE FROM postings'],
  ['importer', `UPDATE terms SET carrier = 'x'`],
  ['importer', 'TRUNCATE items'],
  ['importer', `SELECT derive('{+19}')`],
  ['importer', 'DELETE FROM deferred'],
  ['importer', 'SELECT FROM api_keys'],
] as const)('the role %s may not: %s', async (role, statement) => {
  await expect(useConnection(urlOf[role]).unsafe(statement)).rejects.toThrow('permission denied');
});

test('the triggers do not read a temporary table of the writer', async () => {
  const sql = useConnection(urlOf.importer);
  await sql`CREATE TEMPORARY TABLE carrier_statuses (LIKE public.carrier_statuses)`;
  await sql`UPDATE branded_phone_numbers SET internal_name = 'New'`;
  await expectDerivedToAgree(owner);
});

test('the triggers do not call functions and operators in public that match better than those of PostgreSQL', async () => {
  await owner.unsafe(`
    CREATE FUNCTION trap(text, text DEFAULT '') RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$;
    CREATE FUNCTION to_json(text) RETURNS json LANGUAGE sql AS $$ SELECT public.trap($1)::json $$;
    CREATE FUNCTION cardinality(text[]) RETURNS integer LANGUAGE sql AS $$ SELECT public.trap('')::integer $$;
    CREATE FUNCTION unnest(text[]) RETURNS SETOF text LANGUAGE sql AS $$ SELECT public.trap('') $$;
    CREATE FUNCTION joined(text, feature) RETURNS text LANGUAGE sql AS $$ SELECT public.trap($1) $$;
    CREATE OPERATOR || (LEFTARG = text, RIGHTARG = feature, FUNCTION = joined)`);
  const sql = useConnection(urlOf.importer);
  await sql`UPDATE branded_phone_numbers SET internal_name = 'Newer'`;
  await sql`UPDATE carrier_statuses SET detailed_status = 'approved.optIn'`;
  await owner`DROP FUNCTION trap(text, text), to_json(text), cardinality(text[]), unnest(text[]), joined CASCADE`;
  await expectDerivedToAgree(owner);
});
