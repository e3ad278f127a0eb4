/** Random and ordinary numbers, and how to write them into a database. */
import { sql } from 'drizzle-orm';
import fc from 'fast-check';
import {
  type BrandedPhoneNumber,
  type BusinessProfile,
  type CarrierStatus,
  DetailedStatus,
  Feature,
} from '../../generated/types/models/index.js';
import { businessProfiles } from '../../src/database/schema.js';
import { closeDatabase, type TestConnection as Database, openDatabase } from './database.js';
import { byBytes, overallStatus } from './reference.js';

export const CARRIERS = ['AT&T', 'T-Mobile', 'Verizon', 'US Cellular', 'Été+1'];
export const GROUPS = ['Control', 'Sales + Service', '100%', 'A/B, mixed', 'control'];
export const NAMES = ['Main Line', 'Billing & Payments', 'Claims (US)', 'Línea 😀'];
export const PROFILES: BusinessProfile[] = [
  { id: '6513270e-269e-4d37-b2a7-4de452e6b438', businessName: 'Circle Bank', status: 'approved' },
  { id: '5d9dc9f8-1818-4811-892f-902bd23f0824', businessName: 'Fjord "Travel"', status: 'submitted for review' },
  { id: '099950d8-36f6-45cc-81e7-4ef5e8e25d94', businessName: 'Northwind \\ Health', status: 'approved' },
];

export const FEATURES = Object.values(Feature);
export const DETAILED_STATUSES = Object.values(DetailedStatus);

const time = fc
  .date({ min: new Date('2020-01-01T00:00:00Z'), max: new Date('2026-11-01T00:00:00Z'), noInvalidDate: true })
  .map((date) => date.toISOString());

const entries: fc.Arbitrary<CarrierStatus[]> = fc
  .uniqueArray(
    fc.record({
      carrier: fc.constantFrom(...CARRIERS),
      feature: fc.constantFrom(...FEATURES),
      // As in production, most entries are approved; otherwise nearly all numbers would be in review.
      detailedStatus: fc.oneof(
        { weight: 3, arbitrary: fc.constant('approved.optIn' as const) },
        { weight: 2, arbitrary: fc.constantFrom(...DETAILED_STATUSES) },
      ),
      createdAt: time,
    }),
    { maxLength: 5, selector: ({ carrier, feature }) => `${carrier}/${feature}` },
  )
  .map((list) => list.sort((a, b) => byBytes(a.carrier, b.carrier) || byBytes(a.feature, b.feature)));

const name = (choices: string[]) => fc.option(fc.constantFrom(...choices), { freq: 4 });

/** Phone numbers of all lengths, many of them prefixes of another one: these depend on byte order. */
const phoneNumber = fc
  .tuple(fc.constantFrom('+1', '+14', '+49', '+9'), fc.stringMatching(/^[0-9]{1,12}$/))
  .map(([a, b]) => a + b);

const number: fc.Arbitrary<BrandedPhoneNumber> = fc
  .record({
    id: fc.uuid(),
    phoneNumber,
    businessProfile: fc.constantFrom(...PROFILES),
    internalName: name(NAMES),
    brandingNameShort: name(['Circle Bank']),
    brandingNameLong: name(['Circle Bank Financial']),
    reportingGroup: name(GROUPS),
    carrierStatuses: entries,
    createdAt: time,
    updatedAt: time,
  })
  .map(({ carrierStatuses, createdAt, updatedAt, ...number }) => ({
    ...number,
    status: overallStatus(carrierStatuses),
    carrierStatuses,
    createdAt,
    updatedAt,
  }));

/** Returns arbitrary lists of `minLength` to 80 numbers as the service should show them. */
export const numbersFrom = (minLength: number): fc.Arbitrary<BrandedPhoneNumber[]> =>
  fc.uniqueArray(number, { minLength, maxLength: 80, size: 'max', selector: ({ phoneNumber }) => phoneNumber });
export const numbers = numbersFrom(1);

/** Returns an ordinary number with the `given` members. */
export function numberWith(given: Partial<BrandedPhoneNumber> & { phoneNumber: string }): BrandedPhoneNumber {
  const carrierStatuses = given.carrierStatuses ?? [];
  return {
    id: crypto.randomUUID(),
    businessProfile: PROFILES[0] as BusinessProfile,
    internalName: 'Main Line',
    brandingNameShort: 'Circle Bank',
    brandingNameLong: 'Circle Bank Financial',
    reportingGroup: 'Control',
    createdAt: '2026-02-03T16:49:02.748Z',
    updatedAt: '2026-02-03T16:49:02.748Z',
    ...given,
    carrierStatuses,
    status: overallStatus(carrierStatuses),
  };
}

/** Returns an entry with an ordinary time of creation. */
export function entryWith(carrier: string, feature: Feature, detailedStatus: DetailedStatus) {
  return { carrier, feature, detailedStatus, createdAt: '2026-02-03T16:49:03.043Z' };
}

/** Inserts numbers and their entries in one statement: entries that are inserted later would change `updatedAt`. */
export async function write(database: Database, list: readonly BrandedPhoneNumber[]): Promise<void> {
  await database.insert(businessProfiles).values(PROFILES).onConflictDoNothing();
  await database.execute(sql`
    WITH given AS MATERIALIZED (SELECT value AS item FROM jsonb_array_elements(${JSON.stringify(list)}::jsonb)), numbers AS (
      INSERT INTO branded_phone_numbers
      SELECT item ->> 'phoneNumber', (item ->> 'id')::uuid, (item #>> '{businessProfile,id}')::uuid,
        item ->> 'internalName', item ->> 'brandingNameShort', item ->> 'brandingNameLong', item ->> 'reportingGroup',
        (item ->> 'createdAt')::timestamptz, (item ->> 'updatedAt')::timestamptz
      FROM given
    )
    INSERT INTO carrier_statuses
    SELECT item ->> 'phoneNumber', entry ->> 'carrier', (entry ->> 'feature')::feature,
      (entry ->> 'detailedStatus')::detailed_status, (entry ->> 'createdAt')::timestamptz
    FROM given CROSS JOIN jsonb_array_elements(item -> 'carrierStatuses') AS entry`);
}

/** Writes 30 numbers into a migrated database. */
export async function writeNumbers(url: string): Promise<void> {
  const database = openDatabase(url);
  await write(
    database,
    Array.from({ length: 30 }, (_, i) => numberWith({ phoneNumber: `+141555501${10 + i}` })),
  );
  await closeDatabase(database);
}
