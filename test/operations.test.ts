import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { readConfig } from '../src/config/config.js';
import { createMetrics } from '../src/metrics.js';
import releases from './database/releases.json' with { type: 'json' };
import { openDatabase } from './support/database.js';

const document = readFileSync('docs/operations.md', 'utf8');

describe('docs/operations.md', () => {
  it('lists exactly the settings that exist, with their defaults', () => {
    const rows = [...document.matchAll(/^\| `([A-Z_]+)` \| (?:`([^`]*)`|–) \|/gm)].map(([, ...row]) => row);
    const settings = Object.entries(readConfig({})).map(([name, value]) => [name, value?.toString()]);
    expect(rows.sort()).toEqual(settings.sort());
  });

  it('explains every metric that the service counts', async () => {
    const metrics = createMetrics(256);
    metrics.collectReadiness(async () => true);
    metrics.collectExpiringKeys(async () => 0);
    const text = await metrics.text();
    for (const [, name] of text.matchAll(/^# HELP (\w+)/gm)) expect(document).toContain(`\`${name}`);
  });

  it('has PgBouncer ignore and set the session parameters that it does not pass on', () => {
    const { connection } = openDatabase('postgres://host/database').$client.options;
    const passedOn = ['application_name', 'DateStyle', 'standard_conforming_strings', 'TimeZone'];
    const set = Object.keys(connection).filter((name) => !passedOn.includes(name));
    const file = readFileSync('deploy/pgbouncer/pgbouncer.ini', 'utf8');
    const ignored = /^ignore_startup_parameters = (.*)$/m.exec(file)?.[1]?.split(',');
    // Instances of 1.4.0, which serve until an upgrade is complete, also set these.
    const before = ['idle_in_transaction_session_timeout', 'idle_session_timeout'];
    expect(ignored?.toSorted()).toEqual([...set, ...before].sort());
    // Its connections to PostgreSQL are its own, and have its `tcp_keepalive`.
    const needed = set.filter((name) => !name.startsWith('tcp_keepalives_'));
    expect([...file.matchAll(/SET (\w+) = /g)].map(([, name]) => name).sort()).toEqual(needed.sort());
  });

  it('installs and upgrades to the newest release', () => {
    const [version, { commit }] = Object.entries(releases).at(-1) ?? expect.fail();
    const named = [...document.matchAll(/\/branded-phone-numbers-([\d.]+\d)(?: checkout --detach (\w+))?/g)];
    expect(new Set(named.map(([, name]) => name))).toEqual(new Set([version]));
    const commits = named.flatMap(([, , checkedOut]) => checkedOut ?? []);
    expect(commits).toEqual([commit.slice(0, 7), commit.slice(0, 7)]);
  });

  it.each(['compose.yaml', 'Dockerfile'])('%s sets only settings that exist', (file) => {
    const text = readFileSync(file, 'utf8');
    const named = [...text.matchAll(/^\s+([A-Z][A-Z_]+): /gm), ...text.matchAll(/^ENV ([A-Z_]+)=/gm)].map(
      ([, name]) => name,
    );
    const notOurs = ['NODE_ENV', 'NODE_OPTIONS', 'POSTGRES_PASSWORD', 'POSTGRES_DB', 'POSTGRES_USER'];
    expect(named.filter((name) => ![...Object.keys(readConfig({})), ...notOurs].includes(name ?? ''))).toEqual([]);
    expect(named.length).toBeGreaterThan(0);
  });
});

it('no text runs the command by npx, which in another folder asks the public registry for that name', () => {
  const folders = ['.', '.ci', 'browser', 'clients', 'deploy', 'docs', 'scripts', 'src'];
  const files = folders.flatMap((folder) =>
    readdirSync(folder, { recursive: folder !== '.', withFileTypes: true })
      .filter((entry) => entry.isFile() && entry.name !== 'CHANGELOG.md')
      .map(({ parentPath, name }) => join(parentPath, name)),
  );
  expect(files).toContain('README.md');
  const wrong = files.filter((file) => /npx (-\S+ )*branded-phone-numbers(?!-)/.test(readFileSync(file, 'utf8')));
  expect(wrong).toEqual([]);
});

it('SECURITY.md names the versions of PostgreSQL and Node that are tested, and the one whose project has ended', () => {
  const text = readFileSync('SECURITY.md', 'utf8').replace(/\s+/g, ' ');
  const makefile = readFileSync('Makefile.maintainers', 'utf8');
  const [, postgres = ''] = /^POSTGRES_VERSIONS := (.*)$/m.exec(makefile) ?? [];
  const majors = postgres.split(' ').map((version) => version.split('.')[0]);
  expect(text).toContain(`PostgreSQL ${majors[0]} to ${majors.at(-1)} `);
  const [, node = ''] = /^NODE_TESTED := (.*)$/m.exec(makefile) ?? [];
  const [, supported = ''] = /and Node ([^:]*) are supported/.exec(text) ?? [];
  const [, ended = ''] = /Node (\d+) ended/.exec(text) ?? [];
  expect([ended, ...(supported.match(/\d+/g) ?? [])]).toEqual(node.split(' '));
});
