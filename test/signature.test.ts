/** The signature of a release, with the commands of CONTRIBUTING.md. */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';
import { isInstalled } from './support/programs.js';
import { useTemporaryFolder } from './support/temporaryFolder.js';

const folder = useTemporaryFolder('branded-phone-numbers-signature-');

it.skipIf(!isInstalled('ssh-keygen'))('a release that was signed is accepted, and a changed one is not', async () => {
  const recipe = await readFile('CONTRIBUTING.md', 'utf8');
  const [, sign = '', verify = ''] =
    /```sh\n( +ssh-keygen -Y sign .*?)```.*?```sh\n( +ssh-keygen -Y verify .*?)```/s.exec(recipe) ?? [];
  const [, makeKey = '', publish = ''] = /`(ssh-keygen -t ed25519 .*?)`.*?`(echo "releases .*?)`/s.exec(recipe) ?? [];
  const release = join(folder.path, 'release');
  const writeSum = (content: string) =>
    writeFile(join(release, 'SHA256SUMS'), `${createHash('sha256').update(content).digest('hex')}  client.tgz\n`);
  const shell = (script: string, cwd = folder.path) =>
    promisify(execFile)('bash', ['-euc', script], { cwd, env: { ...process.env, HOME: folder.path } });

  await mkdir(join(folder.path, '.ssh'));
  await shell(makeKey.replaceAll('~', folder.path).replace('-t ed25519', "-t ed25519 -q -N ''"));
  await mkdir(release);
  await writeFile(join(release, 'client.tgz'), 'a client');
  await writeSum('a client');
  await shell(sign.replaceAll('~', folder.path));
  await shell(publish.replaceAll('~', folder.path), release);

  expect((await shell(verify, release)).stdout).toMatch(/^Good "file" signature for releases .*\nclient.tgz: OK\n$/);
  await writeFile(join(release, 'client.tgz'), 'another client');
  await expect(shell(verify, release)).rejects.toThrow('did NOT match');
  await writeSum('another client');
  await expect(shell(verify, release)).rejects.toThrow('Signature verification failed');
});
