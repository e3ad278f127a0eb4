/**
 * The tables. `business_profiles`, `branded_phone_numbers` and `carrier_statuses` hold the facts; any program may write
 * them. `terms` and `postings` are derived from them by triggers (drizzle/0001_derived.sql) and are what the list
 * operation scans. Bounds and value lists repeat the contract's, because the database is its own last line of
 * defense; a test holds the two together.
 */
import { sql } from 'drizzle-orm';
import {
  boolean,
  check,
  customType,
  foreignKey,
  index,
  integer,
  pgEnum,
  pgTable,
  primaryKey,
  timestamp,
  unique,
  uuid,
} from 'drizzle-orm/pg-core';
import { DetailedStatus, Feature, Status } from '../../generated/types/models/index.js';

/** Text in byte order, whatever the database's locale: it is the order of the pages, and the cheapest to compare. */
const byteText = customType<{ data: string }>({ dataType: () => 'text COLLATE "C"' });

const time = (name: string) => timestamp(name, { withTimezone: true, precision: 3, mode: 'string' });

const values = <T extends string>(list: Record<string, T>) => Object.values(list) as [T, ...T[]];

const isName = (column: string, length = 255) =>
  sql.raw(`char_length(${column}) BETWEEN 1 AND ${length} AND ${column} !~ '[\\x01-\\x1f\\x7f-\\x9f]'`);

/** A time that RFC 3339 can express. */
const isTime = (column: string) =>
  `${column} BETWEEN '0001-01-01T00:00:00Z'::timestamptz AND '9999-12-31T23:59:59.999Z'::timestamptz`;

export const feature = pgEnum('feature', values(Feature));
export const status = pgEnum('status', values(Status));
export const detailedStatus = pgEnum('detailed_status', values(DetailedStatus));

export const businessProfiles = pgTable(
  'business_profiles',
  {
    id: uuid().primaryKey(),
    businessName: byteText('business_name').notNull(),
    status: byteText().notNull(),
    /** Derived: the profile's JSON as an answer shows it. */
    item: byteText().notNull().default(''),
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
    /** Derived: what the number is listed under. */
    termIds: integer('term_ids').array().notNull().default([]),
    /** Derived: the item's JSON as an answer shows it, from after its business profile, which changes on its own. */
    itemTail: byteText('item_tail').notNull().default(''),
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
    check('times_are_times', sql.raw(['created_at', 'updated_at'].map(isTime).join(' AND '))),
    // Range scans without a filter on status or entries: after each attribute come the phone numbers in page order, then
    // the other attributes, so that candidates are tested for those without reading their rows.
    index('numbers_by_business_profile').on(t.businessProfileId, t.phoneNumber, t.reportingGroup, t.internalName),
    index('numbers_by_reporting_group').on(t.reportingGroup, t.phoneNumber, t.businessProfileId, t.internalName),
    index('numbers_by_internal_name').on(t.internalName, t.phoneNumber, t.businessProfileId, t.reportingGroup),
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
    check('time_is_time', sql.raw(isTime('created_at'))),
  ],
);

/**
 * The terms of an inverted index over the numbers: an entry's carrier, feature and detailed status beside the status of
 * its number; the same without the carrier, which is null then; or, for numbers without entries, a status alone. A filter
 * on status or entries comes down to some of them: one without carriers to at most 33, however many carriers there are.
 */
export const terms = pgTable(
  'terms',
  {
    id: integer().primaryKey().generatedAlwaysAsIdentity(),
    carrier: byteText(),
    feature: feature(),
    detailedStatus: detailedStatus('detailed_status'),
    status: status().notNull(),
  },
  (t) => [
    unique('terms_values').on(t.carrier, t.feature, t.detailedStatus, t.status).nullsNotDistinct(),
    check(
      'term_is_entry_or_status',
      sql`num_nulls(feature, detailed_status) IN (0, 2) AND (carrier IS NULL OR feature IS NOT NULL)`,
    ),
  ],
);

/**
 * The postings of that index: each number under each of its terms, beside every attribute of it that a filter can name.
 * Within one value of an attribute and one term an index below gives the phone numbers in the order of the pages, so a
 * page costs one index descent for each term, however many rows match. The term is an integer so that these indexes, which
 * hold all entries, are small and quick to build and to compare.
 *
 * The table is partitioned, which Drizzle can't express: drizzle/0000_tables.sql was edited by hand, and
 * drizzle/0001_derived.sql says why there is a single partition.
 */
export const postings = pgTable(
  'postings',
  {
    termId: integer('term_id').notNull(),
    phoneNumber: byteText('phone_number').notNull(),
    businessProfileId: uuid('business_profile_id').notNull(),
    reportingGroup: byteText('reporting_group'),
    internalName: byteText('internal_name'),
  },
  (t) => [
    primaryKey({ name: 'postings_pkey', columns: [t.termId, t.phoneNumber] }),
    index('postings_by_business_profile').on(t.businessProfileId, t.termId, t.phoneNumber),
    index('postings_by_reporting_group').on(t.reportingGroup, t.termId, t.phoneNumber),
    index('postings_by_internal_name').on(t.internalName, t.termId, t.phoneNumber),
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
export const apiKeys = pgTable(
  'api_keys',
  {
    id: uuid().primaryKey().defaultRandom(),
    hash: byteText().notNull().unique(),
    name: byteText().notNull(),
    /** The business profiles whose numbers the key sees; null for all. */
    businessProfileIds: uuid('business_profile_ids').array(),
    createdAt: time('created_at').notNull().defaultNow(),
    /** When the key stops being accepted; null for never. */
    expiresAt: time('expires_at'),
    revokedAt: time('revoked_at'),
  },
  () => [
    check('key_name_is_name', isName('name')),
    check('key_expires_later', sql`expires_at > created_at`),
    check('key_times_are_times', sql.raw(['created_at', 'expires_at', 'revoked_at'].map(isTime).join(' AND '))),
  ],
);
