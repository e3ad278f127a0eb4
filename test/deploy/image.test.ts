/**
 * The image, built and run by buildah, which Podman uses, too. Its base image is made here, from a minimal Debian and the npm
 * packages of Node and npm, because the test must not depend on an image registry.
 */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { contract } from '../../src/contract.js';
import { packageFolder } from '../../src/packageFolder.js';
import { copyCheckout } from '../installation/checkout.js';
import { installNodeAndNpm } from '../installation/nodeAndNpm.js';
import { expectDemoPage } from '../support/demo.js';
import { freePort } from '../support/port.js';
import { type PostgresServer, startPostgres } from '../support/postgresServer.js';
import { isInstalled, run } from '../support/programs.js';
import { type Server, startServer } from '../support/serverProcess.js';
import { makeFolder } from '../support/temporaryFolder.js';

/** The build takes one minute on an idle machine. */
const BUILD_TIMEOUT_MS = 900_000;
const TARBALL = `packages/branded-phone-numbers-client-${contract.info.version}.tgz`;
/** The packages of a minimal Debian, and the library of Node. They are not configured, which would take most of the time. */
const DEBIAN = ['?essential', 'libstdc++6'].map((name) => `--include=${name}`);
const AUTHORITIES = '/etc/ssl/certs/ca-certificates.crt';

const canBuild = process.getuid?.() === 0 && isInstalled('buildah') && isInstalled('mmdebstrap');

describe.skipIf(!canBuild)('the image', () => {
  let folder: string;
  let container: string;
  let image: { Entrypoint: string[]; User: string; Labels: object; Healthcheck: { Test: string[] } };
  let postgres: PostgresServer;
  let settings: string[];
  let service: Server;

  beforeAll(async () => {
    folder = await makeFolder('branded-phone-numbers-image-');
    const dockerfile = await readFile(join(packageFolder, 'Dockerfile'), 'utf8');
    const [, base = '', node = '', suite = ''] =
      /^ARG NODE_IMAGE=(node:(\d+)-([a-z]+)-slim)@sha256:\w{64}$/m.exec(dockerfile) ?? [];
    await makeBase(base, node, suite);
    // npm opens more files than buildah's default of 1024.
    const limits = ['--ulimit', 'nofile=16384:16384'];
    const options = [
      '--pull-never',
      '--layers=false',
      '--format',
      'docker',
      '--build-arg',
      `NODE_IMAGE=localhost/${base}`,
      '--build-arg',
      'REVISION=a-commit',
      '--tag',
      'localhost/numbers',
    ];
    const context = join(folder, 'checkout');
    await copyCheckout(context);
    // As after `make clients`.
    await mkdir(join(context, 'packages'));
    await writeFile(join(context, TARBALL), 'a client');
    await buildah('build', ...limits, ...options, context);
    container = await buildah('from', '--pull-never', 'localhost/numbers');
    image = JSON.parse(await buildah('inspect', container)).Docker.config;
    postgres = await startPostgres();
    const PORT = String(await freePort());
    settings = [`DATABASE_URL=${postgres.url}`, 'AUTH=none', 'HOST=127.0.0.1', `PORT=${PORT}`];
    const command = ['buildah', ...storage(), ...inContainer([...image.Entrypoint, 'serve', '--demo'])];
    service = await startServer(command, { ...environment, PORT }, { folder });
  }, BUILD_TIMEOUT_MS);
  afterAll(async () => {
    await service?.stop();
    await postgres?.remove();
    if (container) await buildah('rm', '--all');
  }, BUILD_TIMEOUT_MS);

  const environment = { BUILDAH_ISOLATION: 'chroot' };
  const storage = () => ['--root', join(folder, 'storage'), '--runroot', join(folder, 'run')];

  const buildah = (...args: string[]) => outputOf('buildah', [...storage(), ...args]);

  /** Runs a program and returns its standard output. */
  async function outputOf(program: string, args: string[]): Promise<string> {
    const options = { cwd: folder, env: { ...process.env, ...environment }, maxBuffer: 2 ** 26 };
    return (await run(program, args, options)).stdout.trim();
  }

  function inContainer(command: string[]): string[] {
    return ['run', ...settings.flatMap((setting) => ['--env', setting]), container, '--', ...command];
  }

  /** Makes the base image, with this machine's certificates, which npm may need. */
  async function makeBase(name: string, node: string, suite: string): Promise<void> {
    const [installed] = await Promise.all([
      installNodeAndNpm(node, 11),
      outputOf('mmdebstrap', ['--variant=extract', ...DEBIAN, suite, join(folder, 'debian')]),
    ]);
    const from = await buildah('from', 'scratch');
    const copies: [string, string][] = [
      [join(folder, 'debian'), '/'],
      [installed.node, '/usr/local/bin/node'],
      [installed.npm, '/usr/local/lib/node_modules/npm'],
      [AUTHORITIES, AUTHORITIES],
    ];
    for (const [source, target] of copies) await buildah('copy', '--quiet', from, source, target);
    await buildah('run', from, '--', 'ln', '-s', '../lib/node_modules/npm/bin/npm-cli.js', '/usr/local/bin/npm');
    await buildah('config', '--env', `NODE_EXTRA_CA_CERTS=${AUTHORITIES}`, from);
    await buildah('commit', '--quiet', '--rm', from, `localhost/${name}`);
  }

  it('serves the demo, and does not run as root', async () => {
    await expectDemoPage(service.url);
    expect(image.User).toBe('1000:1000');
  });

  it('is healthy while PostgreSQL is down, although it is not ready', async () => {
    const [, ...check] = image.Healthcheck.Test;
    await postgres.stop();
    try {
      await buildah(...inContainer(check));
      expect((await fetch(`${service.url}/readyz`)).status).toBe(503);
    } finally {
      await postgres.start();
    }
  });

  const POSTMAN = '/packages/branded-phone-numbers.postman_collection.json';
  it.each(['/docs', '/openapi.yaml', '/clients/go/README.md', POSTMAN, '/docs/deprecation.md', '/healthz', '/readyz'])(
    'serves %s',
    async (path) => {
      expect([path, (await fetch(service.url + path)).status]).toEqual([path, 200]);
    },
  );

  it('offers the packages of the clients that were built before', async () => {
    expect(await (await fetch(`${service.url}/${TARBALL}`)).text()).toBe('a client');
  });

  it('names its version and the commit in OCI labels', () => {
    const labels = { version: contract.info.version, revision: 'a-commit' };
    const named = Object.entries(labels).map(([name, value]) => [`org.opencontainers.image.${name}`, value]);
    expect(image.Labels).toMatchObject(Object.fromEntries(named));
  });
});
