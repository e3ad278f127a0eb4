/** The make targets that need Java, if Java is not installed. */
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { packageFolder } from '../src/packageFolder.js';
import { useTemporaryFolder } from './support/temporaryFolder.js';

const folder = useTemporaryFolder('branded-phone-numbers-no-java-');

it.each(['generate', 'clients'])('make %s fails with one line that tells to install Java', (target) => {
  // As on macOS without Java: a program named java exists and fails.
  writeFileSync(join(folder.path, 'java'), '#!/bin/sh\nexit 1\n', { mode: 0o755 });
  // The npm packages are up to date (-o), and the contract has changed (-W), so the clients must be generated.
  const args = ['-o', 'node_modules/.installed', '-W', 'openapi/openapi.yaml', target];
  // Otherwise make would take itself for a child of the make that runs the tests, and print its directory.
  const env = { ...process.env, MAKEFLAGS: '', MAKELEVEL: '0', PATH: `${folder.path}:${process.env.PATH}` };
  const { status, stdout, stderr } = spawnSync('make', args, { cwd: packageFolder, env, encoding: 'utf8' });
  const [message, ...rest] = stderr.trim().split('\n');
  expect([status, stdout, message]).toEqual([
    2,
    '',
    expect.stringMatching(/^Java 11 or later is required; install it \(/),
  ]);
  expect(rest).toEqual([expect.stringMatching(/^make.*Error 1$/)]);
});
