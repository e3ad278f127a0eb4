/** HAProxy's configuration, by HAProxy's own check. */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { makeAuthority } from '../database/certificates.js';
import { isInstalled, run } from './programs.js';

const CERTIFICATE = '/etc/haproxy/numbers.pem';

describe.skipIf(!isInstalled('haproxy'))('HAProxy', () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'branded-phone-numbers-haproxy-'));
    const { file, issue } = makeAuthority(folder);
    issue('numbers', 'numbers.example.com');
    await writeFile(
      file('both.pem'),
      [await readFile(file('numbers.pem')), await readFile(file('numbers.key'))].join(''),
    );
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));

  it('takes its configuration without a warning', async () => {
    const file = join(folder, 'haproxy.cfg');
    const shipped = await readFile('deploy/haproxy/haproxy.cfg', 'utf8');
    expect(shipped).toContain(CERTIFICATE);
    await writeFile(file, shipped.replace(CERTIFICATE, join(folder, 'both.pem')));
    const { status, output } = await run('haproxy', ['-c', '-dW', '-f', file]);
    expect([status, output]).toEqual([0, expect.stringContaining('Configuration file is valid')]);
  });
});
