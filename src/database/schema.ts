/**
 * The tables, of two kinds.
 *
 * - Sources, which any program may write: `business_profiles`, `branded_phone_numbers`, `carrier_statuses`. Nothing in
 *   them is derived, but for one generated column.
 * - The read model, which pages are read from: `items`, and `terms` and `postings`, an inverted index over them. Only the
 *   function `derive` writes it (drizzle/0001_derive.sql).
 *
 * Bounds and value lists repeat the contract's, because the database is the last line of defense; a test compares them.
 */
import { sql } from 'drizzle-orm';
import {
  bigint,
  check,
  customType,
  date,
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

/** Text sorted in byte order, regardless of the database's locale: that is the order of pages, and the fastest to compare. */
const byteText = customType<{ data: string }>({ dataType: () => 'text COLLATE "C"' });

const time = (name: string) => timestamp(name, { withTimezone: true, precision: 3, mode: 'string' });

const values = <T extends string>(list: Record<string, T>) => Object.values(list) as [T, ...T[]];

const isName = (column: string, length = 255) =>
  sql.raw(`char_length(${column}) BETWEEN 1 AND ${length} AND ${column} !~ '[\\x01-\\x1f\\x7f-\\x9f]'`);

/** A name escaped for JSON. A name has no control characters, and a generated column may not call to_json. */
const escaped = (column: string) => `replace(replace(${column}, '\\', '\\\\'), '"', '\\"')`;

/** Whether a time can be written in RFC 3339. */
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
    /** The profile's JSON as items show it. It is stored: building it for each item would take a sixth of a page's time. */
    item: byteText()
      .notNull()
      .generatedAlwaysAs(
        sql.raw(
          `'{"id":"' || id::text || '","businessName":"' || ${escaped('business_name')} || '","status":"' || ${escaped('status')} || '"}'`,
        ),
      ),
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
    createdAt: time('created_at').notNull().defaultNow(),
    /** The time that the writer gave; `items.updated_at`, which responses show, may be later. */
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
    }).onDelete('cascade'),
    check('carrier_is_name', isName('carrier')),
    check('time_is_time', sql.raw(isTime('created_at'))),
  ],
);

/** The numbers as the list shows and filters them. */
export const items = pgTable(
  'items',
  {
    phoneNumber: byteText('phone_number').primaryKey(),
    id: uuid().notNull(),
    businessProfileId: uuid('business_profile_id').notNull(),
    internalName: byteText('internal_name'),
    reportingGroup: byteText('reporting_group'),
    /** The overall status (specification 3.2). */
    status: status().notNull(),
    /** The terms that the number is listed under, in order. */
    termIds: bigint('term_ids', { mode: 'bigint' }).array().notNull(),
    /** The item's JSON as responses show it, without its beginning up to the business profile, which changes separately. */
    itemTail: byteText('item_tail').notNull(),
    updatedAt: time('updated_at').notNull(),
  },
  (t) => [
    // Range scans without a filter on status or entries: after each attribute come the phone numbers in page order, then
    // the other attributes, so that candidates are tested for those without reading their rows.
    index('items_by_business_profile').on(t.businessProfileId, t.phoneNumber, t.reportingGroup, t.internalName),
    index('items_by_reporting_group').on(t.reportingGroup, t.phoneNumber, t.businessProfileId, t.internalName),
    index('items_by_internal_name').on(t.internalName, t.phoneNumber, t.businessProfileId, t.reportingGroup),
  ],
);

/**
 * The terms of an inverted index over the items: an entry's carrier, feature and detailed status beside the status of its
 * number; the same with '' instead of the carrier; or, for numbers without entries, their status alone. A filter on status or
 * entries selects some of them: without carriers a few dozen, no matter how many carriers there are.
 *
 * The id is a hash of the values (the function `term_id`), so it needs neither a look-up nor a sequence. Terms are never
 * deleted: there is at most one for each combination that has ever existed.
 */
export const terms = pgTable(
  'terms',
  {
    id: bigint({ mode: 'bigint' }).primaryKey(),
    carrier: byteText().notNull(),
    feature: feature(),
    detailedStatus: detailedStatus('detailed_status'),
    status: status().notNull(),
  },
  (t) => [index('terms_by_carrier').on(t.carrier, t.feature, t.detailedStatus, t.status)],
);

/**
 * The postings of that index: a row for each number and each of its terms, with every attribute that a filter can name.
 * For one term and one value of an attribute, an index below returns the phone numbers in page order, so a page costs one
 * index descent for each term, no matter how many rows match.
 */
export const postings = pgTable(
  'postings',
  {
    termId: bigint('term_id', { mode: 'bigint' }).notNull(),
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

/** Each client's counted requests of the last second. The table is unlogged: its rows may be lost in a crash. */
export const rateLimits = pgTable('rate_limits', {
  client: byteText().primaryKey(),
  /** The times at which they arrived, oldest first. */
  requests: timestamp({ withTimezone: true, mode: 'string' }).array().notNull(),
  /** How many of them the latest statement added. */
  counted: integer().notNull(),
});

/** API keys, by the SHA-256 of the key; the key itself is not kept. */
export const apiKeys = pgTable(
  'api_keys',
  {
    id: uuid().primaryKey().defaultRandom(),
    hash: byteText().notNull().unique(),
    name: byteText().notNull(),
    /** The business profiles whose numbers the key may read; null for all. */
    businessProfileIds: uuid('business_profile_ids').array(),
    createdAt: time('created_at').notNull().defaultNow(),
    /** When the key stops being accepted; null for never. */
    expiresAt: time('expires_at'),
    revokedAt: time('revoked_at'),
    /** The last day (UTC) on which the key was accepted; null if it never was. */
    lastUsedOn: date('last_used_on', { mode: 'string' }),
  },
  () => [
    check('key_name_is_name', isName('name')),
    check('key_expires_later', sql`expires_at > created_at`),
    check('key_times_are_times', sql.raw(['created_at', 'expires_at', 'revoked_at'].map(isTime).join(' AND '))),
  ],
);
