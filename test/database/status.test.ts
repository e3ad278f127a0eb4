/** The overall status of a number: its value for given entries, and how it changes as carriers decide on them. */
import { eq, sql } from 'drizzle-orm';
import { beforeEach, describe, expect, it } from 'vitest';
import type { DetailedStatus } from '../../generated/types/models/index.js';
import { brandedPhoneNumbers, carrierStatuses, items } from '../../src/database/schema.js';
import type { Status } from '../../src/status.js';
import { useDatabase } from '../support/database.js';
import { DETAILED_STATUSES, entryWith, numberWith, write } from '../support/numbers.js';
import { overallStatus } from '../support/reference.js';

const database = useDatabase();
const PHONE = '+14155550123';

const statusNow = async () => {
  const [row] = await database.drizzle.select().from(items).where(eq(items.phoneNumber, PHONE));
  return row?.status;
};

beforeEach(async () => {
  await database.drizzle.execute(sql`TRUNCATE ${brandedPhoneNumbers} CASCADE`);
});

/** Writes the number with an entry of each carrier. */
async function writeEntries(detailedStatuses: [carrier: string, DetailedStatus][]) {
  const entries = detailedStatuses.map(([carrier, status]) => entryWith(carrier, 'brandedCallerId', status));
  await write(database.drizzle, [numberWith({ phoneNumber: PHONE, carrierStatuses: entries })]);
  return entries;
}

describe('the status of a number (specification 3.2) is', () => {
  it.each<[Status, string, DetailedStatus[]]>([
    [
      'submitted for review',
      'while an opt-in is pending',
      ['approved.optIn', 'rejected.optIn', 'pending.initialOptIn'],
    ],
    ['submitted for review', 'while an opt-out is pending', ['approved.optIn', 'pending.optOut']],
    ['submitted for review', 'while a carrier has an entry to decide on', ['approved.optOut', 'submitted.optOut']],
    ['rejected', 'if a single carrier rejected it', ['approved.optIn', 'approved.optIn', 'rejected.optIn']],
    ['rejected', 'if an opt-out was rejected', ['approved.optIn', 'rejected.optOut']],
    ['approved', 'if all opt-ins are approved', ['approved.optIn', 'approved.optIn']],
    ['approved', 'if one opt-in remains beside approved opt-outs', ['approved.optIn', 'approved.optOut']],
    ['unregistered', 'if all entries are approved opt-outs', ['approved.optOut', 'approved.optOut']],
    ['unregistered', 'without entries', []],
  ])('%s %s', async (expected, _condition, detailedStatuses) => {
    const entries = await writeEntries(detailedStatuses.map((status, i) => [`Carrier ${i}`, status]));
    expect(await statusNow()).toBe(expected);
    expect(overallStatus(entries)).toBe(expected);
  });

  it.each(DETAILED_STATUSES)('the one in the specification’s table if %s is the only entry', async (detailedStatus) => {
    const entries = await writeEntries([['AT&T', detailedStatus]]);
    expect(await statusNow()).toBe(overallStatus(entries));
  });
});

describe('a number with entries of AT&T and Verizon (specification 3.3)', () => {
  /** A change sets all entries to a detailed status, or those of the carrier before the colon. */
  it.each<[Status, string, DetailedStatus, changes: string[]]>([
    ['approved', 'once all carriers approve it', 'submitted.optIn', ['approved.optIn']],
    ['rejected', 'if one carrier rejects it', 'submitted.optIn', ['AT&T: approved.optIn', 'Verizon: rejected.optIn']],
    ['submitted for review', 'during an opt-out', 'approved.optIn', ['AT&T: pending.optOut', 'AT&T: submitted.optOut']],
    ['unregistered', 'after an opt-out of all', 'approved.optIn', ['submitted.optOut', 'approved.optOut']],
  ])('is %s %s', async (expected, _condition, atFirst, changes) => {
    await writeEntries([
      ['AT&T', atFirst],
      ['Verizon', atFirst],
    ]);
    for (const change of changes) {
      const [detailedStatus, carrier] = change.split(': ').reverse() as [DetailedStatus, string?];
      const isChanged = carrier ? eq(carrierStatuses.carrier, carrier) : sql`TRUE`;
      await database.drizzle.update(carrierStatuses).set({ detailedStatus }).where(isChanged);
    }
    expect(await statusNow()).toBe(expected);
  });
});
