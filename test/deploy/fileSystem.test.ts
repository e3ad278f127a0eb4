/**
 * The file systems of the containers in compose.yaml and in the Kubernetes manifest, made by mount(8) in a namespace of a
 * process: an import needs a writable temporary folder.
 */
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { packageFolder } from '../../src/packageFolder.js';
import { expectDemoPage } from '../support/demo.js';
import { environmentOf, resource, scheduledImport } from '../support/manifest.js';
import { ndjson } from '../support/ndjson.js';
import { numberWith } from '../support/numbers.js';
import { type PostgresServer, startPostgres } from '../support/postgresServer.js';
import { run } from '../support/programs.js';
import { startServer } from '../support/serverProcess.js';
import { useTemporaryFolder } from '../support/temporaryFolder.js';

interface FileSystem {
  isReadOnly: boolean;
  /** Mount points of empty, writable folders. */
  writable: string[];
}

const { api } = parse(readFileSync('compose.yaml', 'utf8')).services;
/** Returns the file system of a pod's only container. */
// biome-ignore lint/suspicious/noExplicitAny: kubernetes-validate checks the types
const fileSystemOf = ({ containers: [container], volumes }: any): FileSystem => ({
  isReadOnly: container.securityContext.readOnlyRootFilesystem,
  writable: (container.volumeMounts ?? [])
    .filter(({ name }: { name: string }) => volumes.find((volume: { name: string }) => volume.name === name).emptyDir)
    .map(({ mountPath }: { mountPath: string }) => mountPath),
});
const fileSystems: [string, FileSystem][] = [
  ['compose.yaml', { isReadOnly: api.read_only, writable: api.tmpfs ?? [] }],
  ['deploy/kubernetes', fileSystemOf(resource('Deployment').spec.template.spec)],
];

/** Makes all mounted disks read-only; `mount` refuses this for a few, such as /proc. */
const READ_ONLY =
  'findmnt --list --noheadings --output TARGET | while read -r at; do mount -o remount,bind,ro "$at"; done';

/** Returns a script that runs a command with this file system, the checkout at /mnt and `folder`, if given, at its place. */
function scriptIn({ isReadOnly, writable }: FileSystem, command: string, [at, folder] = ['', '']): string {
  expect(isReadOnly).toBe(true);
  return [
    // The checkout may be in a folder that becomes an empty one, such as /tmp.
    `mount --bind "${packageFolder}" /mnt`,
    ...(at && [`mkdir -p ${at}`, `mount --bind "${folder}" ${at}`]),
    `{ ${READ_ONLY}; } 2>/dev/null`,
    ...writable.map((at) => `mount -t tmpfs none ${at}`),
    '! touch /etc/written 2>/dev/null || exit 9',
    `exec "${process.execPath}" /mnt/dist/src/main.js ${command}`,
  ].join('\n');
}

describe.skipIf(process.getuid?.() !== 0)('with a read-only file system', () => {
  let postgres: PostgresServer;
  const folder = useTemporaryFolder('branded-phone-numbers-read-only-');
  // The folder of this run is not in the containers.
  const TMPDIR = undefined;
  beforeAll(async () => {
    postgres = await startPostgres();
  });
  afterAll(() => postgres?.remove());

  it.each(fileSystems)('serve --demo serves as in %s', async (_file, fileSystem) => {
    const command = scriptIn(fileSystem, 'serve --demo');
    const environment = { AUTH: 'none', DATABASE_URL: postgres.url, TMPDIR };
    const service = await startServer(['unshare', '--mount', 'bash', '-c', command], environment, {
      folder: folder.path,
    });
    await expectDemoPage(service.url);
    await service.stop();
  });

  it('the scheduled import of docs/imports.md imports', async () => {
    const pod = scheduledImport().spec.jobTemplate.spec.template.spec;
    const [container] = pod.containers;
    const [, file] = container.args;
    await writeFile(join(folder.path, basename(file)), ndjson([numberWith({ phoneNumber: '+11' })]));
    const command = scriptIn(fileSystemOf(pod), container.args.join(' '), [dirname(file), folder.path]);
    const env = { ...process.env, ...environmentOf('Job'), DATABASE_URL: postgres.url, TMPDIR };
    const { stdout } = await run('unshare', ['--mount', 'bash', '-c', command], { env });
    expect(stdout).toBe('imported 1 number, 0 carrier statuses\n');
  });
});
