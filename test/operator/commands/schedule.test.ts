/** docs/imports.md, typed; its CronJob runs in test/deploy. */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, expect, it } from 'vitest';
import { COLUMNS } from '../../../src/operator/numbers/csvColumns.js';
import { HEADER } from '../../../src/operator/numbers/csvOutput.js';
import { useCommand } from '../../support/command.js';

const command = useCommand();
let manual: string;
const blocks = (language: string) =>
  [...manual.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\`$`, 'gms'))].map(([, code = '']) => code);

beforeAll(async () => {
  manual = await readFile('docs/imports.md', 'utf8');
  const [rows = '', wide = ''] = blocks('csv');
  const files = {
    'numbers.csv': rows,
    'all-numbers.csv': wide,
    'branded-phone-numbers': '#!/bin/sh\nexec $command "$@"',
  };
  for (const [name, text] of Object.entries(files)) await writeFile(join(command.folder, name), text, { mode: 0o755 });
});

it('docs/imports.md lists all columns, in the order of an export', () => {
  const [table = ''] = manual.split('| Columns |')[1]?.split('\n\n') ?? [];
  const names = table.split('\n').flatMap((row) => [...(row.split('|')[1] ?? '').matchAll(/`(.+?)`/g)]);
  expect(names.map(([, name]) => name)).toEqual(COLUMNS.map(({ name }) => name));
});

it('docs/imports.md has spreadsheets and commands that import, export and replace numbers', async () => {
  const imported = 'imported 2 numbers, 2 carrier statuses';
  expect(await command.shell(`set -e; PATH=$PWD:$PATH; ${blocks('sh').join('')}`)).toMatchObject({
    code: 0,
    stdout: `${imported}\n${imported}\n${imported}, deleted 0 numbers\n`,
  });
  // None is rejected.
  expect(await readFile(join(command.folder, 'rejected.csv'), 'utf8')).toBe(HEADER);
});

it.runIf(process.getuid?.() === 0)(
  'docs/imports.md has a line for cron, which imports unless it runs already',
  async () => {
    const [, cron = ''] = /^# \/etc\/cron\.d\/.*\n(?:\S+ ){5}root (.*)$/m.exec(manual) ?? [];
    // Its folders are replaced for this process alone. Cron gives few variables.
    const script = `
    for folder in /usr/local/bin /srv /run/lock /var/log; do mkdir -p $folder; mount -t tmpfs none $folder; done
    cp numbers.csv /srv
    printf '#!/bin/sh\nexport DATABASE_URL=%s\nexec %s "$@"\n' "$DATABASE_URL" "$command" > /usr/local/bin/branded-phone-numbers
    chmod +x /usr/local/bin/*
    run() { env -i HOME=/root LOGNAME=root SHELL=/bin/sh PATH=/usr/bin:/bin /bin/sh -c "$1"; echo "status $?"; }
    flock /run/lock/branded-phone-numbers-import bash -c "$(declare -f run); run '$1'"
    run "$1"
    tail -n 1 /var/log/*import.log`;
    const { stdout } = await command.shell(`unshare --mount bash -c '${script.replaceAll("'", "'\\''")}' - '${cron}'`);
    expect(stdout).toBe('status 1\nstatus 0\nimported 2 numbers, 2 carrier statuses\n');
  },
);
