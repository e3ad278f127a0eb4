/** Runs the linters and type checkers of each language on its package, and on invalid programs that use it. */
import { execFile } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, delimiter, dirname, join, relative } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it, onTestFinished } from 'vitest';
import service from '../package.json' with { type: 'json' };
import lock from '../package-lock.json' with { type: 'json' };
import { sample } from './live/samples.js';

const execute = promisify(execFile);
const { CACHE = '', CLIENTS = '', SERVICE_URL = '' } = process.env;
const packages = join(import.meta.dirname, '..', 'packages');
const installed = (client: string, ...path: string[]) => join(CACHE, 'installed', client, ...path);
/** Returns the path of the package of this version, by the end of its name. */
function packed(ending: string): string {
  const files = readdirSync(packages, { recursive: true, encoding: 'utf8' });
  return join(packages, files.find((file) => file.includes(service.version) && file.endsWith(ending)) ?? '');
}
const checker = (name: string) => join(CACHE, 'checks', 'node_modules', '.bin', name);

/** Runs a command and returns its output. @throws Error with the output if it fails */
async function run(command: string, options: string[], folder = CACHE): Promise<string> {
  try {
    return (await execute(command, options, { cwd: folder, maxBuffer: 1 << 26 })).stdout;
  } catch (error) {
    const { stdout = '', stderr = '' } = error as { stdout?: string; stderr?: string };
    throw new Error(`${command} ${options.join(' ')}: ${stdout}${stderr}`);
  }
}

/** Creates a folder that is deleted after the test. */
async function temporaryFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'branded-phone-numbers-packages-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

/** Writes a file with `code` into `folder` or, by default, a temporary one. Returns its path. */
async function file(name: string, code: string, folder?: string): Promise<string> {
  const path = join(folder ?? (await temporaryFolder()), name);
  await writeFile(path, code);
  return path;
}

const root = join(import.meta.dirname, '..');
const license = await readFile(join(import.meta.dirname, '..', 'LICENSE'), 'utf8');

const released = join(import.meta.dirname, '..', 'release');

// CI runs it before these tests.
describe.runIf(process.env.CI)('make release', () => {
  it('packs the service, the clients and the contract, and lists the checksum of each file', async () => {
    const files = (await readdir(released, { recursive: true, withFileTypes: true }))
      .filter((entry) => entry.isFile())
      .map((entry) => relative(released, join(entry.parentPath, entry.name)));
    const { version } = service;
    for (const name of [
      `branded-phone-numbers-${version}.tgz`,
      `branded-phone-numbers-client-${version}.tgz`,
      `branded_phone_numbers_client-${version}-py3-none-any.whl`,
      ...['', '-sources'].map(
        (kind) =>
          `maven/example/brandedphonenumbers/branded-phone-numbers-client/${version}/branded-phone-numbers-client-${version}${kind}.jar`,
      ),
      `go/branded-phone-numbers.example/clients/go/@v/v${version}.zip`,
      'openapi.yaml',
      'openapi-3.0.json',
      'branded-phone-numbers.postman_collection.json',
      'sbom.cdx.json',
    ]) {
      expect(files).toContain(name);
    }
    const sums = await readFile(join(released, 'SHA256SUMS'), 'utf8');
    const listed = [...sums.matchAll(/^[0-9a-f]{64} {2}(.*)$/gm)].map(([, name]) => name);
    expect(listed.toSorted()).toEqual(files.filter((name) => name !== 'SHA256SUMS').sort());
    await run('sha256sum', ['--check', '--strict', 'SHA256SUMS'], released);
  });

  it('lists the packages of the service, without anything that differs each time', async () => {
    const bom = JSON.parse(await readFile(join(released, 'sbom.cdx.json'), 'utf8'));
    const { name, version } = bom.metadata.component;
    expect([name, version, bom.serialNumber, bom.metadata.timestamp]).toEqual([
      service.name,
      service.version,
      undefined,
      undefined,
    ]);
    const found = bom.components.map((one: { name: string; version: string }) => `${one.name}@${one.version}`).sort();
    const { packages } = lock as { packages: Record<string, { version?: string; dev?: boolean }> };
    const installed = Object.entries(packages).flatMap(([path, { version, dev }]) =>
      path && !dev ? `${path.replace(/.*node_modules\//, '')}@${version}` : [],
    );
    expect(found).toEqual([...new Set(installed)].sort());
  });
});

// Before a release, since it takes a minute.
describe.runIf(process.env.CI && process.env.RELEASE === '1')('make release on another machine', () => {
  it('gives the same checksums, with another time, time zone, umask and folder', { timeout: 900_000 }, async () => {
    const folder = join(await temporaryFolder(), 'another clone');
    const root = join(import.meta.dirname, '..');
    await run('bash', ['-c', 'umask 077; git clone --quiet "$1" "$2"', 'bash', root, folder]);
    await run('cp', ['-al', join(root, 'node_modules'), folder]);
    // In a year, certificates of registries may not be valid any more.
    const later = new Date(Date.now() + 3 * 86_400_000).toISOString();
    await run(
      'bash',
      ['-c', 'touch node_modules/.installed; umask 077; TZ=Asia/Kolkata faketime "$1" make release', 'bash', later],
      folder,
    );
    const sums = await readFile(join(folder, 'release', 'SHA256SUMS'), 'utf8');
    expect(sums).toBe(await readFile(join(released, 'SHA256SUMS'), 'utf8'));
  });
});

describe.runIf(CLIENTS.includes('typescript'))('The npm package', () => {
  it('has the license', async () => {
    expect(await run('tar', ['-xzOf', packed('.tgz'), 'package/LICENSE'])).toBe(license);
  });

  it('resolves for every kind of module resolution', async () => {
    await run(checker('attw'), [packed('.tgz')]);
  });

  /** Compiles programs by their names, without skipLibCheck, where the package is installed. */
  async function compile(programs: Record<string, string>, options: object) {
    const folder = await mkdtemp(installed('typescript', 'project-'));
    onTestFinished(() => rm(folder, { recursive: true, force: true }));
    const strict = { strict: true, exactOptionalPropertyTypes: true, noUncheckedIndexedAccess: true, noEmit: true };
    const typeRoots = [join(root, 'node_modules', '@types')];
    const compilerOptions = { target: 'es2022', ...strict, skipLibCheck: false, typeRoots, ...options };
    for (const [name, program] of Object.entries(programs)) await file(name, program, folder);
    await file('package.json', '{ "type": "module" }', folder);
    await file('tsconfig.json', JSON.stringify({ compilerOptions, files: Object.keys(programs) }), folder);
    return run(join(root, 'node_modules', '.bin', 'tsc'), ['-p', folder], folder);
  }
  const projects: [string, object][] = [
    ['Node, as ES modules', { module: 'nodenext', lib: ['es2023'], types: ['node'] }],
    ['Node, with a bundler', { module: 'esnext', moduleResolution: 'bundler', lib: ['es2023'], types: ['node'] }],
    ['browsers', { module: 'esnext', moduleResolution: 'bundler', lib: ['es2023', 'dom'], types: [] }],
    ['both', { module: 'nodenext', lib: ['es2023', 'dom'], types: ['node'] }],
  ];

  it.each(projects)('compiles in a strict project for %s, unless it is used wrongly', async (name, options) => {
    const readme = sample('typescript', 'js', 'http://127.0.0.1:4000');
    // Browsers have no environment variables.
    const program = name === 'browsers' ? readme.replace('process.env.KEY', "'key'") : readme;
    const logging = `{ basePath: '', fetchApi: fetch, middleware: [{ async post({ response }) { console.log(response.status); } }] }`;
    const configured = program.replace(/\{ basePath: .*? \}/, logging);
    expect(configured).not.toBe(program);
    const programs = {
      'program.ts': program,
      'configured.ts': `${configured}\nawait api.listBrandedPhoneNumbers({}, { signal: AbortSignal.timeout(1) });`,
      'wrong.ts': program.replace('{ basePath:', '{ fetchApi: 5, basePath:'),
    };
    const output = await compile(programs, options).catch(String);
    expect(output.match(/(\S+: )?error TS.*/g)).toEqual([
      expect.stringMatching(/^wrong\.ts\(.*: Type 'number' is not assignable to type/),
    ]);
  });

  it('passes publint', async () => {
    await run(checker('publint'), ['--strict', packed('.tgz')]);
  });

  it('documents each parameter and its bounds for editors', async () => {
    const dist = installed('typescript', 'node_modules', 'branded-phone-numbers-client', 'dist', 'esm');
    const api = await readFile(join(dist, 'generated', 'apis', 'BrandedPhoneNumbersApi.d.ts'), 'utf8');
    expect(api).toMatch(/\* The most numbers in a page.* Page size, 1 to 100, default 25\.\n +\*\/\n +size\?: number;/);
  });
});

describe.runIf(CLIENTS.includes('python'))('The wheel', () => {
  const python = installed('python', 'bin', 'python');
  const mypy = (...files: string[]) => run(python, ['-m', 'mypy', '--strict', ...files]);
  const pyright = (...files: string[]) => run(checker('pyright'), ['--pythonpath', python, ...files]);
  const program = sample('python', 'python', 'http://127.0.0.1:4000');
  const tests = join(import.meta.dirname, 'python', 'test_client.py');

  /** The modules that are hand-written or generated from our templates. */
  const modules = [
    'exceptions',
    'exchange',
    'filters',
    'pacing',
    'pages',
    'retries',
    'schema',
    'wire',
    'api.branded_phone_numbers_api',
  ];
  const path = async (module: string) => {
    const code = 'import branded_phone_numbers_client as c; print(c.__path__[0])';
    return join((await run(python, ['-c', code])).trim(), `${module.replace('.', '/')}.py`);
  };

  it('has the license', async () => {
    const code =
      'from importlib.metadata import files; print(*[f.read_text() for f in files("branded-phone-numbers-client") if f.name == "LICENSE"])';
    expect(await run(python, ['-c', code])).toContain(license);
  });

  it('is refused on a Python that is too old with a message that says so', async () => {
    const older = ['--python-version', '3.9', '--only-binary=:all:', '--dest', await temporaryFolder()];
    const loading = run('python3', ['-m', 'pip', 'download', '--disable-pip-version-check', ...older, packed('.whl')]);
    await expect(loading).rejects.toThrow(/requires a different Python: 3\.9.* not in '>=3\.10'/);
  });

  it('passes mypy --strict in the hand-written modules', async () => {
    const named = modules.flatMap((module) => ['-m', `branded_phone_numbers_client.${module}`]);
    await mypy('--follow-imports=silent', ...named);
  });

  // In one run each, because both read Pydantic first, for seconds.
  it('makes mypy --strict and pyright report an unknown filter, an unknown status, and a string instead of a list, and nothing else', async () => {
    const progress = sample('python', 'python', 'http://127.0.0.1:4000', 'progress');
    const wrong = [
      await file('filter.py', program.replace('carrier=', 'carrrier=')),
      await file('status.py', program.replace('"approved"', '"aproved"')),
      await file('text.py', program.replace('["AT&T"]', '"AT&T"')),
    ];
    const programs = [await file('sample.py', program), await file('resume.py', progress), tests, ...wrong];
    const outputs = await Promise.all([
      mypy(...programs).catch(String),
      pyright(...programs, ...(await Promise.all(modules.map(path)))).catch(String),
    ]);
    for (const output of outputs) {
      const reported = [...output.matchAll(/([^/\s:]+):\d.* error/g)].map(([, name]) => name);
      expect(new Set(reported)).toEqual(new Set(wrong.map((name) => basename(name))));
    }
  });

  it('documents each parameter and its bounds for editors', async () => {
    expect(await readFile(await path('filters'), 'utf8')).toMatch(
      / size: Optional\[int\]\n +""".* Page size, 1 to 100, default 25\."""/,
    );
  });
});

describe.runIf(CLIENTS.includes('java'))('The jar', () => {
  const jar = packed(`-${service.version}.jar`);
  const sources = join(CACHE, 'java', 'src', 'main', 'java');
  const program = sample('java', 'java', 'http://127.0.0.1:4000');
  const compile = async (code: string) => {
    const path = await file(`${/public class (\w+)/.exec(code)?.[1]}.java`, code);
    return run('javac', [
      '-Xlint:all,-processing',
      '-Werror',
      '-cp',
      installed('java', '*'),
      '-d',
      dirname(path),
      path,
    ]);
  };

  it('has the license', async () => {
    const folder = await temporaryFolder();
    await run('jar', ['--extract', '--file', jar, 'META-INF/LICENSE'], folder);
    expect(await readFile(join(folder, 'META-INF', 'LICENSE'), 'utf8')).toBe(license);
  });

  it('is installed by the command of clients/README.md', async () => {
    const readme = await readFile(join(root, 'clients', 'README.md'), 'utf8');
    const [, command = ''] = /`(mvn install:install-file .*)`/.exec(readme) ?? [];
    const repository = await temporaryFolder();
    const typed = command.replace('<jar>', basename(jar)).replace('<pom>', basename(packed('.pom')));
    await run('bash', ['-c', `${typed} -B -DlocalRepositoryPath=${repository}`], dirname(jar));
    const files = await readdir(repository, { recursive: true });
    expect(files).toContain(relative(join(packages, 'maven'), jar));
  });

  it('passes javadoc', async () => {
    const pages = await temporaryFolder();
    const packages = ['-sourcepath', sources, '-subpackages', 'example'];
    await run('javadoc', [
      '-quiet',
      '-Xdoclint:all,-missing',
      '-Werror',
      '-d',
      pages,
      '--module-path',
      installed('java'),
      ...packages,
    ]);
    const page = join(pages, 'example.brandedphonenumbers.client/example/brandedphonenumbers/client');
    const request = 'BrandedPhoneNumbersApi.APIListBrandedPhoneNumbersRequest.Builder.html';
    expect(await readFile(join(page, request), 'utf8')).toContain('Page size, 1 to 100, default 25.');
  });

  it('is a module, and works in a modular program', async () => {
    const folder = await temporaryFolder();
    await file('module-info.java', 'module numbers { requires example.brandedphonenumbers.client; }', folder);
    await file('Sample.java', `package numbers;\n${sample('java', 'java', SERVICE_URL)}`, folder);
    const files = ['module-info.java', 'Sample.java'];
    await run('javac', ['-Xlint:all', '-Werror', '--module-path', installed('java'), '-d', 'out', ...files], folder);
    const path = [installed('java'), 'out'].join(delimiter);
    const printed = await run('java', ['--module-path', path, '--module', 'numbers/numbers.Sample'], folder);
    expect(printed).toMatch(/^\+14155550000 approved\n/);
  });

  it('has its sources beside it, so that editors show the description of each parameter and its bounds', async () => {
    const folder = await temporaryFolder();
    const repository = join(CACHE, 'maven-sources');
    // The plugins are kept; the sources are downloaded.
    await rm(join(repository, 'example'), { recursive: true, force: true });
    const artifact = `example.brandedphonenumbers:branded-phone-numbers-client:${service.version}:jar:sources`;
    const get = ['-B', '-q', 'org.apache.maven.plugins:maven-dependency-plugin:3.3.0:get', '-Dtransitive=false'];
    const places = [`-DremoteRepositories=file://${packages}/maven`, `-Dmaven.repo.local=${repository}`];
    await run('mvn', [...get, ...places, `-Dartifact=${artifact}`], folder);
    const downloaded = join(repository, relative(join(packages, 'maven'), packed('-sources.jar')));
    const source = 'example/brandedphonenumbers/client/BrandedPhoneNumbersApi.java';
    await run('jar', ['--extract', '--file', downloaded, source], folder);
    expect(await readFile(join(folder, source), 'utf8')).toContain('Page size, 1 to 100, default 25.');
  });

  it('compiles a valid program, but not one with an unknown filter', async () => {
    await compile(program);
    await compile(sample('java', 'java', 'http://127.0.0.1:4000', 'progress'));
    await expect(compile(program.replace('.carrier(', '.carrrier('))).rejects.toThrow('cannot find symbol');
  });
});

describe.runIf(CLIENTS.includes('go'))('The Go module', () => {
  const made = join(CACHE, 'go');
  const module = installed('go-modules', 'branded-phone-numbers.example', 'clients', `go@v${service.version}`);

  it('has the license', async () => {
    expect(await readFile(join(module, 'LICENSE'), 'utf8')).toBe(license);
  });

  it('has no dependencies, and so no go.sum', async () => {
    expect(await readdir(module)).not.toContain('go.sum');
    expect(await run('go', ['list', '-m', 'all'], module)).toBe('branded-phone-numbers.example/clients/go\n');
  });

  it('passes go vet, and before a release staticcheck', async () => {
    await run('go', ['vet', './...'], made);
    await run('go', ['vet', '.'], installed('go'));
    if (process.env.RELEASE !== '1') return;
    // Excludes two checks that report problems in the generated client.go.
    await run(join(CACHE, 'staticcheck'), ['-checks', 'inherit,-ST1005,-SA4006', './...'], made);
  });

  it('compiles a valid program, but not one with an unknown filter', async () => {
    const program = sample('go', 'go', 'http://127.0.0.1:4000');
    const compile = async (code: string) => run('go', ['vet', await file('wrong.go', code)], installed('go'));
    await compile(program);
    await compile(sample('go', 'go', 'http://127.0.0.1:4000', 'progress'));
    await expect(compile(program.replace('Carrier(', 'Carrrier('))).rejects.toThrow('Carrrier undefined');
  });

  it('documents each parameter and its bounds for editors', async () => {
    const doc = await run('go', ['doc', 'ApiListBrandedPhoneNumbersRequest.Size'], made);
    expect(doc.replace(/\s+/g, ' ')).toContain('The most numbers in a page. Page size, 1 to 100');
  });
});
