/** Requests a second, for the first page and for a mix: our server, with and without its limit, and others on the same data. */
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import postgres from 'postgres';
import { filterOf } from '../src/page/filter.js';
import { recordPages } from '../test/support/explain.js';
import { phoneNumberAt } from '../test/support/generatedNumbers.js';
import { type Server, startServer } from '../test/support/measuredServer.js';
import { PATH, quantiles, searchOf } from './latency.js';
import { pgbench } from './updates.js';

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

export interface Contender {
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
  brandingNameLong reportingGroup createdAt updatedAt
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
export const BARE = {
  name: 'node:http + postgres.js, our query',
  command: ['bench/bare.js'],
  path: PATH,
  environment: { STATEMENT: statementFile },
};
export const OURS_UNLIMITED = {
  name: 'ours, no limit',
  command: [main, 'serve'],
  path: PATH,
  environment: { RATE_LIMIT_PER_SECOND: '0' },
};
const CONTENDERS: Contender[] = [
  { name: 'Fastify + postgres.js, obvious query', command: ['bench/fastify.js'], path: PATH, canMix: true },
  OURS,
  BARE,
  OURS_UNLIMITED,
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

/** Loads all contenders for a moment, in random order, for several rounds, and keeps the median of each. */
export async function measureThroughput(url: string, contenders = CONTENDERS): Promise<Throughput[]> {
  const runs = new Map<string, number[]>();
  const script = await writeStatement(url);
  const servers: Server[] = [];
  const turns: { of: Omit<Throughput, 'perSecond'>; rounds: number; measure(): Promise<number | undefined> }[] = [];
  for (const contender of contenders) {
    const { name, path, body, canMix } = contender;
    const server = await start(contender, url);
    if (!server) continue;
    servers.push(server);
    const paths = { 'first page': [path], ...(canMix ? { mix: MIX } : {}) };
    await measureLoad({ origin: server.url, paths: Object.values(paths).flat(), connections: 8, seconds: 1, body });
    for (const [load, asked] of Object.entries(paths) as [Throughput['load'], string[]][]) {
      for (const connections of CONNECTIONS) {
        const of = { origin: server.url, paths: asked, connections, seconds: SECONDS, body };
        turns.push({ of: { name, load, connections }, rounds: body ? 1 : ROUNDS, measure: () => measureLoad(of) });
      }
    }
  }
  for (const connections of CONNECTIONS) {
    const of = { name: 'pgbench -M prepared, our query', load: 'first page' as const, connections };
    turns.push({ of, rounds: ROUNDS, measure: () => pgbench(url, script, connections, SECONDS) });
  }
  for (let round = 0; round < ROUNDS; round++) {
    console.error(`  round ${round + 1} of ${ROUNDS}`);
    const inAnyOrder = turns.map((turn) => ({ ...turn, place: Math.random() })).sort((a, b) => a.place - b.place);
    for (const { of, rounds, measure } of inAnyOrder) {
      const perSecond = round < rounds ? await measure() : undefined;
      const key = JSON.stringify(of);
      if (perSecond !== undefined) runs.set(key, [...(runs.get(key) ?? []), perSecond]);
    }
  }
  await Promise.all(servers.map((server) => server.stop()));
  // In the order of the contenders, whoever was loaded first.
  return turns.flatMap(({ of }) => {
    const rates = runs.get(JSON.stringify(of));
    return rates ? [{ ...of, perSecond: quantiles(rates).median }] : [];
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
  const { readPage, sent } = recordPages(client);
  await readPage({
    filter: filterOf({}),
    visibleProfiles: null,
    after: '',
    size: 25,
  });
  await client.end();
  const [statement] = sent as [{ query: string; values: unknown[] }];
  await writeFile(statementFile, JSON.stringify(statement));
  const file = join('.cache', 'page.sql');
  const script = statement.query.replaceAll(/\$(\d+)/g, (_, index) => `'${statement.values[Number(index) - 1]}'`);
  await writeFile(file, `${script.replaceAll(/\s+/g, ' ')};\n`);
  return file;
}
