/** Importing what is already there: what changes, what stays, and that an unchanged line writes nothing. */
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { expectDerivedToAgree } from '../../support/derived.js';
import {
  database,
  entry,
  ID,
  manyNumbers,
  number,
  one,
  PROFILE,
  run,
  stored,
  useDatabase,
  versions,
  without,
} from './importing.js';

useDatabase();

describe('importing again', () => {
  test('the same file writes nothing', async () => {
    const items = manyNumbers(500).map((item, i) =>
      i % 2 ? item : { ...item, carrierStatuses: item.carrierStatuses.map((e) => without(e, 'createdAt')) },
    );
    await run(items);
    const before = await versions();
    expect(await run(items)).toMatchObject({ numbers: 500 });
    expect(await versions()).toEqual(before);
  });

  test('items from a response writes nothing', async () => {
    await run([number({ id: ID })]);
    const before = await versions();
    const { created_at: createdAt, updated_at: updatedAt, carrier_statuses: carrierStatuses, status } = await one();
    await run([number({ id: ID.toUpperCase(), createdAt, updatedAt, carrierStatuses, status })]);
    expect(await versions()).toEqual(before);
  });

  test('one changed number writes no other number', async () => {
    await run(manyNumbers(10));
    const before = await stored();
    await run([{ ...manyNumbers(10)[3], reportingGroup: 'New' } as object]);
    const after = await stored();
    expect(after.filter(({ reporting_group }) => reporting_group !== 'New')).toEqual(
      before.filter((_, i) => after[i]?.reporting_group !== 'New'),
    );
    expect(after.filter(({ reporting_group }) => reporting_group === 'New')).toHaveLength(1);
    await expectDerivedToAgree(database.$client);
  });

  test.each([
    ['internalName', { internalName: null }],
    ['brandingNameShort', { brandingNameShort: 'New' }],
    ['brandingNameLong', { brandingNameLong: 'New' }],
    ['reportingGroup', { reportingGroup: 'New' }],
    ['businessProfile', { businessProfile: { ...PROFILE, id: ID, businessName: 'Square' } }],
    ['an entry less', { carrierStatuses: [] }],
    ['an entry more', { carrierStatuses: [entry(), entry({ carrier: 'Verizon' })] }],
    ['another carrier', { carrierStatuses: [entry({ carrier: 'Verizon' })] }],
    ['another feature', { carrierStatuses: [entry({ feature: 'spamRemediation' })] }],
    ['another detailed status', { carrierStatuses: [entry({ detailedStatus: 'rejected.optIn' })] }],
    ['another time of an entry', { carrierStatuses: [entry({ createdAt: '2026-02-03T16:49:02.748Z' })] }],
    ['another id', { id: ID }],
    ['another createdAt', { createdAt: '2026-02-03T16:49:02.748Z' }],
  ])('with another %s changes that and updatedAt', async (_, changes) => {
    await run([number()]);
    const before = await one();
    await sleep(5);
    await run([number(changes)]);
    const after = await one();
    expect(after.updated_at > before.updated_at).toBe(true);
    expect(after.id).toBe('id' in changes ? changes.id : before.id);
    expect(after.created_at).toBe('createdAt' in changes ? changes.createdAt : before.created_at);
    const changed = ({ updated_at, ...rest }: object & { updated_at?: string }) => rest;
    expect(changed(after)).not.toEqual(changed(before));
    await run([number(changes)]);
    expect(await one()).toEqual(after);
    await expectDerivedToAgree(database.$client);
  });

  test('a number replaces its entries', async () => {
    const given = ['AT&T', 'T-Mobile', 'Verizon'].map((carrier) => entry({ carrier }));
    await run([number({ carrierStatuses: given })]);
    const [att, , verizon] = (await one()).carrier_statuses;
    await sleep(5);
    await run([
      number({
        carrierStatuses: [
          entry(),
          entry({ carrier: 'Verizon', detailedStatus: 'submitted.optOut' }),
          entry({ carrier: 'C Spire' }),
        ],
      }),
    ]);
    const { carrier_statuses, status } = await one();
    expect(carrier_statuses.map(({ carrier }: { carrier: string }) => carrier)).toEqual(['AT&T', 'C Spire', 'Verizon']);
    expect(carrier_statuses[0]).toEqual(att);
    expect(carrier_statuses[2].createdAt > verizon.createdAt).toBe(true);
    expect(status).toBe('submitted for review');
    await expectDerivedToAgree(database.$client);
  });

  test('another name moves an updatedAt in the future forward, never back', async () => {
    await run([number({ updatedAt: '2126-01-01T00:00:00.000Z' })]);
    await run([without(number({ internalName: 'New' }), 'updatedAt')]);
    expect(await one()).toMatchObject({ updated_at: '2126-01-01T00:00:00.001Z' });
    await run([number({ internalName: 'Newer', updatedAt: '2026-01-01T00:00:00.000Z' })]);
    expect(await one()).toMatchObject({ updated_at: '2126-01-01T00:00:00.002Z' });
  });

  test('sets updatedAt to the given time', async () => {
    await run([number()]);
    await run([number({ updatedAt: '2027-01-01T00:00:00.000Z' })]);
    expect(await one()).toMatchObject({ updated_at: '2027-01-01T00:00:00.000Z' });
  });

  test('another business name changes the profile for all its numbers', async () => {
    await run([number(), number({ phoneNumber: '+14155550124' })]);
    await run([number({ businessProfile: { ...PROFILE, businessName: 'Square Bank', status: 'rejected' } })]);
    expect((await stored()).map(({ business_name }) => business_name)).toEqual(['Square Bank', 'Square Bank']);
    expect(await one()).toMatchObject({ profile_status: 'rejected' });
  });
});

describe('an import derives the same rows as the triggers', () => {
  test('for new, changed and unchanged numbers', async () => {
    await run(manyNumbers(400).slice(100));
    await run(manyNumbers(400).map((item, i) => (i % 3 ? item : { ...item, carrierStatuses: [entry()] })));
    await expectDerivedToAgree(database.$client);
  });
});
