/**
 * The tables. `business_profiles`, `branded_phone_numbers` and `carrier_statuses` are what is true; anyone may write
 * them. `listed_carrier_statuses` is derived from them by triggers (drizzle/0001_derived.sql) and is what the list
 * operation walks. Bounds and value lists repeat the contract's, because the database is its own last line of
 * defence; a test holds the two together.
 */
import { sql } from 'drizzle-orm';
import {
  boolean,
  check,
  customType,
  foreignKey,
  index,
  integer,
  json,
  pgEnum,
  pgTable,
  primaryKey,
  timestamp,
  unique,
  uuid,
} from 'drizzle-orm/pg-core';
import { type CarrierStatus, DetailedStatus, Feature, Status } from '../generated/types/models/index.js';

/** Text in byte order, whatever the database's locale: pages are ordered so, and comparisons are cheapest so. */
const byteText = customType<{ data: string }>({ dataType: () => 'text COLLATE "C"' });

const time = (name: string) => timestamp(name, { withTimezone: true, precision: 3, mode: 'string' });

const values = <T extends string>(list: Record<string, T>) => Object.values(list) as [T, ...T[]];

const isName = (column: string, length = 255) =>
  sql.raw(`char_length(${column}) BETWEEN 1 AND ${length} AND ${column} !~ '[\\x01-\\x1f\\x7f-\\x9f]'`);

export const feature = pgEnum('feature', values(Feature));
export const status = pgEnum('status', values(Status));
export const detailedStatus = pgEnum('detailed_status', values(DetailedStatus));

export const businessProfiles = pgTable(
  'business_profiles',
  {
    id: uuid().primaryKey(),
    businessName: byteText('business_name').notNull(),
    status: byteText().notNull(),
  },
  () => [check('business_name_is_name', isName('business_name')), check('status_is_name', isName('status'))],
);

export const brandedPhoneNumbers = pgTable(
  'branded_phone_numbers',
  {
    phoneNumber: byteText('phone_number').primaryKey(),
    id: uuid().notNull().defaultRandom(),
    businessProfileId: uuid('business_profile_id').notNull(),
    internalName: byteText('internal_name'),
    brandingNameShort: byteText('branding_name_short'),
    brandingNameLong: byteText('branding_name_long'),
    reportingGroup: byteText('reporting_group'),
    /** Derived from the carrier statuses (specification 3.2); what a writer says is overridden. */
    status: status().notNull().default('unregistered'),
    /** Derived: the number's entries as an answer shows them, so that a page reads one row a number. */
    carrierStatuses: json('carrier_statuses').$type<CarrierStatus[]>().notNull().default([]),
    createdAt: time('created_at').notNull().defaultNow(),
    updatedAt: time('updated_at').notNull().defaultNow(),
  },
  (t) => [
    unique('branded_phone_numbers_id').on(t.id),
    foreignKey({
      name: 'number_has_business_profile',
      columns: [t.businessProfileId],
      foreignColumns: [businessProfiles.id],
    }),
    check('phone_number_is_e164', sql`phone_number ~ '^\\+[1-9][0-9]{1,14}$'`),
    check('internal_name_is_name', isName('internal_name')),
    check('branding_name_short_is_name', isName('branding_name_short', 15)),
    check('branding_name_long_is_name', isName('branding_name_long', 32)),
    check('reporting_group_is_name', isName('reporting_group')),
    check('times_are_finite', sql`isfinite(created_at) AND isfinite(updated_at)`),
    // The list's walks without an entry filter: behind each owner that a filter can name, with and without a status, the
    // order of the pages. Those without hold everything else that is asked of a number, so that the next numbers of an
    // owner are tested without reading their rows.
    index('numbers_by_status').on(t.status, t.phoneNumber),
    index('numbers_by_business_profile_status').on(t.businessProfileId, t.status, t.phoneNumber),
    index('numbers_by_reporting_group_status').on(t.reportingGroup, t.status, t.phoneNumber),
    index('numbers_by_internal_name_status').on(t.internalName, t.status, t.phoneNumber),
    index('numbers_by_business_profile').on(
      t.businessProfileId,
      t.phoneNumber,
      t.status,
      t.reportingGroup,
      t.internalName,
    ),
    index('numbers_by_reporting_group').on(
      t.reportingGroup,
      t.phoneNumber,
      t.status,
      t.businessProfileId,
      t.internalName,
    ),
    index('numbers_by_internal_name').on(
      t.internalName,
      t.phoneNumber,
      t.status,
      t.businessProfileId,
      t.reportingGroup,
    ),
  ],
);

export const carrierStatuses = pgTable(
  'carrier_statuses',
  {
    phoneNumber: byteText('phone_number').notNull(),
    carrier: byteText().notNull(),
    feature: feature().notNull(),
    detailedStatus: detailedStatus('detailed_status').notNull(),
    createdAt: time('created_at').notNull().defaultNow(),
  },
  (t) => [
    primaryKey({ name: 'carrier_statuses_pkey', columns: [t.phoneNumber, t.carrier, t.feature] }),
    foreignKey({
      name: 'carrier_status_has_number',
      columns: [t.phoneNumber],
      foreignColumns: [brandedPhoneNumbers.phoneNumber],
    })
      .onDelete('cascade')
      .onUpdate('cascade'),
    check('carrier_is_name', isName('carrier')),
    check('time_is_finite', sql`isfinite(created_at)`),
  ],
);

/**
 * Every combination of what an entry and its number's status can be, that some entry has or once had: a few hundred
 * rows. A filter on entries comes down to some of them.
 */
export const combinations = pgTable(
  'combinations',
  {
    id: integer().primaryKey().generatedAlwaysAsIdentity(),
    carrier: byteText().notNull(),
    feature: feature().notNull(),
    detailedStatus: detailedStatus('detailed_status').notNull(),
    status: status().notNull(),
  },
  (t) => [unique('combinations_values').on(t.carrier, t.feature, t.detailedStatus, t.status)],
);

/**
 * Each carrier status, as its combination, beside every owner of its number that a filter can name. Within one owner
 * and one combination an index below gives the phone numbers in the order of the pages, so a page costs one descent
 * for each combination, however many rows match. The combination is a number so that these indexes, which hold all
 * entries, are small and quick to build and to compare.
 */
export const listedCarrierStatuses = pgTable(
  'listed_carrier_statuses',
  {
    phoneNumber: byteText('phone_number').notNull(),
    combinationId: integer('combination_id').notNull(),
    businessProfileId: uuid('business_profile_id').notNull(),
    reportingGroup: byteText('reporting_group'),
    internalName: byteText('internal_name'),
  },
  (t) => [
    primaryKey({ name: 'listed_carrier_statuses_pkey', columns: [t.phoneNumber, t.combinationId] }),
    index('listed_by_combination').on(t.combinationId, t.phoneNumber),
    index('listed_by_business_profile').on(t.businessProfileId, t.combinationId, t.phoneNumber),
    index('listed_by_reporting_group').on(t.reportingGroup, t.combinationId, t.phoneNumber),
    index('listed_by_internal_name').on(t.internalName, t.combinationId, t.phoneNumber),
  ],
);

/** The counted requests of the last second of each client; unlogged, because a crash may forget them. */
export const rateLimits = pgTable('rate_limits', {
  client: byteText().primaryKey(),
  /** When each of them came, oldest first. */
  requests: timestamp({ withTimezone: true, mode: 'string' }).array().notNull(),
  /** Whether the latest request, counted or not, was within the limit. */
  allowed: boolean().notNull(),
});

/** API keys, by the SHA-256 of the key; the key itself is not kept. */
export const apiKeys = pgTable('api_keys', {
  id: uuid().primaryKey().defaultRandom(),
  hash: byteText().notNull().unique(),
  name: byteText().notNull(),
  /** The business profiles whose numbers the key sees; null for all. */
  businessProfileIds: uuid('business_profile_ids').array(),
  createdAt: time('created_at').notNull().defaultNow(),
  revokedAt: time('revoked_at'),
});
