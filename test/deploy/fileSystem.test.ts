/**
 * The file systems of the containers in compose.yaml and in the Kubernetes manifest, made by mount(8) in a namespace of a
 * process: an import needs a writable temporary folder.
 */
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { packageFolder } from '../../src/packageFolder.js';
import { expectDemoPage } from '../support/demo.js';
import { resource } from '../support/manifest.js';
import { type PostgresServer, startPostgres } from '../support/postgresServer.js';
import { startServer } from '../support/serverProcess.js';
import { useTemporaryFolder } from '../support/temporaryFolder.js';

interface FileSystem {
  isReadOnly: boolean;
  /** Mount points of empty, writable folders. */
  writable: string[];
}

const { api } = parse(readFileSync('compose.yaml', 'utf8')).services;
const pod = resource('Deployment').spec.template.spec;
const [container] = pod.containers;
const fileSystems: [string, FileSystem][] = [
  ['compose.yaml', { isReadOnly: api.read_only, writable: api.tmpfs ?? [] }],
  [
    'deploy/kubernetes',
    {
      isReadOnly: container.securityContext.readOnlyRootFilesystem,
      writable: container.volumeMounts
        .filter(
          ({ name }: { name: string }) => pod.volumes.find((volume: { name: string }) => volume.name === name).emptyDir,
        )
        .map(({ mountPath }: { mountPath: string }) => mountPath),
    },
  ],
];

/** Makes all mounted disks read-only; `mount` refuses this for a few, such as /proc. */
const READ_ONLY =
  'findmnt --list --noheadings --output TARGET | while read -r at; do mount -o remount,bind,ro "$at"; done';

describe.skipIf(process.getuid?.() !== 0)('serve --demo', () => {
  let postgres: PostgresServer;
  const folder = useTemporaryFolder('branded-phone-numbers-read-only-');
  beforeAll(async () => {
    postgres = await startPostgres();
  });
  afterAll(() => postgres?.remove());

  it.each(fileSystems)('serves in the file system of %s', async (_file, { isReadOnly, writable }) => {
    expect(isReadOnly).toBe(true);
    const mounts = writable.map((at) => `mount -t tmpfs none ${at}`);
    // The checkout may be in a folder that becomes an empty one, such as /tmp.
    const script = [
      `mount --bind "${packageFolder}" /mnt`,
      `{ ${READ_ONLY}; } 2>/dev/null`,
      ...mounts,
      '! touch /etc/written 2>/dev/null || exit 9',
    ];
    const command = `${script.join('\n')}\nexec "${process.execPath}" /mnt/dist/src/main.js serve --demo`;
    // The folder of this run is not in the containers.
    const environment = { AUTH: 'none', DATABASE_URL: postgres.url, TMPDIR: undefined };
    const service = await startServer(['unshare', '--mount', 'bash', '-c', command], environment, {
      folder: folder.path,
    });
    await expectDemoPage(service.url);
    await service.stop();
  });
});
