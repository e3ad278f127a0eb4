/** Requests per second, for the first page and for a mix of requests: our service and other servers on the same data. */
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import postgres from 'postgres';
import { filterOf } from '../src/page/filter.js';
import { recordPages } from '../test/support/explain.js';
import { phoneNumberAt } from '../test/support/generatedNumbers.js';
import { type Server, startServer } from '../test/support/serverProcess.js';
import { PATH, searchOf } from './latency.js';
import { mediansInTurn } from './medians.js';
import { hasPgbench, pgbench } from './pgbench.js';
import { MAIN, RESULTS } from './program.js';

const run = promisify(execFile);
const ROUNDS = Number(process.env.BENCH_LOAD_ROUNDS ?? 3);
const SECONDS = Number(process.env.BENCH_LOAD_SECONDS ?? 2);
const CONNECTIONS = [1, 8, 64];
/** The examples in section 4 of the specification. */
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
  /** Arguments of `node`. */
  command: string[];
  /** Whether it has the filters of `MIX`. */
  canMix?: boolean;
  environment?: Record<string, string>;
}

/** The statement of the first page and its values, as JSON. */
const STATEMENT = join(RESULTS, 'firstPage.statement');

const serve = [MAIN, 'serve'];
const unlimited = { RATE_LIMIT_PER_SECOND: '0' };
const limited = { RATE_LIMIT_PER_SECOND: '10', TRUST_PROXY: '1' };
export const OURS: Contender = { name: 'ours, everything on', command: serve, environment: limited, canMix: true };
export const OURS_UNLIMITED: Contender = { name: 'ours, no limit', command: serve, environment: unlimited };
export const BY_HAND: Contender = {
  name: 'Fastify + postgres.js, obvious query',
  command: ['bench/fastify.js'],
  canMix: true,
};
export const BARE: Contender = {
  name: 'node:http + postgres.js, our query',
  command: ['bench/bare.js'],
  environment: { STATEMENT },
};
const CONTENDERS = [BY_HAND, OURS, BARE, OURS_UNLIMITED];

/** Runs all contenders at once on the database at `url`, and measures them in turn. */
export async function measureThroughput(url: string, contenders = CONTENDERS): Promise<Throughput[]> {
  const statement = await recordFirstPage(url);
  await writeFile(STATEMENT, JSON.stringify(statement));
  const servers: Server[] = [];
  const cases: (Omit<Throughput, 'perSecond'> & { measure(): Promise<number> })[] = [];
  for (const contender of contenders) {
    const server = await startContender(contender, url);
    servers.push(server);
    const { name, canMix = false } = contender;
    const origin = server.url;
    for (const load of canMix ? (['first page', 'mix'] as const) : (['first page'] as const)) {
      const paths = load === 'mix' ? MIX : [PATH];
      await measureLoad({ origin, paths, connections: 8, seconds: 1 });
      for (const connections of CONNECTIONS) {
        const measure = () => measureLoad({ origin, paths, connections, seconds: SECONDS });
        cases.push({ name, load, connections, measure });
      }
    }
  }
  for (const connections of hasPgbench ? CONNECTIONS : []) {
    const measure = () => pgbench(url, pgbenchScript(statement), connections, SECONDS);
    cases.push({ name: 'pgbench -M prepared, our query', load: 'first page', connections, measure });
  }
  const measured = await mediansInTurn(cases, ROUNDS);
  await Promise.all(servers.map((server) => server.stop()));
  return measured.map(({ name, load, connections, median }) => ({ name, load, connections, perSecond: median }));
}

/** Starts a contender on the database at `url`, and waits until it is ready. */
function startContender({ command, environment }: Contender, url: string): Promise<Server> {
  return startServer(
    [process.execPath, ...command],
    { DATABASE_URL: url, LOG_LEVEL: 'info', ...environment },
    { path: PATH },
  );
}

interface Load {
  origin: string;
  paths: string[];
  connections: number;
  seconds: number;
  headers?: Record<string, string>;
}

/** Returns the requests per second. */
export async function measureLoad(load: Load): Promise<number> {
  const { stdout } = await run(process.execPath, ['bench/load.js', JSON.stringify(load)]);
  const { perSecond, refused, errors } = JSON.parse(stdout);
  if (refused + errors > 0) console.error(`${load.origin}: ${refused} refused, ${errors} errors`);
  return perSecond;
}

interface Statement {
  query: string;
  values: unknown[];
}

/** Returns the statement that the service prepares for the first page. */
async function recordFirstPage(url: string): Promise<Statement> {
  const client = postgres(url, { max: 1 });
  const { readPage, sent } = recordPages(client);
  await readPage({ filter: filterOf({}), visibleProfiles: null, after: '', size: 25 });
  await client.end();
  return sent[0] as Statement;
}

/** Returns the statement on one line, with its values. */
function pgbenchScript({ query, values }: Statement): string {
  const sql = query.replaceAll(/\$(\d+)/g, (_, index) => `'${values[Number(index) - 1]}'`);
  return `${sql.replaceAll(/\s+/g, ' ')};\n`;
}
