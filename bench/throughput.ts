/** Requests for the first page each second: ours, with and without its limit, against others on the same data. */
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { drizzle } from 'drizzle-orm/postgres-js';
import postgres from 'postgres';
import { filterOf } from '../src/filter.js';
import { preparePages } from '../src/query.js';
import * as schema from '../src/schema.js';
import { quantiles } from './latency.js';
import { type Server, startServer } from './server.js';

const run = promisify(execFile);
const ROUNDS = Number(process.env.BENCH_LOAD_ROUNDS ?? 3);
const SECONDS = process.env.BENCH_LOAD_SECONDS ?? '4';
const PATH = '/v1/brandedPhoneNumbers';

export interface Throughput {
  name: string;
  connections: number;
  perSecond: number;
}

interface Contender {
  name: string;
  command: string[];
  path: string;
  environment?: Record<string, string>;
  body?: string;
}

const POSTGRAPHILE = `{ allBrandedPhoneNumbers(first: 26, orderBy: PRIMARY_KEY_ASC) { nodes {
  id phoneNumber businessProfileByBusinessProfileId { id businessName status } internalName brandingNameShort
  brandingNameLong reportingGroup status createdAt updatedAt
  carrierStatusesByPhoneNumber(orderBy: PRIMARY_KEY_ASC) { nodes { carrier feature detailedStatus createdAt } } } } }`;

// It has no field for the entries, whose key has several columns; but they stand in the text that we derive.
const PLATFORMATIC = `{ brandedPhoneNumbers(limit: 26, orderBy: { field: phoneNumber, direction: ASC }) {
  id phoneNumber businessProfile { id businessName status } itemTail } }`;

const main = 'dist/src/main.js';
const CONTENDERS: Contender[] = [
  { name: 'Fastify + postgres.js, obvious query (a)', command: ['bench/fastify.js'], path: PATH },
  {
    name: 'ours, everything on',
    command: [main, 'serve'],
    path: PATH,
    environment: { TRUST_PROXY: '1', RATE_LIMIT_PER_SECOND: '10' },
  },
  { name: 'ours, no limit', command: [main, 'serve'], path: PATH, environment: { RATE_LIMIT_PER_SECOND: '0' } },
  {
    name: 'PostGraphile 5 (c)',
    command: ['bench/postgraphile.js'],
    path: '/graphql',
    body: JSON.stringify({ query: POSTGRAPHILE }),
  },
  {
    name: 'Platformatic DB (c)',
    command: ['bench/platformatic.js'],
    path: '/graphql',
    body: JSON.stringify({ query: PLATFORMATIC }),
  },
];

/** Alternates short runs of all contenders, several rounds, and keeps the median of each. */
export async function measureThroughput(url: string): Promise<Throughput[]> {
  const runs = new Map<string, number[]>();
  const note = (name: string, connections: number, perSecond: number) => {
    const key = JSON.stringify([name, connections]);
    runs.set(key, [...(runs.get(key) ?? []), perSecond]);
  };
  const script = await writePgbenchScript(url);
  for (let round = 0; round < ROUNDS; round++) {
    for (const [index, contender] of CONTENDERS.entries()) {
      const server = await start(contender, url, 4100 + index);
      if (!server) continue;
      for (const connections of [1, 8, 64]) {
        await load(server.url + contender.path, connections, '1', contender.body);
        note(
          contender.name,
          connections,
          await load(server.url + contender.path, connections, SECONDS, contender.body),
        );
      }
      await server.stop();
    }
    for (const connections of [1, 8, 64]) {
      const perSecond = await pgbench(url, script, connections);
      if (perSecond !== undefined) note('pgbench -M prepared, our query (b)', connections, perSecond);
    }
  }
  return [...runs].map(([key, values]) => {
    const [name, connections] = JSON.parse(key);
    return { name, connections, perSecond: quantiles(values).median };
  });
}

async function start(contender: Contender, url: string, port: number): Promise<Server | undefined> {
  const { command, path, body, environment } = contender;
  try {
    return await startServer(command, port, body ? '/ready' : path, {
      DATABASE_URL: url,
      LOG_LEVEL: 'info',
      ...environment,
    });
  } catch (error) {
    console.error(`${contender.name} is left out: ${(error as Error).message}`);
    return undefined;
  }
}

async function load(url: string, connections: number, seconds: string, body?: string): Promise<number> {
  const { stdout } = await run(process.execPath, [
    'bench/load.js',
    url,
    String(connections),
    seconds,
    ...(body ? [body] : []),
  ]);
  const { perSecond, refused, errors } = JSON.parse(stdout);
  if (refused + errors > 0) console.error(`${url}: ${refused} refused, ${errors} errors`);
  return perSecond;
}

/** The statement that the service prepares for the first page, as a script. */
async function writePgbenchScript(url: string): Promise<string> {
  const client = postgres(url, { max: 1 });
  let statement = '';
  const logger = {
    logQuery: (query: string, values: unknown[]) => {
      statement = query.replaceAll(/\$(\d+)/g, (_, index) => `'${values[Number(index) - 1]}'`);
    },
  };
  await preparePages(drizzle(client, { schema, logger }))({
    filter: filterOf({}),
    visibleProfiles: null,
    after: '',
    size: 25,
  });
  await client.end();
  const file = join('.cache', 'page.sql');
  await writeFile(file, `${statement.replaceAll(/\s+/g, ' ')};\n`);
  return file;
}

async function pgbench(url: string, script: string, connections: number): Promise<number | undefined> {
  const threads = String(Math.min(connections, 2));
  const options = ['-n', '-M', 'prepared', '-f', script, '-c', String(connections), '-j', threads, '-T', SECONDS, url];
  try {
    const env = { ...process.env, PGOPTIONS: '-c plan_cache_mode=force_generic_plan -c jit=off' };
    const { stdout } = await run('pgbench', options, { env });
    return Number(/tps = ([\d.]+)/.exec(stdout)?.[1]);
  } catch (error) {
    if ((error as { code?: string }).code !== 'ENOENT') throw error;
    console.error('pgbench is not installed (Debian: postgresql-client or postgresql-contrib): skipped');
    return undefined;
  }
}
