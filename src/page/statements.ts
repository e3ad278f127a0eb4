/**
 * The statements of the list query. Each text below is a whole statement once its named parts are put in;
 * test/page/statements holds some of them as PostgreSQL gets them, with their plans.
 *
 * The planner is left no choice. A range of an index is a subquery of its own: one value for each column that the index
 * begins with, and then phone numbers in order, up to a LIMIT. What is to be computed once, or first, is a materialized
 * common table expression. A test of candidates is written so that no index could serve it: `… IS NULL OR … IN (SELECT …)`
 * is computed for the rows that were found, from a hash of the values.
 */
import { type SQL, sql } from 'drizzle-orm';
import { ATTRIBUTES, type Attribute, type Scan } from './plan.js';

const after = sql`${sql.placeholder('after')}::text`;
const count = sql`${sql.placeholder('count')}::int`;
const size = sql`${sql.placeholder('size')}::int`;
/** One number more than the page shows tells whether there is a next page. */
const limit = sql`(${size} + 1)`;
const phoneNumber = sql`${sql.placeholder('phoneNumber')}::text`;
const carriers = sql`${sql.placeholder('carriers')}::text[]`;
const features = sql`${sql.placeholder('features')}::text[]::feature[]`;
const detailedStatuses = sql`${sql.placeholder('detailedStatuses')}::text[]::detailed_status[]`;
const statuses = sql`${sql.placeholder('statuses')}::text[]::status[]`;
const dottedStatuses = sql`${sql.placeholder('dottedStatuses')}::text[]::detailed_status[]`;
const isByTerm = sql`${sql.placeholder('isByTerm')}::boolean`;

/** Sorts after every phone number, in byte order. */
export const END = '~';
const end = sql.raw(`'${END}'`);

/** The column of an attribute, the same in the items and the postings, and the filter's values for it. */
const COLUMNS: Record<Attribute, { column: SQL; values: SQL }> = {
  businessProfiles: { column: sql`business_profile_id`, values: sql`${sql.placeholder('businessProfiles')}::uuid[]` },
  reportingGroups: { column: sql`reporting_group`, values: sql`${sql.placeholder('reportingGroups')}::text[]` },
  internalNames: { column: sql`internal_name`, values: sql`${sql.placeholder('internalNames')}::text[]` },
};

/**
 * The terms under which the numbers that the filter asks for are listed. If it names no carriers, they are the terms
 * without a carrier, of which there are few; else those of the carriers. Both are found by the index of the terms' values.
 */
const isWantedTerm = sql`(${features} IS NULL OR feature = ANY (${features}))
      AND (${detailedStatuses} IS NULL OR detailed_status = ANY (${detailedStatuses}))
      AND (
        ${statuses} IS NULL AND ${dottedStatuses} IS NULL
        OR status = ANY (${statuses}) OR detailed_status = ANY (${dottedStatuses})
      )`;
const wantedTerms = sql`wanted_terms AS MATERIALIZED (
    SELECT id FROM terms WHERE ${carriers} IS NULL AND carrier = '' AND ${isWantedTerm}
    UNION ALL
    SELECT term.id FROM unnest(${carriers}) AS wanted CROSS JOIN LATERAL (
      SELECT id FROM terms WHERE carrier = wanted AND ${isWantedTerm} OFFSET 0
    ) AS term
  )`;

/**
 * Every number has a term. While the first import runs, no term is visible yet, and a page need not step over all its
 * numbers, which are not visible either.
 */
const isAnyNumber = sql`EXISTS (SELECT FROM terms)`;

/** The ranges of a scan, a row each. */
function rangesOf({ of, attribute }: Scan): SQL {
  if (attribute === null)
    return of === 'items'
      ? sql`SELECT 'all' AS value WHERE ${isAnyNumber}`
      : sql`SELECT id AS term_id FROM wanted_terms`;
  const { values } = COLUMNS[attribute];
  return of === 'items'
    ? sql`SELECT value FROM unnest(${values}) AS value WHERE ${isAnyNumber}`
    : sql`SELECT value, id AS term_id FROM unnest(${values}) AS value CROSS JOIN wanted_terms`;
}

const rangeColumns = ({ of, attribute }: Scan) =>
  sql.raw(of === 'items' ? 'value' : attribute === null ? 'term_id' : 'value, term_id');

const tableOf = ({ of }: Scan) => (of === 'items' ? sql`items` : sql`postings`);

/** Whether a row is in a range, which is a row of `range`. */
function isInRange({ of, attribute }: Scan): SQL {
  const conditions: SQL[] = [];
  if (attribute !== null) {
    const { column } = COLUMNS[attribute];
    conditions.push(sql`${column} = ANY (ARRAY[range.value]) AND `);
  }
  if (of === 'postings') conditions.push(sql`term_id = range.term_id AND `);
  return sql.join(conditions);
}

/**
 * The order of a range. Compared by `=`, an attribute would drop out of the order, which the primary key could then provide:
 * where the statistics promise a single value of an attribute, the planner would read all numbers in search of a rare one.
 * `= ANY` of one value keeps the attribute in the order, and still stops at the end of the range.
 */
const orderOf = ({ attribute }: Scan) =>
  attribute === null ? sql`phone_number` : sql`${COLUMNS[attribute].column}, phone_number`;

/** The numbers of a range after the previous page, in order; `until` and `tail` complete the statement. */
const numbersOfRange = (scan: Scan, until: SQL, tail: SQL) => sql`SELECT phone_number FROM ${tableOf(scan)}
      WHERE ${isInRange(scan)}phone_number > ${after}${until}
      ORDER BY ${orderOf(scan)} ${tail}`;

/**
 * The next `most` numbers of all ranges of a scan, in order. A number may be in several ranges: only `distinct`
 * ensures that there are that many; otherwise they may end early, at `bound`.
 */
const nextOfRanges = (scan: Scan, most: SQL, distinct = sql``) => sql`range AS MATERIALIZED (${rangesOf(scan)}),
  -- To read that many of each range would be a waste: among a few of each is one up to which there are surely enough.
  first AS MATERIALIZED (
    SELECT range.*, row.phone_number FROM range CROSS JOIN LATERAL (
      ${numbersOfRange(scan, sql``, sql`LIMIT (SELECT CASE count(*) WHEN 1 THEN 1 ELSE 2 * ${most} / count(*) + 1 END FROM range)`)}
    ) AS row
  ),
  bound AS MATERIALIZED (
    SELECT coalesce((SELECT ${distinct}phone_number FROM first ORDER BY phone_number OFFSET ${most} - 1 LIMIT 1), ${end})
      AS last
  ),
  next AS MATERIALIZED (
    SELECT DISTINCT row.phone_number
    FROM (SELECT DISTINCT ${rangeColumns(scan)} FROM first WHERE phone_number <= (SELECT last FROM bound)) AS range
    CROSS JOIN LATERAL (
      ${numbersOfRange(scan, sql` AND phone_number <= (SELECT last FROM bound)`, sql`LIMIT ${most}`)}
    ) AS row
    ORDER BY phone_number LIMIT ${most}
  )`;

/**
 * About how far the next `count` numbers of a scan reach: to where half of the ranges have supplied their share of them,
 * but no further than where one range alone has supplied all of them. A single range is read only once for this.
 */
const batchOfRanges = (scan: Scan) => sql`range AS MATERIALIZED (${rangesOf(scan)}),
  share AS MATERIALIZED (
    SELECT coalesce((
      ${numbersOfRange(scan, sql``, sql`OFFSET (SELECT (${count} - 1) / count(*) FROM range) LIMIT 1`)}
    ), ${end}) AS last FROM range
  ),
  half AS MATERIALIZED (
    SELECT coalesce(percentile_disc(0.5) WITHIN GROUP (ORDER BY last), ${end}) AS last FROM share
  ),
  reach AS MATERIALIZED (
    SELECT coalesce(min(row.phone_number), (SELECT last FROM half)) AS last FROM range CROSS JOIN LATERAL (
      ${numbersOfRange(scan, sql` AND phone_number <= (SELECT last FROM half)`, sql`OFFSET ${count} - 1 LIMIT 1`)}
    ) AS row
    WHERE (SELECT count(*) FROM range) > 1
  )`;

/**
 * The item of a number. Compared by `=`, a phone number would need no order, and where the statistics are of one row, PostgreSQL
 * 15 would read the whole of an index that only contains it, for each number. Its order has only the primary key.
 */
const isItemOf = (number: SQL) => sql`items.phone_number BETWEEN ${number} AND ${number}`;

/** Whether a candidate has a wanted value of each attribute; that of `scan` is known. */
const hasWantedAttributes = (scan?: Scan) =>
  sql.join(
    ATTRIBUTES.filter((attribute) => attribute !== scan?.attribute)
      .map((attribute) => COLUMNS[attribute])
      .map(({ column, values }) => sql`(${values} IS NULL OR ${column} IN (SELECT unnest(${values})))`),
    sql`
        AND `,
  );

const hasWantedTerm = sql`term_ids && ARRAY(SELECT id FROM wanted_terms)`;

/** The same for a candidate whose row has not been read: it is looked up once everything else matches. */
const isOfWantedTerm = sql`(NOT ${isByTerm} OR (
          SELECT ${hasWantedTerm} FROM items WHERE ${isItemOf(sql`candidate.phone_number`)} ORDER BY items.phone_number OFFSET 0
        ))`;

/**
 * An item as JSON text: what was derived when it was written, around its business profile, whose changes do not count as
 * changes of its numbers (the contract's BusinessProfile).
 */
const item = sql`'{"id":"' || items.id || '","phoneNumber":"' || items.phone_number || '","businessProfile":' || (
      SELECT item FROM business_profiles WHERE id = items.business_profile_id
    ) || items.item_tail AS item`;

/**
 * The page of the phone numbers in `found`, of which there is one more than it shows if there is a next page. They are all
 * that match up to `until`. Here and below the items are joined as they come, which is in order: PostgreSQL 15 would sort
 * them once more for `string_agg(… ORDER BY …)`, an eighth of a page's time.
 */
const pageOfFound = (until: SQL = end) => sql`SELECT
    coalesce(string_agg(item, ','), '') AS items, count(*)::int AS count,
    max(phone_number) AS last, (SELECT count(*) FROM found) > ${size} AS has_next, ${until} AS until
  FROM (SELECT phone_number FROM found ORDER BY phone_number LIMIT ${size}) AS shown
  CROSS JOIN LATERAL (
    SELECT ${item} FROM items WHERE ${isItemOf(sql`shown.phone_number`)} ORDER BY items.phone_number OFFSET 0
  ) AS item`;

/** A page of all numbers, whose rows are read in the scan itself; and whether there is a number after it. */
export const pageOfAll = sql`
  SELECT
    coalesce(string_agg(item, ','), '') AS items, count(*)::int AS count,
    max(phone_number) AS last, (
      SELECT phone_number FROM items
      WHERE phone_number > max(shown.phone_number) ORDER BY phone_number LIMIT 1
    ) IS NOT NULL AS has_next, ${end} AS until
  FROM (
    SELECT phone_number, ${item} FROM items
    WHERE phone_number > ${after} AND ${isAnyNumber} ORDER BY phone_number LIMIT ${size}
  ) AS shown`;

/** The page of one number, if it matches. */
export const pageOfNumber = sql`
  WITH ${wantedTerms},
  found AS MATERIALIZED (
    SELECT phone_number FROM items
    WHERE ${isItemOf(phoneNumber)} AND phone_number > ${after}
      AND ${hasWantedAttributes()}
      AND (NOT ${isByTerm} OR ${hasWantedTerm})
    ORDER BY phone_number
  )
  ${pageOfFound()}`;

/** A page of exactly the numbers in the ranges of a scan. */
export const pageOfRanges = (scan: Scan) => sql`
  WITH ${withTerms(scan)}${nextOfRanges(scan, limit, sql`DISTINCT `)},
  found AS MATERIALIZED (SELECT phone_number FROM next)
  ${pageOfFound()}`;

/** How far the next `count` numbers of a scan reach, exactly, since scans are compared by it; and how many ranges it has. */
export const reachOf = (scan: Scan) => sql`
  WITH ${withTerms(scan)}${nextOfRanges(scan, count)}
  SELECT
    CASE count(*) WHEN ${count} THEN max(phone_number) ELSE (SELECT last FROM bound) END AS last,
    (SELECT count(*)::int FROM range) AS ranges
  FROM next`;

/**
 * A page of those of the next `count` numbers of a scan that the filter asks for. With several attributes the index that
 * is scanned holds the others, and the rows of few candidates have to be read; otherwise all of them.
 */
export const pageOfCandidates = (scan: Scan, hasSeveralAttributes: boolean) => sql`
  WITH ${wantedTerms},
  ${batchOfRanges(scan)},
  found AS MATERIALIZED (
    SELECT DISTINCT row.phone_number FROM range CROSS JOIN LATERAL (
      SELECT phone_number FROM ${tableOf(scan)} AS candidate
      WHERE ${isInRange(scan)}phone_number > ${after} AND phone_number <= (SELECT last FROM reach)
        AND ${testOf(scan, hasSeveralAttributes)}
      ORDER BY ${orderOf(scan)} LIMIT ${limit}
    ) AS row
    ORDER BY phone_number LIMIT ${limit}
  )
  ${pageOfFound(sql`(SELECT last FROM reach)`)}`;

function testOf(scan: Scan, hasSeveralAttributes: boolean): SQL {
  if (scan.of === 'postings') return hasWantedAttributes(scan);
  if (!hasSeveralAttributes) return hasWantedTerm;
  return sql`${hasWantedAttributes(scan)}
        AND ${isOfWantedTerm}`;
}

const withTerms = ({ of }: Scan) =>
  of === 'postings'
    ? sql`${wantedTerms},
  `
    : sql``;
