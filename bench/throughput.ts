/**
 * Requests per second, and CPU time per request, for the first page and for a mix of requests: our service and other servers on
 * the same data. wrk loads them, since it takes little of the CPU that they share with it.
 */
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import postgres from 'postgres';
import { filterOf } from '../src/page/filter.js';
import { recordPages } from '../test/support/explain.js';
import { phoneNumberAt } from '../test/support/generatedNumbers.js';
import { type Server, startServer } from '../test/support/serverProcess.js';
import { postmasterPid } from './commands.js';
import { PATH, searchOf } from './latency.js';
import { hasPgbench, pgbench } from './pgbench.js';
import { MAIN, RESULTS } from './program.js';

const run = promisify(execFile);
const ROUNDS = Number(process.env.BENCH_LOAD_ROUNDS ?? 5);
const SECONDS = Number(process.env.BENCH_LOAD_SECONDS ?? 2);
export const CONNECTIONS = [1, 8, 64];
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
  /** Of each round, by the number of connections. */
  samples: Record<number, Sample[]>;
}

/** Requests per second, and CPU microseconds per request, of the server's process and of PostgreSQL's; not of pgbench's. */
export type Sample = { perSecond: number; node?: number; postgres?: number };

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

/** Runs all contenders at once on the database at `url`, or at their own, and measures them in turn. */
export async function measureThroughput(url: string, contenders = CONTENDERS): Promise<Throughput[]> {
  const statement = await recordFirstPage(url);
  await writeFile(STATEMENT, JSON.stringify(statement));
  const postmaster = await postmasterPid(url);
  const servers: Server[] = [];
  const cases: (Throughput & { measure(connections: number): Promise<Sample> })[] = [];
  for (const contender of contenders) {
    const server = await startContender(contender, url);
    servers.push(server);
    const { name, canMix = false } = contender;
    for (const load of canMix ? (['first page', 'mix'] as const) : (['first page'] as const)) {
      const paths = load === 'mix' ? MIX : [PATH];
      const measure = (connections: number) => measureLoad({ server, postmaster, paths, connections });
      cases.push({ name, load, samples: {}, measure });
    }
  }
  if (hasPgbench) {
    const rate = (connections: number) => pgbench(url, pgbenchScript(statement), connections, SECONDS);
    const measure = async (connections: number) => ({ perSecond: await rate(connections) });
    cases.push({ name: 'pgbench -M prepared, our query', load: 'first page', samples: {}, measure });
  }
  // In round 0, connections to PostgreSQL are opened, and V8 compiles.
  for (let round = 0; round <= ROUNDS; round++) {
    console.error(`  round ${round} of ${ROUNDS}`);
    for (const connections of CONNECTIONS) {
      for (const { samples, measure } of cases) {
        const sample = await measure(connections);
        if (round > 0) samples[connections] = [...(samples[connections] ?? []), sample];
      }
    }
  }
  await Promise.all(servers.map((server) => server.stop()));
  return cases;
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
  server: Server;
  postmaster: number;
  paths: string[];
  connections: number;
}

async function measureLoad({ server, postmaster, paths, connections }: Load): Promise<Sample> {
  const readCpu = () => Promise.all([cpuOf(`${server.child.pid}`), cpuOf(`$(pgrep -P ${postmaster})`)]);
  const options = ['-t1', `-c${connections}`, `-d${SECONDS}`, '--timeout=10', '-s', 'bench/load.lua', server.url, '--'];
  const before = await readCpu();
  const { stdout } = await run('wrk', [...options, ...paths]);
  const after = await readCpu();
  const { requests, seconds, refused, errors } = JSON.parse(stdout.trim().split('\n').at(-1) ?? '');
  if (refused + errors > 0) console.error(`${server.url}: ${refused} refused, ${errors} errors`);
  const [node = 0, postgres = 0] = after.map((cpu, index) => (cpu - (before[index] ?? 0)) / requests);
  return { perSecond: requests / seconds, node, postgres };
}

/** Returns the CPU microseconds of all threads of processes, whose ids the shell reads. */
async function cpuOf(pids: string): Promise<number> {
  const files = `for pid in ${pids}; do cat /proc/$pid/task/*/schedstat; done`;
  const { stdout } = await run('sh', ['-c', `(${files}) | awk '{ sum += $1 } END { printf "%.0f", sum / 1000 }'`]);
  return Number(stdout);
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
