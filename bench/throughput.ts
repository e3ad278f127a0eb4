/** Requests a second, for the first page and for a mix: our server, with and without its limit, and others on the same data. */
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { drizzle } from 'drizzle-orm/postgres-js';
import postgres from 'postgres';
import * as schema from '../src/database/schema.js';
import { preparePages } from '../src/page/page.js';
import { filterOf } from '../src/request/filter.js';
import { pgbench } from './changes.js';
import { phoneNumberAt } from './data.js';
import { PATH, quantiles, searchOf } from './latency.js';
import { type Server, startServer } from './server.js';

const run = promisify(execFile);
/** Rounds of the contenders that are compared; the generated GraphQL servers, which are far behind, get one. */
const ROUNDS = Number(process.env.BENCH_LOAD_ROUNDS ?? 3);
const SECONDS = Number(process.env.BENCH_LOAD_SECONDS ?? 2);
const CONNECTIONS = [1, 8, 64];
/** The examples of the specification's section 4, each as often as the others. */
const MIX = [
  {},
  { phoneNumber: phoneNumberAt(50_000) },
  { status: ['submitted for review' as const] },
  { status: ['approved' as const, 'rejected' as const] },
  { carrier: ['AT&T'], feature: ['brandedCallerId' as const], status: ['approved.optIn' as const] },
  { feature: ['spamRemediation' as const], status: ['approved.optIn' as const] },
].map((request) => `${PATH}?${searchOf(request)}`);

export interface Throughput {
  name: string;
  load: 'first page' | 'mix';
  connections: number;
  perSecond: number;
}

interface Contender {
  name: string;
  command: string[];
  path: string;
  /** Answers the specification's filters. */
  canMix?: boolean;
  environment?: Record<string, string>;
  body?: string;
}

const POSTGRAPHILE = `{ allBrandedPhoneNumbers(first: 26, orderBy: PRIMARY_KEY_ASC) { nodes {
  id phoneNumber businessProfileByBusinessProfileId { id businessName status } internalName brandingNameShort
  brandingNameLong reportingGroup status createdAt updatedAt
  carrierStatusesByPhoneNumber(orderBy: PRIMARY_KEY_ASC) { nodes { carrier feature detailedStatus createdAt } } } } }`;

// It has no field for the entries, whose key has several columns; but the derived `itemTail` contains them.
const PLATFORMATIC = `{ items(limit: 26, orderBy: { field: phoneNumber, direction: ASC }) {
  id phoneNumber businessProfileId itemTail } }`;

/** The statement of the first page and its values, as JSON. */
const statementFile = join('.cache', 'page.json');

const main = 'dist/src/main.js';
export const OURS = {
  name: 'ours, everything on',
  command: [main, 'serve'],
  path: PATH,
  canMix: true,
  environment: { TRUST_PROXY: '1', RATE_LIMIT_PER_SECOND: '10' },
};
const CONTENDERS: Contender[] = [
  { name: 'Fastify + postgres.js, obvious query', command: ['bench/fastify.js'], path: PATH, canMix: true },
  OURS,
  {
    name: 'node:http + postgres.js, our query',
    command: ['bench/bare.js'],
    path: PATH,
    environment: { STATEMENT: statementFile },
  },
  { name: 'ours, no limit', command: [main, 'serve'], path: PATH, environment: { RATE_LIMIT_PER_SECOND: '0' } },
  {
    name: 'PostGraphile 5',
    command: ['bench/postgraphile.js'],
    path: '/graphql',
    body: JSON.stringify({ query: POSTGRAPHILE }),
  },
  {
    name: 'Platformatic DB',
    command: ['bench/platformatic.js'],
    path: '/graphql',
    body: JSON.stringify({ query: PLATFORMATIC }),
  },
];

/** Alternates between short runs of all contenders for several rounds, and keeps the median of each. */
export async function measureThroughput(url: string): Promise<Throughput[]> {
  const runs = new Map<string, number[]>();
  const note = (name: string, load: string, connections: number, perSecond: number) => {
    const key = JSON.stringify([name, load, connections]);
    runs.set(key, [...(runs.get(key) ?? []), perSecond]);
  };
  const script = await writeStatement(url);
  for (let round = 0; round < ROUNDS; round++) {
    console.error(`  round ${round + 1} of ${ROUNDS}`);
    for (const contender of CONTENDERS) {
      const { name, path, body, canMix } = contender;
      if (body && round > 0) continue;
      const server = await start(contender, url);
      if (!server) continue;
      const paths = canMix ? MIX : [path];
      await measureLoad({ origin: server.url, paths, connections: 8, seconds: 1, body });
      for (const connections of CONNECTIONS) {
        const of = { origin: server.url, connections, seconds: SECONDS, body };
        note(name, 'first page', connections, await measureLoad({ ...of, paths: [path] }));
        if (canMix) note(name, 'mix', connections, await measureLoad({ ...of, paths }));
      }
      await server.stop();
    }
    for (const connections of CONNECTIONS) {
      const perSecond = await pgbench(url, script, connections, SECONDS);
      if (perSecond !== undefined) note('pgbench -M prepared, our query', 'first page', connections, perSecond);
    }
  }
  return [...runs].map(([key, values]) => {
    const [name, load, connections] = JSON.parse(key);
    return { name, load, connections, perSecond: quantiles(values).median };
  });
}

async function start(contender: Contender, url: string): Promise<Server | undefined> {
  const { command, path, body, environment } = contender;
  try {
    return await startServer(command, body ? '/ready' : path, {
      DATABASE_URL: url,
      LOG_LEVEL: 'info',
      ...environment,
    });
  } catch (error) {
    console.error(`${contender.name} is left out: ${(error as Error).message}`);
    return undefined;
  }
}

interface Load {
  origin: string;
  paths: string[];
  connections: number;
  seconds: number;
  headers?: Record<string, string>;
  body?: string | undefined;
}

/** Requests a second. */
export async function measureLoad(wanted: Load): Promise<number> {
  const { stdout } = await run(process.execPath, ['bench/load.js', JSON.stringify(wanted)]);
  const { perSecond, refused, errors } = JSON.parse(stdout);
  if (refused + errors > 0) console.error(`${wanted.origin}: ${refused} refused, ${errors} errors`);
  return perSecond;
}

/** Writes the statement that the service prepares for the first page, for the bare server and as a script of pgbench. */
async function writeStatement(url: string): Promise<string> {
  const client = postgres(url, { max: 1 });
  let sent: { query: string; values: unknown[] } = { query: '', values: [] };
  const logger = {
    logQuery: (query: string, values: unknown[]) => {
      sent = { query, values };
    },
  };
  await preparePages(drizzle(client, { schema, logger }))({
    filter: filterOf({}),
    visibleProfiles: null,
    after: '',
    size: 25,
  });
  await client.end();
  await writeFile(statementFile, JSON.stringify(sent));
  const file = join('.cache', 'page.sql');
  const script = sent.query.replaceAll(/\$(\d+)/g, (_, index) => `'${sent.values[Number(index) - 1]}'`);
  await writeFile(file, `${script.replaceAll(/\s+/g, ' ')};\n`);
  return file;
}
