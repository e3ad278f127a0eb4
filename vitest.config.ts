import { join } from 'node:path';
import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** CI machines are shared, so a test that kills and waits for long is tried once more there. */
const retry = process.env.CI ? 1 : 0;

const isRelease = process.env.RELEASE === '1';

/** The factors of random tests of `make test`: by itself, in CI, and before a release. On a second version of PostgreSQL, one less. */
const TRIES = [0.125, 0.5, 1];
const step = isRelease ? 2 : process.env.CI ? 1 : 0;
const tries = TRIES.at(Math.max(0, process.env.TEST_POSTGRES_VERSION ? step - 1 : step)) ?? 1;

/** Where `make test-clients` puts the clients. */
const CLIENTS = join(import.meta.dirname, '.cache', 'clients');

/** Files that take longest, beginning with the longest. Without an earlier run to learn from, Vitest begins with the largest. */
const LONGEST = [
  ...['browser/docs', 'steps', 'embeddedPostgres/embeddedPostgres', 'standby', 'log', 'serve', 'redisSetups'],
  ...['stopping', 'progress', 'queue', 'waiting', 'importUnfinished', 'export', 'limiter', 'migrations'],
  ...['lookUps', 'slowClients', 'combination.random', 'plans.random', 'strangers', 'pipelining', 'slowDatabase'],
  ...['failures', 'faults/database', 'writers.random', 'commands/database', 'check', 'rateLimit', 'shown.random'],
  ...['operating.soak', 'strangers.soak', 'looks.soak', 'signals.soak', 'migrations.soak', 'embeddedPostgres.soak'],
  ...['manyRows.soak', 'memory.timing.soak', 'twoInstancesRedis.timing.soak', 'twoInstancesPostgres.timing.soak'],
  'expensiveRequests.timing.soak',
].map((name) => `/${name}.test.ts`);

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ moduleId }: TestSpecification) => {
      const index = LONGEST.findIndex((name) => moduleId.endsWith(name));
      return index < 0 ? LONGEST.length : index;
    };
    return (await super.sort(files)).toSorted((one, other) => rank(one) - rank(other));
  }
}

/** A test's file name, or its folder, says which of them runs it, and how: CONTRIBUTING.md has the table. */
const projects = [
  {
    name: 'parallel',
    include: ['test/**/*.test.ts'],
    exclude: ['test/**/*.{soak,versions}.test.ts', 'test/{cluster,deploy,installation}/**'],
    // The service takes a second to load; no file leaves anything behind that another one could meet.
    isolate: false,
    // Some mostly wait.
    maxWorkers: 5,
    provide: { tries },
  },
  {
    name: 'soak',
    include: ['test/**/*.{random,soak}.test.ts'],
    exclude: ['test/**/*.timing.soak.test.ts'],
    provide: { tries: 3 },
    maxWorkers: 5,
    retry,
  },
  {
    name: 'timing soak',
    include: ['test/**/*.timing.soak.test.ts'],
    provide: { tries: isRelease ? 3 : 2 },
    maxWorkers: 4,
    retry,
  },
  { name: 'versions', include: ['test/**/*.versions.test.ts'] },
  // One cluster at a time: two would compete for the CPU and miss the times that are promised. CI runs other targets beside it.
  {
    name: 'cluster',
    include: ['test/cluster/*.test.ts'],
    testTimeout: 600_000,
    hookTimeout: 600_000,
    maxWorkers: 1,
    retry,
  },
  {
    name: 'installation',
    include: ['test/installation/*.test.ts'],
    testTimeout: 600_000,
    hookTimeout: 600_000,
    // One after the other: each installs some four hundred packages.
    maxWorkers: 1,
  },
  // Two at a time: they mostly wait.
  { name: 'deploy', include: ['test/deploy/*.test.ts'], testTimeout: 300_000, maxWorkers: 2, retry },
  {
    name: 'clients',
    include: ['clients/**/*.test.ts'],
    // The tests import the clients as their users do.
    alias: {
      'branded-phone-numbers-client': join(CLIENTS, 'installed/typescript/node_modules/branded-phone-numbers-client'),
      'reference-client': join(CLIENTS, 'reference/index.ts'),
      'openapi-fetch': join(CLIENTS, 'openapi-fetch/node_modules/openapi-fetch'),
    },
    // Linters, compilers and downloads take as long as a busy machine needs.
    testTimeout: 600_000,
    // One after the other: they share one rate limit.
    maxWorkers: 1,
    // All programs of the READMEs at once: some wait for a minute.
    maxConcurrency: 16,
  },
];

export default defineConfig({
  test: {
    // One PostgreSQL for the whole run.
    globalSetup: ['test/support/postgres.ts'],
    sequence: { sequencer: LongestFirst },
    // One project after the other.
    projects: projects.map((test, groupOrder) => ({
      test: { testTimeout: 120_000, hookTimeout: 120_000, ...test, sequence: { groupOrder } },
    })),
  },
});
