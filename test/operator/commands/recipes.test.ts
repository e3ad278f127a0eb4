/** docs/imports.md, typed; replaceNumbers.test.ts has the recipe for a file that is everything. */
import { readFile, stat, writeFile } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { ndjson } from '../../support/ndjson.js';
import { numberWith } from '../../support/numbers.js';
import { isInstalled } from '../../support/programs.js';
import { useProxy } from '../../support/toxicProxy.js';
import { blocks, command, exported, inFolder, type, useRecipes } from './recipes.js';

useRecipes();

describe.runIf(isInstalled('mlr'))('CSV to NDJSON', () => {
  const FORMS = ['with a row for each entry', 'with a column for each entry'] as const;
  /** Converts the manual's example after an edit, by the recipe of this form. */
  const convert = async (form: (typeof FORMS)[number], edit = (csv: string) => csv) => {
    const index = FORMS.indexOf(form);
    await writeFile(inFolder('numbers.csv'), edit(blocks('csv')[index] ?? ''));
    return await type(blocks('sh')[index] ?? '');
  };

  it.each(FORMS)('%s', async (form) => {
    expect(await convert(form)).toMatchObject({ code: 0, stderr: '' });
    expect(await command.run(['import', 'numbers.ndjson'])).toMatchObject({
      code: 0,
      stdout: 'imported 2 numbers, 2 carrier statuses\n',
    });
    const [first, second] = await exported();
    expect(first).toMatchObject({
      phoneNumber: '+14155550123',
      businessProfile: { businessName: 'Circle Bank' },
      internalName: 'Sales, East',
      brandingNameShort: 'Circle Bank',
      brandingNameLong: 'Circle Bank Financial',
      reportingGroup: 'Control',
      carrierStatuses: [
        { carrier: 'AT&T', feature: 'brandedCallerId', detailedStatus: 'approved.optIn' },
        { carrier: 'Verizon', feature: 'spamRemediation', detailedStatus: 'pending.optIn' },
      ],
    });
    expect(second).toMatchObject({
      phoneNumber: '+14155550124',
      brandingNameShort: null,
      reportingGroup: null,
      carrierStatuses: [],
    });
  });

  it.each<[string, (typeof FORMS)[number], RegExp | string, string]>([
    ['line 1: unknown column Long Name: rename', FORMS[0], 'Long name', 'Long Name'],
    ['line 1: no column Status: add it', FORMS[0], /,[^,]*$/gm, ''],
    [
      'line 3: Line differs from that in an earlier row of +14155550123: correct',
      FORMS[0],
      /East(?=.*Verizon)/,
      'West',
    ],
    [
      'line 3: a second row of +14155550123 for AT&T brandedCallerId: delete',
      FORMS[0],
      'Verizon,spamRemediation',
      'AT&T,brandedCallerId',
    ],
    ['line 1: unknown column AT&T brandedCallerID: name it CARRIER ', FORMS[1], 'brandedCallerId', 'brandedCallerID'],
    ['line 1: no column Group: add it', FORMS[1], 'Group', 'group'],
  ])('fails with "%s", %s', async (message, form, searched, replacement) => {
    const edit = (csv: string) => csv.replace('spamRemediation', 'spamRemediation').replace(searched, replacement);
    const { code, stderr } = await convert(form, edit);
    expect([code, stderr.split('\n')[0]]).toEqual([1, expect.stringContaining(`numbers.csv ${message}`)]);
    expect(await readFile(inFolder('numbers.ndjson'), 'utf8')).toBe('');
  });

  it('keeps an entry that lacks its carrier, which the import reports', async () => {
    expect((await convert(FORMS[0], (csv) => csv.replace(',Verizon', ','))).code).toBe(0);
    expect(await command.run(['import', 'numbers.ndjson'])).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('carrier must not be empty'),
    });
  });

  it('reads the rows that NDJSON to CSV has made of all rejected numbers, whatever is in them', async () => {
    const texts = ['a,b', 'a;b', 'say "x"', '"', "'", '=1+1', '+1', '-1', '@x', '0x1F', '007', '1e5', 'true', '', null];
    const more = [
      ' a ',
      '\\1\\t\\',
      '東京',
      'e\u0301',
      '👍🏽',
      '\ufeffa',
      '\u00a0',
      '#',
      '{"a":[]}',
      'null',
      '$a',
      'a\u2028b',
    ];
    const createdAt = '2026-02-03T16:49:03.043Z';
    const rejected = { feature: 'spamRemediation', detailedStatus: 'rejected.optIn', createdAt } as const;
    const approved = {
      carrier: 'Ü=1,"',
      feature: 'brandedCallerId',
      detailedStatus: 'approved.optIn',
      createdAt,
    } as const;
    const numbers = [...texts, ...more].map((text, i) =>
      numberWith({
        phoneNumber: `+1999${i + 10}`,
        internalName: text,
        brandingNameShort: text?.slice(0, 15) ?? null,
        brandingNameLong: text,
        reportingGroup: text,
        carrierStatuses: [{ ...rejected, carrier: text || 'AT&T' }, ...(i % 2 ? [approved] : [])],
      }),
    );
    const list = [...numbers, numberWith({ phoneNumber: '+20', carrierStatuses: [approved] })];
    expect(await command.run(['import', '-'], ndjson(list))).toMatchObject({ code: 0, stderr: '' });
    const before = await exported();

    expect(await type(blocks('sh')[2] ?? '')).toMatchObject({ code: 0 });
    const csv = await readFile(inFolder('rejected.csv'), 'utf8');
    await command.sql`UPDATE branded_phone_numbers SET internal_name = 'x', branding_name_long = 'x'`;
    await command.sql`DELETE FROM carrier_statuses WHERE carrier <> ${approved.carrier}`;
    // Excel adds a byte order mark, and carriage returns.
    expect(await convert(FORMS[0], () => `\ufeff${csv.replaceAll('\n', '\r\n')}`)).toMatchObject({
      code: 0,
      stderr: '',
    });
    expect(await command.run(['import', 'numbers.ndjson'])).toMatchObject({ code: 0 });
    const withoutTimes = (items: typeof before) =>
      items.map(({ updatedAt: _, ...item }) => ({
        ...item,
        carrierStatuses: item.carrierStatuses.map(({ createdAt: _, ...entry }: { createdAt: string }) => entry),
      }));
    expect(withoutTimes((await exported()).slice(0, -1))).toEqual(withoutTimes(before.slice(0, -1)));
  });
});

describe('a scheduled import', () => {
  const scheduled = (environment = '') =>
    type(`sleep() { :; }; export -f sleep; LOCK=lock ${environment} scheduled-import numbers.ndjson`);

  it('ends if the input is faulty, and is tried three times if PostgreSQL is away', async () => {
    await writeFile(inFolder('numbers.ndjson'), ndjson([numberWith({ phoneNumber: '+11' })]));
    expect(await scheduled()).toMatchObject({ code: 0, stdout: 'imported 1 number, 0 carrier statuses\n' });
    await writeFile(inFolder('numbers.ndjson'), 'nonsense');
    const faulty = await scheduled();
    expect([faulty.code, faulty.stderr.match(/not a JSON object/g)]).toEqual([1, ['not a JSON object']]);
    const proxy = await useProxy(command.databaseUrl);
    proxy.behave('refusing');
    const away = await scheduled(`DATABASE_URL=${proxy.through(command.databaseUrl)}`);
    expect([away.code, away.stderr.match(/can't be reached/g)?.length]).toEqual([75, 3]);
  });

  it.runIf(process.getuid?.() === 0)('runs with the environment of cron, which lacks /usr/local/bin', async () => {
    const [, line = ''] =
      /^# \/etc\/cron\.d\/.*\n(?:\S+ ){5}root (.*)$/m.exec(await readFile('docs/imports.md', 'utf8')) ?? [];
    await writeFile(inFolder('numbers.ndjson'), ndjson([numberWith({ phoneNumber: '+11' })]));
    // Its folders are replaced for this process alone.
    const script = `
      set -e
      for folder in /usr/local/bin /srv /run/lock /var/log; do mkdir -p $folder; mount -t tmpfs none $folder; done
      cp scheduled-import /usr/local/bin
      cp numbers.ndjson /srv
      printf '#!/bin/sh\nexport DATABASE_URL=%s\nexec %s "$@"\n' "$DATABASE_URL" "$command" > /usr/local/bin/branded-phone-numbers
      chmod +x /usr/local/bin/*
      env -i HOME=/root LOGNAME=root SHELL=/bin/sh PATH=/usr/bin:/bin /bin/sh -c "$1" || cat /var/log/scheduled-import.log >&2
      tail -n 1 /var/log/scheduled-import.log`;
    expect(await type(`unshare --mount bash -c '${script.replaceAll("'", "'\\''")}' - '${line}'`)).toMatchObject({
      code: 0,
      stdout: 'imported 1 number, 0 carrier statuses\n',
      stderr: '',
    });
  });

  it('does not begin while the previous one runs', async () => {
    const line = 'exec 8> lock; flock 8; LOCK=lock scheduled-import numbers.ndjson';
    expect(await type(line)).toMatchObject({ code: 75, stdout: '', stderr: 'the previous run has not ended\n' });
    expect((await stat(inFolder('lock'))).size).toBe(0);
  });
});
