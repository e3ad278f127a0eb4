/**
 * Rolling upgrades from the last release, and with RELEASE=1 from each, while clients walk through the list: instances of the
 * release and of this checkout share a database behind HAProxy. The commands of docs/operations.md build the last release from
 * its commit; older ones are built faster, without packages for development and without type checks.
 */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { packageFolder } from '../../src/packageFolder.js';
import releases from '../database/releases.json' with { type: 'json' };
import { connectTo } from '../support/connection.js';
import { type PageResponse, startHaproxy } from '../support/haproxy.js';
import { claimNetwork } from '../support/port.js';
import { type PostgresServer, startPostgres } from '../support/postgresServer.js';
import { isInstalled, run } from '../support/programs.js';
import { MAIN, type Server, startServer } from '../support/serverProcess.js';
import { makeFolder } from '../support/temporaryFolder.js';
import { until } from '../support/until.js';
import { walkWithRetries } from '../support/walkWithRetries.js';

const CLIENTS = 3;
const NUMBERS = readFileSync(join(packageFolder, 'demo', 'numbers.ndjson'), 'utf8')
  .trim()
  .split('\n');

const withoutUpdatedAt = (item: object) => JSON.stringify({ ...item, updatedAt: undefined });

function hasRelease(version: string, commit: string): boolean {
  const isHere = spawnSync('git', ['cat-file', '-e', `${commit}^{commit}`], { cwd: packageFolder }).status === 0;
  if (!isHere) console.warn(`skipping the upgrade from ${version}: commit ${commit} is not in this clone`);
  return isHere;
}

const LAST = Object.keys(releases).at(-1);
const tested = Object.entries(releases).filter(([version]) => process.env.RELEASE === '1' || version === LAST);

describe.each(tested)('an upgrade from %s to this checkout', (version, { commit }) => {
  const canUpgrade = isInstalled('haproxy') && hasRelease(version, commit);
  let folder: string;
  let postgres: PostgresServer;
  let haproxy: Awaited<ReturnType<typeof startHaproxy>>;
  let released: string;
  /** The same numbers, with different contents. */
  let files: string[];
  const instances = new Map<number, Server>();
  /** The loopback network that replaces 10.0.0.0/16 in the configuration of deploy/. */
  let network: string;

  beforeAll(async () => {
    folder = await makeFolder('branded-phone-numbers-upgrade-');
    await chmod(folder, 0o755);
    released = await (version === LAST ? buildAsDocumented() : build());
    files = await writeVariants();
    postgres = await startPostgres();
    network = await claimNetwork();
    await run(released, ['migrate'], environment());
    for (const place of [1, 2]) await start(released, place);
    haproxy = await startHaproxy(network, folder);
    await until(async () => (await haproxy.get()).status === 200, 'HAProxy serves');
  });
  afterAll(async () => {
    if (!canUpgrade) return;
    await haproxy?.stop();
    await Promise.all([...instances.values()].map((instance) => instance.stop()));
    await postgres?.remove();
  });

  /** Runs the first commands of docs/operations.md, with another repository, folder and release; returns the command's path. */
  async function buildAsDocumented(): Promise<string> {
    const manual = await readFile(join(packageFolder, 'docs', 'operations.md'), 'utf8');
    const [commands = ''] = /^git clone REPOSITORY .*\ngit .*\nmake .*\n/m.exec(manual) ?? [];
    const [, namedVersion = '', namedCommit = ''] =
      /branded-phone-numbers-(\S+)[\s\S]* checkout --detach (\w+)/.exec(commands) ?? [];
    expect([namedVersion, commit]).toEqual([version, expect.stringMatching(`^${namedCommit}`)]);
    const script = commands.replaceAll('/opt', folder).replace('REPOSITORY', pathToFileURL(packageFolder).href);
    // Without the flags of the make that runs this test.
    const { MAKEFLAGS, ...env } = process.env;
    await run('bash', ['-ec', script], { env, maxBuffer: 2 ** 26 });
    return join(folder, `branded-phone-numbers-${version}`, 'dist', 'src', 'main.js');
  }

  /** Builds the release with this checkout's compiler; returns the command's path. */
  async function build(): Promise<string> {
    const cwd = join(folder, version);
    await run('git', ['clone', '--quiet', '--no-checkout', packageFolder, cwd]);
    await run('git', ['checkout', '--quiet', '--detach', commit], { cwd });
    await run('npm', ['ci', '--omit=dev', '--ignore-scripts', '--prefer-offline'], { cwd });
    await run(join(packageFolder, 'node_modules', '.bin', 'tsc'), ['-p', 'tsconfig.build.json', '--noCheck'], { cwd });
    await chmod(join(cwd, 'dist', 'src', 'main.js'), 0o755);
    return join(cwd, 'dist', 'src', 'main.js');
  }

  async function writeVariants(): Promise<string[]> {
    const changed = NUMBERS.map((line) =>
      line
        .replaceAll('approved.optIn', 'approved.optOut')
        .replace(/"brandingNameShort":[^,]+/, '"brandingNameShort":"Changed"'),
    );
    const variants = { 'numbers.ndjson': NUMBERS, 'changed.ndjson': changed };
    for (const [name, lines] of Object.entries(variants)) await writeFile(join(folder, name), lines.join('\n'));
    return Object.keys(variants).map((name) => join(folder, name));
  }

  const environment = () => ({ cwd: folder, env: { ...process.env, DATABASE_URL: postgres.url } });

  /** Replaces the instance at one of HAProxy's two addresses by an instance of `command`. */
  async function start(command: string, place: number): Promise<void> {
    await instances.get(place)?.stop();
    const host = `${network}.1.${place}`;
    const settings = { HOST: host, PORT: '3000', METRICS_HOST: host, METRICS_PORT: '9464', TRUST_PROXY: '1' };
    const home = join(folder, `instance${place}`);
    await mkdir(home, { recursive: true });
    instances.set(
      place,
      await startServer([command, 'serve'], { ...settings, DATABASE_URL: postgres.url }, { folder: home }),
    );
  }

  /** Migrates during a VACUUM that takes as long as that of a large table: clients must not wait for either. */
  async function migrateBesideVacuum(): Promise<void> {
    const sql = connectTo(postgres.url);
    const slow = connectTo(postgres.url, { connection: { vacuum_cost_delay: 50, vacuum_cost_limit: 1 } });
    const vacuum = slow`VACUUM (DISABLE_PAGE_SKIPPING) items`;
    const isRunning = async () => (await sql`SELECT FROM pg_stat_progress_vacuum`).length > 0;
    await Promise.race([vacuum, until(isRunning, 'VACUUM runs')]);
    const { stderr } = await run(MAIN, ['migrate'], environment());
    if (version === '1.0.0')
      expect(stderr).toMatch(/^waiting for transactions of other programs to end:\n {2}process /m);
    await vacuum;
    await Promise.all([sql.end(), slow.end()]);
  }

  it.skipIf(!canUpgrade)('both versions serve correct pages while both import changes', async () => {
    const failures: PageResponse[] = [];
    const walkWith = (client: number) => walkWithRetries((search) => haproxy.get(search, client), failures, 50);
    // The items of each file, without `updatedAt`, which depends on the order of the imports.
    const variants: string[][] = [];
    for (const file of files) {
      await run(released, ['import', file], environment());
      variants.push((await walkWith(0)).map(withoutUpdatedAt));
    }
    expect(variants.map(({ length }) => length)).toEqual([NUMBERS.length, NUMBERS.length]);
    expect(variants[0]).not.toEqual(variants[1]);

    let isOver = false;
    const walks: object[][] = [];
    const clients = Array.from({ length: CLIENTS }, async (_, client) => {
      while (!isOver) walks.push(await walkWith(client));
      walks.push(await walkWith(client));
    });
    async function upgrade() {
      await migrateBesideVacuum();
      for (const place of [1, 2]) {
        await sleep(2500);
        await start(MAIN, place);
        for (const [one = '', other = ''] of [files, files.toReversed()]) {
          await Promise.all([
            run(released, ['import', one], environment()),
            run(MAIN, ['import', other], environment()),
          ]);
        }
      }
    }
    await upgrade().finally(() => {
      isOver = true;
    });
    await Promise.all(clients);

    expect(failures).toEqual([]);
    expect(walks.length).toBeGreaterThan(2 * CLIENTS);
    for (const walked of walks) {
      expect(walked).toHaveLength(NUMBERS.length);
      const wrong = walked.map(withoutUpdatedAt).filter((item, i) => variants.every((items) => items[i] !== item));
      expect(wrong).toEqual([]);
    }
    const { stdout } = await run(MAIN, ['check'], environment());
    expect(stdout).toBe('OK: the read model matches its sources\n');
  });
});
