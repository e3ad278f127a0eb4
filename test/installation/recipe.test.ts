/** The recipe of ARCHITECTURE.md for a new filter, followed in a copy of this checkout while this version serves. */
import { readdirSync } from 'node:fs';
import { mkdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { packageFolder } from '../../src/packageFolder.js';
import { connectTo } from '../support/connection.js';
import { type PostgresServer, startPostgres } from '../support/postgresServer.js';
import { isInstalled, run } from '../support/programs.js';
import { SERVE, type Server, startServer } from '../support/serverProcess.js';
import { useTemporaryFolder } from '../support/temporaryFolder.js';
import { copyCheckout } from './checkout.js';

const COPIES = 20;

const folder = useTemporaryFolder('branded-phone-numbers-recipe-');
let postgres: PostgresServer;
let serving: Server;
const copy = (...path: string[]) => join(folder.path, 'next', ...path);
const environment = () => ({ DATABASE_URL: postgres.url, RATE_LIMIT_PER_SECOND: '0' });

const runInCopy = (program: string, args: string[]) =>
  run(program, args, {
    ...{ cwd: copy(), maxBuffer: 2 ** 26 },
    env: { ...process.env, ...environment() },
  });
const command = async (main: string, ...args: string[]) =>
  (await runInCopy(process.execPath, [join(main, 'dist/src/main.js'), ...args])).stdout;

beforeAll(async () => {
  await Promise.all([mkdir(copy()).then(() => copyCheckout(copy())), mkdir(join(folder.path, 'old'))]);
  await symlink(join(packageFolder, 'node_modules'), copy('node_modules'));
  postgres = await startPostgres();
  const numbers = (await readFile(join(packageFolder, 'demo', 'numbers.ndjson'), 'utf8')).trim().split('\n');
  const lines = Array.from({ length: COPIES }, () => numbers).flat();
  const copies = lines.map((line, i) =>
    JSON.stringify({ ...JSON.parse(line), id: undefined, phoneNumber: `+1${2_000_000_000 + i}` }),
  );
  await writeFile(copy('numbers.ndjson'), copies.join('\n'));
  await command(packageFolder, 'import', 'numbers.ndjson');
  serving = await startServer(SERVE, environment(), { folder: join(folder.path, 'old') });
});
afterAll(async () => {
  await serving?.stop();
  await postgres?.remove();
});

/** Replaces texts in a file of the copy, each of which must occur once. */
async function edit(path: string, ...changes: [from: string, to: string][]): Promise<void> {
  let text = await readFile(copy(path), 'utf8');
  for (const [from, to] of changes) {
    expect(text.split(from), `${path}: ${from}`).toHaveLength(2);
    text = text.replace(from, () => to);
  }
  await writeFile(copy(path), text);
}

/** Makes the migration of the changed schema, with its text changed, and builds the copy. */
async function makeMigration(name: string, change: (text: string) => string): Promise<void> {
  await runInCopy('npx', ['drizzle-kit', 'generate', '--name', name]);
  const file = readdirSync(copy('drizzle')).find((path) => path.endsWith(`_${name}.sql`)) ?? expect.fail();
  await writeFile(copy('drizzle', file), change(await readFile(copy('drizzle', file), 'utf8')));
  await runInCopy('npm', ['run', '--silent', 'build']);
}

/** Runs `work` while clients read the list, and a program writes numbers. Their statements must not wait for long. */
async function besideTraffic(work: () => Promise<unknown>): Promise<void> {
  const writer = connectTo(postgres.url, { connection: { statement_timeout: 1000 } });
  const statuses: number[] = [];
  let isOver = false;
  const reads = async () => {
    while (!isOver) statuses.push((await fetch(`${serving.url}/v1/brandedPhoneNumbers?size=5`)).status);
  };
  const writes = async () => {
    for (let i = 0; !isOver; i++) {
      await writer`
        UPDATE branded_phone_numbers SET reporting_group = ${`Group ${i}`} WHERE phone_number = (
          SELECT phone_number FROM branded_phone_numbers OFFSET ${i % 1000} LIMIT 1)`;
    }
  };
  const end = () => {
    isOver = true;
  };
  await Promise.all([reads(), writes(), work()].map((part) => part.finally(end)));
  await writer.end();
  expect(new Set(statuses)).toEqual(new Set([200]));
}

/** Returns the statement that replaces `derive`. */
const textOfDerive = async () => {
  const [text = ''] =
    /^CREATE FUNCTION derive\([\s\S]*?^END \$\$;$/m.exec(await readFile(copy('drizzle/current.sql'), 'utf8')) ?? [];
  return text.replace('CREATE FUNCTION', 'CREATE OR REPLACE FUNCTION');
};

it('the first release has the column, which `check --repair` fills', async () => {
  await edit(
    'src/database/schema.ts',
    [
      "    updatedAt: time('updated_at').notNull(),\n  },",
      "    updatedAt: time('updated_at').notNull(),\n    brandingNameShort: byteText('branding_name_short'),\n  },",
    ],
    [
      "    internalName: byteText('internal_name'),\n  },\n",
      "    internalName: byteText('internal_name'),\n    brandingNameShort: byteText('branding_name_short'),\n  },\n",
    ],
  );
  await edit(
    'drizzle/current.sql',
    ['moment AS updated_at\n', 'moment AS updated_at,\n        number.branding_name_short\n'],
    ['term_ids, item_tail, updated_at\n', 'term_ids, item_tail, updated_at, branding_name_short\n'],
    [
      'reporting_group, internal_name)::public.postings',
      'reporting_group, internal_name, branding_name_short)::public.postings',
    ],
  );
  const derive = await textOfDerive();
  const parts = (text: string) => [
    'LOCK branded_phone_numbers, carrier_statuses IN EXCLUSIVE MODE;',
    text.trim(),
    derive,
  ];
  await makeMigration('column', (text) => parts(text).join('--> statement-breakpoint\n'));
  const times = async () => {
    const sql = connectTo(postgres.url);
    const rows = await sql`SELECT phone_number, updated_at FROM items WHERE item_tail NOT LIKE '%"Group %' ORDER BY 1`;
    await sql.end();
    return rows;
  };
  await besideTraffic(async () => {
    expect(await command(copy(), 'migrate')).toMatch(/^applied \d+_column\n/);
    const before = await times();
    expect(await command(copy(), 'check', '--repair').catch(({ stdout }) => stdout)).toMatch(/repaired|OK/);
    const after = new Map((await times()).map(({ phone_number: number, updated_at: time }) => [number, `${time}`]));
    const changed = before.filter(({ phone_number: number, updated_at: time }) => {
      return after.has(number) && after.get(number) !== `${time}`;
    });
    expect(changed).toEqual([]);
  });
  expect(await command(copy(), 'check')).toBe('OK: the read model matches its sources\n');
});

it.skipIf(!isInstalled('java'))('the second release has the indexes and the parameter', async () => {
  const contract = await readFile(copy('openapi/openapi.yaml'), 'utf8');
  const [parameter = ''] = /^ {4}ReportingGroupParameter:\n(?: {6}.*\n)+/m.exec(contract) ?? [];
  await edit(
    'openapi/openapi.yaml',
    [
      '        - $ref: "#/components/parameters/ReportingGroupParameter"\n',
      '        - $ref: "#/components/parameters/ReportingGroupParameter"\n        - $ref: "#/components/parameters/BrandingNameShortParameter"\n',
    ],
    [
      parameter,
      parameter +
        parameter
          .replace('ReportingGroupParameter', 'BrandingNameShortParameter')
          .replace('name: reportingGroup', 'name: brandingNameShort')
          .replace(/ {6}x-synonyms.*\n/, ''),
    ],
  );
  await runInCopy('make', ['generate']);
  await edit(
    'src/page/filter.ts',
    ['  internalName: readonly', '  brandingNameShort: readonly string[] | null;\n  internalName: readonly'],
    ['    internalName: sorted', '    brandingNameShort: sorted(request.brandingNameShort),\n    internalName: sorted'],
  );
  await edit('src/service/request/cursor.ts', [
    '    dottedStatuses: filter.dottedStatus,\n',
    '    dottedStatuses: filter.dottedStatus,\n    ...(filter.brandingNameShort && { brandingNameShorts: filter.brandingNameShort }),\n',
  ]);
  await edit('src/page/plan.ts', ["'internalName'] as const", "'internalName', 'brandingNameShort'] as const"]);
  await edit('src/page/fragment.ts', [
    "  internalName: 'text[]',",
    "  brandingNameShort: 'text[]',\n  internalName: 'text[]',",
  ]);
  const attributes = ['businessProfileId', 'reportingGroup', 'internalName', 'brandingNameShort'];
  const names = ['business_profile', 'reporting_group', 'internal_name'];
  await edit(
    'src/database/schema.ts',
    ...names.map((name): [string, string] => [`index('items_by_${name}')`, `index('items_by_${name}_2')`]),
    ...attributes.slice(0, 3).map((attribute): [string, string] => {
      const rest = attributes.slice(0, 3).filter((other) => other !== attribute);
      const columns = `t.${attribute}, t.phoneNumber, ${rest.map((other) => `t.${other}`).join(', ')}`;
      return [`on(${columns})`, `on(${columns}, t.brandingNameShort)`];
    }),
    [
      "    pg.index('postings_by_business_profile')",
      "    pg.index('postings_by_branding_name_short').on(t.brandingNameShort, t.termId, t.phoneNumber),\n    pg.index('postings_by_business_profile')",
    ],
    [
      '    // For filters on attributes alone',
      "    pg.index('items_by_branding_name_short')\n      .on(t.brandingNameShort, t.phoneNumber, t.businessProfileId, t.reportingGroup, t.internalName),\n    // For filters on attributes alone",
    ],
  );
  let creates: string[] = [];
  await makeMigration('parameter', (text) => {
    const statements = text.split('--> statement-breakpoint').map((statement) => statement.trim());
    creates = statements.filter((statement) => statement.startsWith('CREATE INDEX'));
    const drops = statements.filter((statement) => statement.startsWith('DROP'));
    expect([drops.length, creates.length]).toEqual([3, 5]);
    const guarded = creates.map((create) => create.replace('INDEX', 'INDEX IF NOT EXISTS'));
    return [...guarded, ...drops].join('--> statement-breakpoint\n');
  });
  let next: Server | undefined;
  await besideTraffic(async () => {
    const operator = connectTo(postgres.url);
    for (const create of creates) await operator.unsafe(create.replace('INDEX', 'INDEX CONCURRENTLY'));
    await operator.end();
    next = await startServer([process.execPath, 'dist/src/main.js', 'serve'], environment(), { folder: copy() });
    const { items } = (await (await fetch(`${next.url}/v1/brandedPhoneNumbers?size=100`)).json()) as {
      items: { brandingNameShort: string }[];
    };
    const name = items.find(({ brandingNameShort }) => brandingNameShort)?.brandingNameShort ?? expect.fail();
    const url = `${next.url}/v1/brandedPhoneNumbers?size=100&brandingNameShort=${encodeURIComponent(name)}`;
    const page = (await (await fetch(url)).json()) as { items: { brandingNameShort: string }[] };
    expect(new Set(page.items.map(({ brandingNameShort }) => brandingNameShort))).toEqual(new Set([name]));
  });
  await next?.stop();
  expect(await command(copy(), 'check')).toBe('OK: the read model matches its sources\n');
});
