/** What the targets of make that need Java say if it is not installed. */
import { spawnSync } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { packageFolder } from '../src/packageFolder.js';

it.each(['generate', 'clients'])('make %s says in a line that Java has to be installed', (target) => {
  const folder = mkdtempSync(join(tmpdir(), 'branded-phone-numbers-no-java-'));
  // As on macOS, where a program of this name is there and fails.
  writeFileSync(join(folder, 'java'), '#!/bin/sh\nexit 1\n');
  chmodSync(join(folder, 'java'), 0o755);
  // Everything is installed (-o), and the contract is new (-W), so that the clients have to be made again.
  const args = ['-o', 'node_modules/.installed', '-W', 'openapi/openapi.yaml', target];
  // Not as a part of the make that runs the tests, which would show where it works.
  const env = { ...process.env, MAKEFLAGS: '', MAKELEVEL: '0', PATH: `${folder}:${process.env.PATH}` };
  const { status, stdout, stderr } = spawnSync('make', args, { cwd: packageFolder, env, encoding: 'utf8' });
  rmSync(folder, { recursive: true });
  const [said, ...rest] = stderr.trim().split('\n');
  expect([status, stdout, said]).toEqual([2, '', expect.stringMatching(/^Java 11 or later is needed; install it \(/)]);
  expect(rest).toEqual([expect.stringMatching(/^make.*Error 1$/)]);
});
