import { mkdtemp, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { BrandedPhoneNumberPage } from '../../generated/types/models/index.js';
import { entryWith, numberWith } from '../numbers.js';
import { freePort } from '../port.js';
import { until } from '../until.js';
import { useCommand } from './command.js';

const command = useCommand();

/** Serves until it is stopped, from the folder's own database. */
async function serve(...args: string[]) {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const { child, finished } = command.start(['serve', ...args], { PORT: String(port), RATE_LIMIT_PER_SECOND: '0' });
  const isReady = () =>
    fetch(`${url}/readyz`).then(
      ({ ok }) => ok,
      () => false,
    );
  await until(isReady, `${url} is ready`, 30_000);
  const page = async (search: string) =>
    (await (await fetch(`${url}/v1/brandedPhoneNumbers?${search}`)).json()) as BrandedPhoneNumberPage;
  const end = async (signal: NodeJS.Signals) => {
    child.kill(signal);
    return (await finished).code;
  };
  return { page, end };
}

const list = Array.from({ length: 300 }, (_, i) =>
  numberWith({
    phoneNumber: `+1415${1000 + i}`,
    carrierStatuses: [entryWith('AT&T', 'brandedCallerId', i % 2 ? 'approved.optIn' : 'pending.optIn')],
  }),
);

describe('serve without any setting', () => {
  it('serves from an embedded PostgreSQL, takes an import meanwhile, and stops cleanly with its PostgreSQL', async () => {
    const { page, end } = await serve('--demo');
    await writeFile(join(command.folder, 'numbers.ndjson'), list.map((item) => `${JSON.stringify(item)}\n`).join(''));
    expect(await command.run(['import', 'numbers.ndjson'], '', { environment: {} })).toEqual({
      code: 0,
      stdout: 'imported 300 numbers, 300 carrier statuses\n',
      stderr: '',
      database: expect.stringMatching(/^database: embedded PostgreSQL in .*\.data\n$/),
    });
    const phoneNumbers: string[] = [];
    for (let cursor: string | null = ''; cursor !== null; ) {
      const filters = 'status=submitted+for+review&reportingGroup=Control&internalName=Main+Line&size=100';
      const { items, nextCursor } = await page(`${filters}${cursor && `&nextCursor=${cursor}`}`);
      phoneNumbers.push(...items.map(({ phoneNumber }) => phoneNumber));
      cursor = nextCursor;
    }
    expect(phoneNumbers).toEqual(
      expect.arrayContaining(list.filter((_, i) => i % 2 === 0).map(({ phoneNumber }) => phoneNumber)),
    );
    expect(await end('SIGTERM')).toBe(0);
    expect(await readdir(join(command.folder, '.data', 'postgres', 'data'))).not.toContain('postmaster.pid');
  });

  it('serves the same data after it was killed', async () => {
    await (await serve()).end('SIGKILL');
    const { page, end } = await serve();
    expect((await page('phoneNumber=%2B14151000')).items).toHaveLength(1);
    expect(await end('SIGINT')).toBe(0);
    // PostgreSQL writes this after it has removed its lock file, for which the command waits.
    const log = () => readFile(join(command.folder, '.data', 'postgres', 'log'), 'utf8');
    await expect.poll(async () => (await log()).trimEnd()).toMatch(/database system is shut down$/);
  });
});

describe('serve says in one line why it cannot start:', () => {
  it.each([
    [
      'all settings that are wrong',
      { PORT: 'http', MAX_CONNECTIONS: 'many' },
      /^PORT must be a whole number from 0 to 65535\nMAX_CONNECTIONS must be a whole number .*\n$/,
    ],
    ['an open host without a choice of AUTH', { HOST: '0.0.0.0' }, /^AUTH must be chosen/],
    ['a database that is not there', { DATABASE_URL: 'postgres://127.0.0.1:1/none' }, /127\.0\.0\.1:1/],
  ])('%s', async (_name, environment, said) => {
    const { code, stderr } = await command.run(['serve'], '', { environment });
    expect(code).toBe(1);
    expect(stderr).toMatch(said);
    expect(stderr).not.toContain('    at ');
  });

  it('and names a variable that is probably a misspelled setting', async () => {
    const environment = { RATE_LIMIT_PER_SECONDS: '5', PORT: 'http' };
    const { stderr } = await command.run(['serve'], '', { environment });
    expect(stderr).toMatch(/^RATE_LIMIT_PER_SECONDS is not a setting .* RATE_LIMIT_PER_SECOND\?\nPORT must be .*\n$/);
  });

  it.skipIf(process.platform !== 'linux')('too few open files', async () => {
    const { code, stderr } = await command.shell('ulimit -n 200; DATABASE_CONNECTIONS=200 exec $command serve');
    const said = /^the system allows 200 open files .* too few: DATABASE_CONNECTIONS \(200\) takes 235\n$/;
    expect([code, stderr]).toEqual([1, expect.stringMatching(said)]);
  });

  it('a folder that the embedded PostgreSQL cannot use', async () => {
    const other = await mkdtemp(join(command.folder, 'without-'));
    await writeFile(join(other, '.data'), 'a file in the way');
    const { code, stderr } = await command.run(['serve'], '', { environment: {}, folder: other });
    expect([code, stderr]).toEqual([1, expect.stringMatching(/^The embedded PostgreSQL cannot use .*\n$/)]);
  });
});
