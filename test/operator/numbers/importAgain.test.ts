/** Imports of numbers that exist: what they change and keep, and that an unchanged line writes nothing. */
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { expectDerivedToAgree } from '../../support/derived.js';
import {
  database,
  entry,
  ID,
  manyNumbers,
  number,
  PROFILE,
  run,
  stored,
  storedNumber,
  useDatabase,
  versions,
  without,
} from './importing.js';

useDatabase();

describe('an import', () => {
  test('of the same file writes nothing', async () => {
    const items = manyNumbers(500).map((item, i) =>
      i % 2 ? item : { ...item, carrierStatuses: item.carrierStatuses.map((e) => without(e, 'createdAt')) },
    );
    await run(items);
    const before = await versions();
    expect(await run(items)).toMatchObject({ numbers: 500 });
    expect(await versions()).toEqual(before);
  });

  test('of items from a response writes nothing', async () => {
    await run([number({ id: ID })]);
    const before = await versions();
    const {
      created_at: createdAt,
      updated_at: updatedAt,
      carrier_statuses: carrierStatuses,
      status,
    } = await storedNumber();
    await run([number({ id: ID.toUpperCase(), createdAt, updatedAt, carrierStatuses, status })]);
    expect(await versions()).toEqual(before);
  });

  test('of one changed number writes no other number', async () => {
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

  test('with another value of a member changes that and updatedAt', async () => {
    const changes: Record<string, Record<string, unknown>> = {
      'another internalName': { internalName: null },
      'another brandingNameShort': { brandingNameShort: 'New' },
      'another brandingNameLong': { brandingNameLong: 'New' },
      'another reportingGroup': { reportingGroup: 'New' },
      'another businessProfile': { businessProfile: { ...PROFILE, id: ID, businessName: 'Square' } },
      'one entry fewer': { carrierStatuses: [] },
      'one entry more': { carrierStatuses: [entry(), entry({ carrier: 'Verizon' })] },
      'another carrier': { carrierStatuses: [entry({ carrier: 'Verizon' })] },
      'another feature': { carrierStatuses: [entry({ feature: 'spamRemediation' })] },
      'another detailed status': { carrierStatuses: [entry({ detailedStatus: 'rejected.optIn' })] },
      'another time of an entry': { carrierStatuses: [entry({ createdAt: '2026-02-03T16:49:02.748Z' })] },
      'another id': { id: ID },
      'another createdAt': { createdAt: '2026-02-03T16:49:02.748Z' },
    };
    const names = Object.keys(changes);
    const given = names.map((_, i) => number({ phoneNumber: `+1${10 + i}` }));
    const changed = given.map((item, i) => ({ ...item, ...changes[names[i] ?? ''] }));
    await run(given);
    const before = await stored();
    await sleep(5);
    await run(changed);
    const after = await stored();
    for (const [i, name] of names.entries()) {
      const [old, now] = [before[i] ?? expect.fail(), after[i] ?? expect.fail()];
      const { id, createdAt } = changes[name] ?? {};
      expect(now.updated_at > old.updated_at, name).toBe(true);
      expect([now.id, now.created_at], name).toEqual([id ?? old.id, createdAt ?? old.created_at]);
      expect(without(now, 'updated_at'), name).not.toEqual(without(old, 'updated_at'));
    }
    await run(changed);
    expect(await stored()).toEqual(after);
    await expectDerivedToAgree(database.$client);
  });

  test('replaces the entries of a number, and keeps the createdAt of unchanged ones', async () => {
    await run([number({ carrierStatuses: ['AT&T', 'T-Mobile', 'Verizon'].map((carrier) => entry({ carrier })) })]);
    const [att, , verizon] = (await storedNumber()).carrier_statuses;
    await sleep(5);
    const verizonAfter = entry({ carrier: 'Verizon', detailedStatus: 'submitted.optOut' });
    await run([number({ carrierStatuses: [entry(), verizonAfter, entry({ carrier: 'C Spire' })] })]);
    const { carrier_statuses, status } = await storedNumber();
    expect(carrier_statuses.map(({ carrier }: { carrier: string }) => carrier)).toEqual(['AT&T', 'C Spire', 'Verizon']);
    expect(carrier_statuses[0]).toEqual(att);
    expect(carrier_statuses[2].createdAt > verizon.createdAt).toBe(true);
    expect(status).toBe('submitted for review');
    await expectDerivedToAgree(database.$client);
  });

  test('with another name moves an updatedAt in the future forward, never back', async () => {
    await run([number({ updatedAt: '2126-01-01T00:00:00.000Z' })]);
    await run([without(number({ internalName: 'New' }), 'updatedAt')]);
    expect(await storedNumber()).toMatchObject({ updated_at: '2126-01-01T00:00:00.001Z' });
    await run([number({ internalName: 'Newer', updatedAt: '2026-01-01T00:00:00.000Z' })]);
    expect(await storedNumber()).toMatchObject({ updated_at: '2126-01-01T00:00:00.002Z' });
  });

  test('sets updatedAt to the given time', async () => {
    await run([number()]);
    await run([number({ updatedAt: '2027-01-01T00:00:00.000Z' })]);
    expect(await storedNumber()).toMatchObject({ updated_at: '2027-01-01T00:00:00.000Z' });
  });

  test('with another business name changes the profile of all its numbers', async () => {
    await run([number(), number({ phoneNumber: '+14155550124' })]);
    await run([number({ businessProfile: { ...PROFILE, businessName: 'Square Bank', status: 'rejected' } })]);
    expect((await stored()).map(({ business_name }) => business_name)).toEqual(['Square Bank', 'Square Bank']);
    expect(await storedNumber()).toMatchObject({ profile_status: 'rejected' });
  });
});
