/**
 * The statements of the list query, as Drizzle's SQL. test/page/statements has some of them as PostgreSQL gets them,
 * whole and with their plans.
 *
 * ## No choice for the planner
 *
 * A range of an index is read by a subquery: one value for each column that the index begins with, then phone numbers
 * in order, up to a LIMIT. What has to be computed once, or first, is a materialized common table expression.
 * Candidates are tested by `… IS NULL OR … IN (SELECT …)`, which no index could serve: PostgreSQL looks each row up in
 * a hash of the values.
 *
 * ## Names
 *
 * The statements share these common table expressions, with their columns in parentheses:
 *
 * - `wanted_terms` (`id`): the terms under which the numbers that match are listed.
 * - `range` (`value`, `term_id`): a row for each range of the scan; one of the two columns if the scan needs only one.
 * - `found` (`phone_number`): the page's numbers, and one more if there is a next page.
 * - `bound`, `half`, `reach` (`last`): a single row with the last phone number to read.
 */
import { type SQL, sql } from 'drizzle-orm';
import { businessProfiles, items, postings, terms } from '../database/schema.js';
import { fragment, parameter } from './fragment.js';
import { ATTRIBUTES, type Scan } from './plan.js';

/** Sorts after every phone number, in byte order. */
export const END = '~';
const end = sql.raw(`'${END}'`);

const tables = { items, postings };
/** The same column in `items`, in `postings`, and in every subquery that reads one of them. */
const { phoneNumber } = items;
const after = parameter('after');
const size = parameter('size');
const count = parameter('count');
/** One number more than the page shows tells whether there is a next page. */
const sizeAndOne = fragment`(${size} + 1)`;

const and = sql.raw(' AND ');
/** The line break is for readers of the statements on file. */
const andOnNewLine = sql.raw('\n        AND ');

/** Joins common table expressions to a WITH clause, which begins with `wanted_terms` if `scan` reads postings. */
function withExpressions(scan: Scan, ...expressions: SQL[]): SQL {
  const all = scan.table === 'postings' ? [wantedTerms, ...expressions] : expressions;
  return fragment`WITH ${sql.join(all, sql.raw(',\n  '))}`;
}

/** The conditions on a term, without the one on its carrier. */
const isWantedTerm = fragment`(${parameter('feature')} IS NULL OR ${terms.feature} = ANY (${parameter('feature')}))
      AND (${parameter('detailedStatus')} IS NULL OR ${terms.detailedStatus} = ANY (${parameter('detailedStatus')}))
      AND (
        ${parameter('status')} IS NULL AND ${parameter('dottedStatus')} IS NULL
        OR ${terms.status} = ANY (${parameter('status')}) OR ${terms.detailedStatus} = ANY (${parameter('dottedStatus')})
      )`;

/**
 * A filter without carriers uses the terms without a carrier, which are few. The index of the terms' values finds both
 * kinds.
 */
const wantedTerms = fragment`wanted_terms AS MATERIALIZED (
    SELECT ${terms.id} FROM ${terms} WHERE ${parameter('carrier')} IS NULL AND ${terms.carrier} = '' AND ${isWantedTerm}
    UNION ALL
    SELECT term.${terms.id} FROM unnest(${parameter('carrier')}) AS wanted CROSS JOIN LATERAL (
      SELECT ${terms.id} FROM ${terms} WHERE ${terms.carrier} = wanted AND ${isWantedTerm} OFFSET 0
    ) AS term
  )`;

/**
 * Every number has a term. During a transaction that loads the first numbers, no term is visible to others, so a page
 * does not step over all the numbers, which are invisible as well.
 */
const hasNumbers = fragment`EXISTS (SELECT FROM ${terms})`;

/** Returns the expression `range`. */
function rangesOf({ table, attribute }: Scan): SQL {
  const values = attribute && fragment`unnest(${parameter(attribute)}) AS value`;
  const rows = {
    items: values
      ? fragment`SELECT value FROM ${values} WHERE ${hasNumbers}`
      : fragment`SELECT 'all' AS value WHERE ${hasNumbers}`,
    postings: values
      ? fragment`SELECT value, ${terms.id} AS ${postings.termId} FROM ${values} CROSS JOIN wanted_terms`
      : fragment`SELECT ${terms.id} AS ${postings.termId} FROM wanted_terms`,
  };
  return fragment`range AS MATERIALIZED (${rows[table]})`;
}

function columnsOfRange({ table, attribute }: Scan): SQL {
  if (table === 'items') return sql.raw('value');
  return attribute === null ? fragment`${postings.termId}` : fragment`value, ${postings.termId}`;
}

/** Returns the conditions that limit the scanned table to one row of `range`. */
function inRange({ table, attribute }: Scan): SQL[] {
  return [
    ...(attribute === null ? [] : [fragment`${tables[table][attribute]} = ANY (ARRAY[range.value])`]),
    ...(table === 'items' ? [] : [fragment`${postings.termId} = range.${postings.termId}`]),
  ];
}

/**
 * Returns the order of a range. Compared by `=`, an attribute would drop out of the order, which the primary key could
 * then provide: if the statistics promise a single value, the planner would read all numbers in search of a rare one.
 * `= ANY` of one value keeps the attribute in the order, and still stops at the end of the range.
 */
function orderOf({ table, attribute }: Scan): SQL {
  return attribute === null ? fragment`${phoneNumber}` : fragment`${tables[table][attribute]}, ${phoneNumber}`;
}

/**
 * Selects the numbers of one range that follow the previous page, in order. `upTo` names the expression with the last
 * phone number to read; `rows` is the LIMIT clause.
 */
function numbersOfRange(scan: Scan, upTo: 'bound' | 'half' | null, rows: SQL): SQL {
  const conditions = [
    ...inRange(scan),
    fragment`${phoneNumber} > ${after}`,
    ...(upTo ? [fragment`${phoneNumber} <= (SELECT last FROM ${sql.raw(upTo)})`] : []),
  ];
  return fragment`SELECT ${phoneNumber} FROM ${tables[scan.table]}
      WHERE ${sql.join(conditions, and)}
      ORDER BY ${orderOf(scan)} ${rows}`;
}

/**
 * Returns the expressions up to `next`, which has the next `limit` numbers of a scan, in order. If a number is in
 * several ranges, `next` may have fewer numbers and end at `bound`, unless `isComplete` is set.
 */
function nextOfRanges(scan: Scan, limit: SQL, isComplete: boolean): SQL {
  const numbers = isComplete ? fragment`DISTINCT ${phoneNumber}` : fragment`${phoneNumber}`;
  const limitOfRange = fragment`(SELECT CASE count(*) WHEN 1 THEN 1 ELSE 2 * ${limit} / count(*) + 1 END FROM range)`;
  return fragment`${rangesOf(scan)},
  -- To read that many of each range would be a waste: among a few of each is one up to which there are surely enough.
  first AS MATERIALIZED (
    SELECT range.*, row.${phoneNumber} FROM range CROSS JOIN LATERAL (
      ${numbersOfRange(scan, null, fragment`LIMIT ${limitOfRange}`)}
    ) AS row
  ),
  bound AS MATERIALIZED (
    SELECT coalesce((SELECT ${numbers} FROM first ORDER BY ${phoneNumber} OFFSET ${limit} - 1 LIMIT 1), ${end})
      AS last
  ),
  next AS MATERIALIZED (
    SELECT DISTINCT row.${phoneNumber}
    FROM (SELECT DISTINCT ${columnsOfRange(scan)} FROM first WHERE ${phoneNumber} <= (SELECT last FROM bound)) AS range
    CROSS JOIN LATERAL (
      ${numbersOfRange(scan, 'bound', fragment`LIMIT ${limit}`)}
    ) AS row
    ORDER BY ${phoneNumber} LIMIT ${limit}
  )`;
}

/**
 * Returns the expressions up to `reach`, an estimate of the phone number that the next `count` numbers of a scan reach:
 * the median of those at which the ranges have each supplied an equal share or, if it comes first, the one at which a
 * single range has supplied all of them. A scan of one range is read only once for this.
 */
function batchOfRanges(scan: Scan): SQL {
  return fragment`${rangesOf(scan)},
  share AS MATERIALIZED (
    SELECT coalesce((
      ${numbersOfRange(scan, null, fragment`OFFSET (SELECT (${count} - 1) / count(*) FROM range) LIMIT 1`)}
    ), ${end}) AS last FROM range
  ),
  half AS MATERIALIZED (
    SELECT coalesce(percentile_disc(0.5) WITHIN GROUP (ORDER BY last), ${end}) AS last FROM share
  ),
  reach AS MATERIALIZED (
    SELECT coalesce(min(row.${phoneNumber}), (SELECT last FROM half)) AS last FROM range CROSS JOIN LATERAL (
      ${numbersOfRange(scan, 'half', fragment`OFFSET ${count} - 1 LIMIT 1`)}
    ) AS row
    WHERE (SELECT count(*) FROM range) > 1
  )`;
}

/**
 * Compares an item's phone number. With `=`, the subquery would need no order, and if the statistics are of one row,
 * PostgreSQL 15 would read a whole index that merely contains the phone number. Only the primary key has the order that
 * BETWEEN requires.
 */
const isItemOf = (number: SQL) => fragment`${items}.${phoneNumber} BETWEEN ${number} AND ${number}`;
const orderOfItem = fragment`ORDER BY ${items}.${phoneNumber} OFFSET 0`;

/** Tests whether a candidate has a wanted value of each attribute, except the one that the scan already guarantees. */
function hasWantedAttributes({ table, attribute: scanned }: Scan): SQL {
  const tests = ATTRIBUTES.filter((attribute) => attribute !== scanned).map((attribute) => {
    const values = parameter(attribute);
    return fragment`(${values} IS NULL OR ${tables[table][attribute]} IN (SELECT unnest(${values})))`;
  });
  return sql.join(tests, andOnNewLine);
}

const hasWantedTerm = fragment`${items.termIds} && ARRAY(SELECT ${terms.id} FROM wanted_terms)`;

/** Tests a candidate that was found on an index only: its row is read once every other test has passed. */
const hasWantedTermOnRow = fragment`(NOT ${parameter('isByTerm')} OR (
          SELECT ${hasWantedTerm} FROM ${items} WHERE ${isItemOf(fragment`candidate.${phoneNumber}`)} ${orderOfItem}
        ))`;

/**
 * An item as JSON text: what was derived when it was written, around its business profile, whose changes do not count
 * as changes of its numbers (the contract's BusinessProfile).
 */
const item = fragment`'{"id":"' || ${items}.${items.id} || '","phoneNumber":"' || ${items}.${phoneNumber} || '","businessProfile":' || (
      SELECT ${businessProfiles.item} FROM ${businessProfiles} WHERE ${businessProfiles.id} = ${items}.${items.businessProfileId}
    ) || ${items}.${items.itemTail} AS item`;

/**
 * Selects the page of the numbers in `found`, which are all that match up to `until`. Here and in `pageOfAll` the items
 * are joined in the order in which they are read, which is the page's: for `string_agg(… ORDER BY …)`, PostgreSQL 15
 * would sort them again, which takes an eighth of a page's time.
 */
const pageOfFound = (until: SQL) => fragment`SELECT
    coalesce(string_agg(item, ','), '') AS items, count(*)::int AS count,
    max(${phoneNumber}) AS last, (SELECT count(*) FROM found) > ${size} AS has_next, ${until} AS until
  FROM (SELECT ${phoneNumber} FROM found ORDER BY ${phoneNumber} LIMIT ${size}) AS shown
  CROSS JOIN LATERAL (
    SELECT ${item} FROM ${items} WHERE ${isItemOf(fragment`shown.${phoneNumber}`)} ${orderOfItem}
  ) AS item`;

/** Selects a page of all numbers; the scan that finds them also reads their rows. */
export const pageOfAll = fragment`
  SELECT
    coalesce(string_agg(item, ','), '') AS items, count(*)::int AS count,
    max(${phoneNumber}) AS last, (
      SELECT ${phoneNumber} FROM ${items}
      WHERE ${phoneNumber} > max(shown.${phoneNumber}) ORDER BY ${phoneNumber} LIMIT 1
    ) IS NOT NULL AS has_next, ${end} AS until
  FROM (
    SELECT ${phoneNumber}, ${item} FROM ${items}
    WHERE ${phoneNumber} > ${after} AND ${hasNumbers} ORDER BY ${phoneNumber} LIMIT ${size}
  ) AS shown`;

/** Selects the page of the one number that the filter names, which is empty if the number does not match. */
export const pageOfNumber = fragment`
  WITH ${wantedTerms},
  found AS MATERIALIZED (
    SELECT ${phoneNumber} FROM ${items}
    WHERE ${isItemOf(parameter('phoneNumber'))} AND ${phoneNumber} > ${after}
      AND ${hasWantedAttributes({ table: 'items', attribute: null })}
      AND (NOT ${parameter('isByTerm')} OR ${hasWantedTerm})
    ORDER BY ${phoneNumber}
  )
  ${pageOfFound(end)}`;

/** Selects a page of exactly the numbers in the ranges of a scan. */
export function pageOfRanges(scan: Scan): SQL {
  const found = fragment`found AS MATERIALIZED (SELECT ${phoneNumber} FROM next)`;
  return fragment`
  ${withExpressions(scan, nextOfRanges(scan, sizeAndOne, true), found)}
  ${pageOfFound(end)}`;
}

/**
 * Selects the phone number that the next `count` numbers of a scan reach, exactly, and how many ranges the scan has.
 */
export const reachOf = (scan: Scan) => fragment`
  ${withExpressions(scan, nextOfRanges(scan, count, false))}
  SELECT
    CASE count(*) WHEN ${count} THEN max(${phoneNumber}) ELSE (SELECT last FROM bound) END AS last,
    (SELECT count(*)::int FROM range) AS ranges
  FROM next`;

/**
 * Selects a page of the numbers that match among the next `count` numbers of a scan. If the filter has several
 * attributes, they are tested on the index of the scan, and a candidate's row is read only if all of them match.
 */
export function pageOfCandidates(scan: Scan, hasSeveralAttributes: boolean): SQL {
  const isNext = sql.join([...inRange(scan), fragment`${phoneNumber} > ${after}`], and);
  return fragment`
  WITH ${wantedTerms},
  ${batchOfRanges(scan)},
  found AS MATERIALIZED (
    SELECT DISTINCT row.${phoneNumber} FROM range CROSS JOIN LATERAL (
      SELECT ${phoneNumber} FROM ${tables[scan.table]} AS candidate
      WHERE ${isNext} AND ${phoneNumber} <= (SELECT last FROM reach)
        AND ${sql.join(testsOf(scan, hasSeveralAttributes), andOnNewLine)}
      ORDER BY ${orderOf(scan)} LIMIT ${sizeAndOne}
    ) AS row
    ORDER BY ${phoneNumber} LIMIT ${sizeAndOne}
  )
  ${pageOfFound(sql.raw('(SELECT last FROM reach)'))}`;
}

function testsOf(scan: Scan, hasSeveralAttributes: boolean): SQL[] {
  if (scan.table === 'postings') return [hasWantedAttributes(scan)];
  return hasSeveralAttributes ? [hasWantedAttributes(scan), hasWantedTermOnRow] : [hasWantedTerm];
}
