/**
 * The tables. Those of the numbers are of two kinds:
 *
 * - Sources, which any program may write: `business_profiles`, `branded_phone_numbers`, `carrier_statuses`. Their only
 *   derived column is `business_profiles.item`.
 * - The read model, which pages are read from: `items`, and an inverted index over it, `terms` and `postings`. Only the
 *   function `derive` writes it (drizzle/current.sql).
 *
 * `rate_limits` and `api_keys` belong to the service itself.
 *
 * The database has the same bounds and lists of values as the contract, as the last line of defense; a test compares them.
 */
import { DetailedStatus, Feature } from '../../generated/types/models/index.js';
import { STATUSES, type Status } from '../status.js';
import { pg, sql } from './drizzle.js';

/** Text in byte order in any locale of the database. Pages have this order, and it is the cheapest to compare. */
const byteText = pg.customType<{ data: string }>({ dataType: () => 'text COLLATE "C"' });

const time = (name: string) => pg.timestamp(name, { withTimezone: true, precision: 3, mode: 'string' });

const values = <T extends string>(list: Record<string, T>) => Object.values(list) as [T, ...T[]];

const isName = (column: string, length = 255) =>
  sql.raw(`char_length(${column}) BETWEEN 1 AND ${length} AND ${column} !~ '[\\x01-\\x1f\\x7f-\\x9f]'`);

/** Returns SQL that escapes a name for a JSON string. Names have no control characters; a generated column can't use to_json. */
const escaped = (column: string) => `replace(replace(${column}, '\\', '\\\\'), '"', '\\"')`;

/** Returns the condition that a time fits RFC 3339, where a year has four digits. */
const isTime = (column: string) =>
  `${column} BETWEEN '0001-01-01T00:00:00Z'::timestamptz AND '9999-12-31T23:59:59.999Z'::timestamptz`;

export const feature = pg.pgEnum('feature', values(Feature));
export const status = pg.pgEnum('status', STATUSES as [Status, ...Status[]]);
export const detailedStatus = pg.pgEnum('detailed_status', values(DetailedStatus));

export const businessProfiles = pg.pgTable(
  'business_profiles',
  {
    id: pg.uuid().primaryKey(),
    businessName: byteText('business_name').notNull(),
    status: byteText().notNull(),
    /** The profile as JSON, as items contain it. Building it for each item would take a sixth of a page's time. */
    item: byteText()
      .notNull()
      .generatedAlwaysAs(
        sql.raw(
          `'{"id":"' || id::text || '","businessName":"' || ${escaped('business_name')} || '","status":"' || ${escaped('status')} || '"}'`,
        ),
      ),
  },
  () => [pg.check('business_name_is_name', isName('business_name')), pg.check('status_is_name', isName('status'))],
);

export const brandedPhoneNumbers = pg.pgTable(
  'branded_phone_numbers',
  {
    phoneNumber: byteText('phone_number').primaryKey(),
    id: pg.uuid().notNull().defaultRandom(),
    businessProfileId: pg.uuid('business_profile_id').notNull(),
    internalName: byteText('internal_name'),
    brandingNameShort: byteText('branding_name_short'),
    brandingNameLong: byteText('branding_name_long'),
    reportingGroup: byteText('reporting_group'),
    createdAt: time('created_at').notNull().defaultNow(),
    /** As written by the source; `items.updated_at`, which responses contain, may be later. */
    updatedAt: time('updated_at').notNull().defaultNow(),
  },
  (t) => [
    pg.unique('branded_phone_numbers_id').on(t.id),
    pg.foreignKey({
      name: 'number_has_business_profile',
      columns: [t.businessProfileId],
      foreignColumns: [businessProfiles.id],
    }),
    pg.check('phone_number_is_e164', sql`phone_number ~ '^\\+[1-9][0-9]{1,14}$'`),
    pg.check('internal_name_is_name', isName('internal_name')),
    pg.check('branding_name_short_is_name', isName('branding_name_short', 15)),
    pg.check('branding_name_long_is_name', isName('branding_name_long', 32)),
    pg.check('reporting_group_is_name', isName('reporting_group')),
    pg.check('times_are_times', sql.raw(['created_at', 'updated_at'].map(isTime).join(' AND '))),
  ],
);

export const carrierStatuses = pg.pgTable(
  'carrier_statuses',
  {
    phoneNumber: byteText('phone_number').notNull(),
    carrier: byteText().notNull(),
    feature: feature().notNull(),
    detailedStatus: detailedStatus('detailed_status').notNull(),
    createdAt: time('created_at').notNull().defaultNow(),
  },
  (t) => [
    pg.primaryKey({ name: 'carrier_statuses_pkey', columns: [t.phoneNumber, t.carrier, t.feature] }),
    pg
      .foreignKey({
        name: 'carrier_status_has_number',
        columns: [t.phoneNumber],
        foreignColumns: [brandedPhoneNumbers.phoneNumber],
      })
      .onDelete('cascade'),
    pg.check('carrier_is_name', isName('carrier')),
    pg.check('time_is_time', sql.raw(isTime('created_at'))),
  ],
);

/** The numbers, as the list finds and shows them. */
export const items = pg.pgTable(
  'items',
  {
    phoneNumber: byteText('phone_number').primaryKey(),
    id: pg.uuid().notNull(),
    businessProfileId: pg.uuid('business_profile_id').notNull(),
    internalName: byteText('internal_name'),
    reportingGroup: byteText('reporting_group'),
    /** The number's status, derived from its entries (specification 3.2). */
    status: status().notNull(),
    /** The ids of the terms that the number is listed under, ascending. */
    termIds: pg.bigint('term_ids', { mode: 'bigint' }).array().notNull(),
    /** The item's JSON after the business profile, which changes independently and is joined when a page is read. */
    itemTail: byteText('item_tail').notNull(),
    updatedAt: time('updated_at').notNull(),
  },
  (t) => [
    // For filters on attributes alone: within one value of an attribute, the phone numbers are in page order. The other
    // attributes follow, so that candidates are tested on them without reading their rows.
    pg.index('items_by_business_profile').on(t.businessProfileId, t.phoneNumber, t.reportingGroup, t.internalName),
    pg.index('items_by_reporting_group').on(t.reportingGroup, t.phoneNumber, t.businessProfileId, t.internalName),
    pg.index('items_by_internal_name').on(t.internalName, t.phoneNumber, t.businessProfileId, t.reportingGroup),
  ],
);

/**
 * The terms of an inverted index over the items. There are three kinds:
 *
 * - the carrier, feature and detailed status of an entry, with the status of its number;
 * - the same with '' as the carrier, so that a filter without carriers needs a few dozen terms, however many carriers
 *   exist;
 * - the status of a number that has no entries.
 *
 * The id is a hash of the values (the function `term_id`), so it is computed, not looked up. Terms are never deleted:
 * there is at most one for each combination that has ever existed.
 */
export const terms = pg.pgTable(
  'terms',
  {
    id: pg.bigint({ mode: 'bigint' }).primaryKey(),
    carrier: byteText().notNull(),
    feature: feature(),
    detailedStatus: detailedStatus('detailed_status'),
    status: status().notNull(),
  },
  (t) => [pg.index('terms_by_carrier').on(t.carrier, t.feature, t.detailedStatus, t.status)],
);

/**
 * The postings of the inverted index: a row for each number and each of its terms, with the number's attributes.
 * Within one value of an attribute and one term, an index has the phone numbers in page order, so a page costs one
 * index descent for each value and term, no matter how many rows match.
 */
export const postings = pg.pgTable(
  'postings',
  {
    termId: pg.bigint('term_id', { mode: 'bigint' }).notNull(),
    phoneNumber: byteText('phone_number').notNull(),
    businessProfileId: pg.uuid('business_profile_id').notNull(),
    reportingGroup: byteText('reporting_group'),
    internalName: byteText('internal_name'),
  },
  (t) => [
    pg.primaryKey({ name: 'postings_pkey', columns: [t.termId, t.phoneNumber] }),
    pg.index('postings_by_business_profile').on(t.businessProfileId, t.termId, t.phoneNumber),
    pg.index('postings_by_reporting_group').on(t.reportingGroup, t.termId, t.phoneNumber),
    pg.index('postings_by_internal_name').on(t.internalName, t.termId, t.phoneNumber),
  ],
);

/**
 * Each client's counted requests in the second before the latest one; instances of 1.1.0 keep two seconds. The table is
 * unlogged, because a crash may lose them.
 */
export const rateLimits = pg.pgTable('rate_limits', {
  client: byteText().primaryKey(),
  /** The times of the requests, oldest first. */
  requests: pg.timestamp({ withTimezone: true, mode: 'string' }).array().notNull(),
  /** The number of requests that the latest statement added. */
  counted: pg.integer().notNull(),
});

/** API keys. The key itself is not stored, only its SHA-256. */
export const apiKeys = pg.pgTable(
  'api_keys',
  {
    id: pg.uuid().primaryKey().defaultRandom(),
    hash: byteText().notNull().unique(),
    name: byteText().notNull(),
    /** The ids of the business profiles that the key may see; null for all. */
    businessProfileIds: pg.uuid('business_profile_ids').array(),
    createdAt: time('created_at').notNull().defaultNow(),
    /** The role of PostgreSQL that created the key; null before 1.4.0. */
    createdBy: byteText('created_by').default(sql`session_user`),
    /** When the key stops being accepted; null if it never does. */
    expiresAt: time('expires_at'),
    revokedAt: time('revoked_at'),
    /** The role that revoked the key; null if a version before 1.4.0 did. */
    revokedBy: byteText('revoked_by'),
    /** The last day (UTC) on which the key was accepted; null if it never was. */
    lastUsedOn: pg.date('last_used_on', { mode: 'string' }),
  },
  () => [
    pg.check('key_name_is_name', isName('name')),
    pg.check('key_expires_later', sql`expires_at > created_at`),
    pg.check('key_times_are_times', sql.raw(['created_at', 'expires_at', 'revoked_at'].map(isTime).join(' AND '))),
  ],
);
