/** The document that the service serves, as the linters of partners read it. */
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import express from 'express';
import request from 'supertest';
import { expect, it } from 'vitest';
import { readConfig } from '../src/config/config.js';
import { docs } from '../src/service/docs/docs.js';

const SETTINGS = readConfig({ HOST: '0.0.0.0', AUTH: 'none' });
const EVERYTHING = {
  PUBLIC_URL: 'https://numbers.test/telephony',
  CONTACT: 'api@numbers.test',
  TERMS_URL: 'https://numbers.test/terms',
};

it('the document with any settings has no finding of Spectral’s and Redocly’s rulesets', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'contract-'));
  const files: string[] = [];
  for (const AUTH of ['none', 'api-key'] as const) {
    for (const [name, settings] of Object.entries({ default: {}, everything: EVERYTHING })) {
      const app = express().use(docs({ ...SETTINGS, AUTH, ...settings }));
      for (const path of ['openapi.yaml', 'openapi-3.0.json']) {
        const { text } = await request(app).get(`/${path}`).buffer();
        const file = `${AUTH}-${name}-${path}`;
        await writeFile(join(folder, file), text);
        files.push(file);
      }
    }
  }
  expect(files).toHaveLength(8);
  await writeFile(join(folder, 'spectral.yaml'), 'extends: ["spectral:oas"]');
  const lint = (modules: string, program: string, ...options: string[]) =>
    // They fail if there is a finding.
    promisify(execFile)(join(modules, '.bin', program), ['lint', ...files, ...options], { cwd: folder });
  const linters = join(String(process.env.CACHE), 'checks', 'node_modules');
  await lint(linters, 'spectral', '--ruleset', 'spectral.yaml', '--fail-severity', 'hint');
  await lint(join(process.cwd(), 'node_modules'), 'redocly', '--extends', 'recommended-strict');
  await rm(folder, { recursive: true });
});
