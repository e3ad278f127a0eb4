/**
 * Tests the clients that the command line names against a running service, each installed from its package and tested
 * in its language; or runs Schemathesis.
 */
import { execFileSync, spawn } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { stripVTControlCharacters } from 'node:util';
import { contract } from '../../src/contract.js';
import { withConnection } from '../../src/database/connection.js';
import { migrateDatabase } from '../../src/database/migrations.js';
import { createApiKey } from '../../src/keys/keys.js';
import { importNumbers } from '../../src/operator/numbers/import.js';
import { migrationsFolder } from '../../src/packageFolder.js';
import { startPostgres } from '../../test/support/postgresServer.js';
import { listenOn } from '../../test/support/service.js';
import { startFailing } from './failing.js';
import { startGrown } from './grown.js';
import { malformedSteps } from './malformed.js';
import { lines } from './numbers.js';
import { startUntrusted } from './untrusted.js';

const root = join(import.meta.dirname, '..', '..');
const cache = join(root, '.cache', 'clients');
const packages = join(root, 'packages');

/** Returns the path of the package that `make clients` built, by the end of its name. */
function packed(ending: string): string {
  const files = readdirSync(packages, { recursive: true, encoding: 'utf8' });
  const name = files.find((file) => file.includes(contract.info.version) && file.endsWith(ending));
  if (!name) throw new Error(`there is no ${ending} in ${packages}: run make clients`);
  return join(packages, name);
}

/** Creates an empty folder, like the project of a user who installs the package of `client`. */
function emptyProject(client: string): string {
  const folder = join(cache, 'installed', client);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  return folder;
}

/**
 * Functions that install a client. They return the command that tests it, and a pattern for the number of passed tests.
 */
const clients: Record<string, () => Omit<Run, 'name'>> = {
  typescript() {
    const project = emptyProject('typescript');
    execFileSync('npm', ['install', '--silent', '--prefix', project, packed('.tgz')]);
    execFileSync('node_modules/.bin/tsc', ['-p', 'clients'], { cwd: root, stdio: 'inherit' });
    return { command: vitest('typescript', 'reference'), passed: /Tests .*?(\d+) passed/g };
  },
  python() {
    const project = emptyProject('python');
    execFileSync('python3', ['-m', 'venv', '--without-pip', project]);
    const python = join(project, 'bin', 'python');
    const requirements = join(root, 'clients', 'python', 'requirements-test.txt');
    const install = ['pip', 'install', '--quiet', '--python', project];
    execFileSync(join(root, '.cache', 'uv', 'bin', 'uv'), [...install, '-r', requirements, packed('.whl')]);
    return { command: [python, '-m', 'pytest', '-p', 'no:cacheprovider', 'clients/python'], passed: /(\d+) passed/g };
  },
  java() {
    const project = emptyProject('java');
    cpSync(packed(`-${contract.info.version}.jar`), join(project, 'client.jar'));
    cpSync(join(cache, 'java', 'target', 'lib'), project, { recursive: true });
    return {
      // Without Java's second compiler, as in .ci/run.
      command: ['mvn', '-B', '--no-transfer-progress', '-DargLine=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC', 'test'],
      folder: join(cache, 'java'),
      passed: /^.*Tests run: (\d+), .*Time elapsed/gm,
    };
  },
  go() {
    const project = emptyProject('go');
    cpSync(join(root, 'clients', 'go', 'client_test.go'), join(project, 'client_test.go'));
    // Go caches each version of a module permanently, but this one is rebuilt with the same version.
    emptyProject('go-modules');
    Object.assign(process.env, {
      GOPROXY: `file://${join(packages, 'go')}`,
      GONOSUMDB: '*',
      GOMODCACHE: join(cache, 'installed', 'go-modules'),
      GOFLAGS: '-mod=mod -modcacherw',
      GODEBUG: 'goindex=0',
    });
    const module = 'branded-phone-numbers.example/clients/go';
    writeFileSync(join(project, 'go.mod'), 'module example/user\n\ngo 1.23\n');
    execFileSync('go', ['get', `${module}@latest`], { cwd: project, stdio: 'inherit' });
    return { command: ['go', 'test', '-v', '-count=1', '.'], folder: project, passed: /^ *--- PASS/gm };
  },
};

/** Clients that `make test-clients` has already prepared. */
const prepared: Record<string, () => Omit<Run, 'name'>> = {
  'openapi-fetch': () => ({ command: vitest('openapi-fetch'), passed: /Tests .*?(\d+) passed/g }),
  'openapi-python-client': () => {
    const made = join(cache, 'openapi-python-client');
    return {
      command: [
        ...[join(made, 'bin', 'python'), '-m', 'pytest', '-p', 'no:cacheprovider'],
        // Quoted, because pytest splits this option as a shell does.
        ...['-o', `pythonpath='${join(made, 'generated')}'`, 'clients/generators/openapi-python-client'],
      ],
      passed: /(\d+) passed/g,
    };
  },
  'oapi-codegen': () => ({
    command: [join(cache, 'oapi-codegen', 'client.test'), '-test.v'],
    passed: /^ *--- PASS/gm,
  }),
  ruby: () => ({
    command: ['ruby', '-I', join(cache, 'ruby', 'lib'), join(root, 'clients', 'generators', 'ruby', 'client_test.rb')],
    passed: /(\d+) runs, \d+ assertions, 0 failures, 0 errors/g,
  }),
  php: () => ({
    command: ['php', join(root, 'clients', 'generators', 'php', 'client_test.php')],
    passed: /^ok /gm,
  }),
  postman: () => ({
    command: [
      ...[join(cache, 'postman', 'node_modules', '.bin', 'newman'), 'run', '--color', 'off'],
      'dist/branded-phone-numbers.postman_collection.json',
    ],
    // One assertion for each request.
    passed: /assertions │ +(\d+)/g,
    // This service requires a key, which the collection always sends, and has a low rate limit.
    options: ({ BUSY_URL, API_KEY }) => ['--env-var', `baseUrl=${BUSY_URL}`, '--env-var', `apiKey=${API_KEY}`],
  }),
};

/** Returns a run of Schemathesis against the service at `url`, by the contract that it serves. */
function schemathesis(name: string, url = '', examples: number, options: string[] = []): Run {
  // It writes files for its next run into its working directory.
  const folder = join(cache, 'schemathesis');
  const command = [
    join(folder, 'bin', 'schemathesis'),
    ...['--config-file', join(root, 'clients', 'schemathesis', 'schemathesis.toml')],
    ...['run', `${url}/openapi.yaml`, '--url', url, '--max-examples', String(examples), ...options],
  ];
  return { name, command, folder, passed: /generated, (\d+) passed/g };
}

const vitest = (...files: string[]) => ['node_modules/.bin/vitest', 'run', '--project', 'clients', ...files];

/** Runs a command, and returns its output with the exit status. */
async function run([program = '', ...options]: string[], folder: string, environment: NodeJS.ProcessEnv) {
  const child = spawn(program, options, { cwd: folder, env: environment, stdio: ['ignore', 'pipe', 'inherit'] });
  const [output, status] = await Promise.all([
    child.stdout.toArray().then((chunks) => Buffer.concat(chunks).toString()),
    new Promise<number | null>((resolve) => child.once('exit', resolve)),
  ]);
  return { output, status };
}

/** Runs `use` with the addresses of several services with the same numbers, in environment variables. */
async function withService(use: (environment: NodeJS.ProcessEnv) => Promise<void>): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'branded-phone-numbers-clients-'));
  const postgres = await startPostgres();
  try {
    await migrateDatabase(postgres.url, migrationsFolder);
    await importNumbers(postgres.url, Readable.from([Buffer.from(lines.join('\n'))]));
    const { key } = await withConnection(postgres.url, (connection) =>
      connection.run((database) => createApiKey(database, 'a partner')),
    );
    const start = (RATE_LIMIT_PER_SECOND: string, AUTH = 'none') =>
      listenOn(postgres.url, { LOG_LEVEL: 'error', RATE_LIMIT_PER_SECOND, AUTH });
    const [service, limited] = [await start('0'), await start('10')];
    const [keyed, busy] = [await start('0', 'api-key'), await start('3', 'api-key')];
    const [grown, failing] = [await startGrown(service.url), await startFailing(service.url)];
    const untrusted = await startUntrusted(folder);
    await use({
      ...process.env,
      SERVICE_URL: service.url,
      LIMITED_URL: limited.url,
      GROWN_URL: grown.url,
      FAILING_URL: failing.url,
      KEYED_URL: keyed.url,
      BUSY_URL: busy.url,
      API_KEY: key,
      SHAPES: join(root, 'clients', 'live', 'shapes.json'),
      MALFORMED: malformedSteps.join(' '),
      UNTRUSTED_URL: untrusted.url,
      UNTRUSTED_COUNT_URL: untrusted.countUrl,
      CACHE: cache,
    });
    grown.close();
    failing.close();
    untrusted.close();
    await Promise.all([service.close(), limited.close(), keyed.close(), busy.close()]);
  } finally {
    await postgres.remove();
    rmSync(folder, { recursive: true, force: true });
  }
}

const results: string[] = [];

interface Run {
  name: string;
  command: string[];
  /** Matches the number of passed tests in the output, or each passed test. */
  passed: RegExp;
  folder?: string;
  /** Returns further arguments, which depend on the address of the service. */
  options?: (environment: NodeJS.ProcessEnv) => string[];
  /** The command is repeated until this many tests have passed in total; used for generated tests. */
  minPassed?: number;
}

async function test(
  { name, command, passed, folder = root, options = () => [], minPassed = 1 }: Run,
  environment: NodeJS.ProcessEnv,
) {
  const start = performance.now();
  for (let count = 0; ; ) {
    const { output, status } = await run([...command, ...options(environment)], folder, {
      ...process.env,
      ...environment,
    });
    // At the end, because several run at once.
    console.log(`== ${name}\n${output}`);
    const plain = stripVTControlCharacters(output);
    const newlyPassed = [...plain.matchAll(passed)].reduce((sum, [, number]) => sum + Number(number ?? 1), 0);
    count += newlyPassed;
    const isGood = status === 0 && newlyPassed > 0;
    if (isGood && count < minPassed) continue;
    const seconds = Math.round((performance.now() - start) / 1000);
    results.push(`${name}: ${isGood ? '' : `failed with status ${status}, `}${count} tests passed in ${seconds} s`);
    if (!isGood) process.exitCode = 1;
    return;
  }
}

const names = process.argv.slice(2);
// Install before the services start: installing blocks this process, so they could not respond meanwhile.
const runs = names
  .filter((name) => name !== 'schemathesis')
  .map((name) => {
    const prepareRun = clients[name] ?? prepared[name];
    if (!prepareRun) throw new Error(`unknown client: ${name}`);
    return { name, ...prepareRun() };
  });
if (names[0] === 'schemathesis') {
  await withService(async (environment) => {
    const [examples, examplesWithKey] = process.env.RELEASE === '1' ? [1500, 100] : [60, 20];
    const open = schemathesis('schemathesis', environment.SERVICE_URL, examples);
    await test({ ...open, minPassed: examples }, environment);
    const withKey = ['--header', `Authorization: Bearer ${environment.API_KEY}`];
    await test(schemathesis('schemathesis with a key', environment.KEYED_URL, examplesWithKey, withKey), environment);
  });
}
const ofPackages = runs.filter(({ name }) => name in clients);
// Each with services of its own, because some tests count the requests that the limit allows within a second.
await Promise.all(ofPackages.map((run) => withService((environment) => test(run, environment))));
if (runs.length > 0) {
  const CLIENTS = ofPackages.map(({ name }) => name).join(' ');
  const passed = /Tests .*?(\d+) passed/g;
  const checks = ['samples', 'packages', 'document'].map((name) => ({ name, command: vitest(name), passed }));
  await withService(async (environment) => {
    const checked = CLIENTS ? checks.map((check) => test(check, { ...environment, CLIENTS })) : [];
    for (const run of runs) if (!ofPackages.includes(run)) await test(run, environment);
    await Promise.all(checked);
  });
}
console.log(results.join('\n'));
