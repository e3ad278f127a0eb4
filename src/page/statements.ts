/**
 * The statements of the list query, as Drizzle's SQL. test/page/statements/ shows some of them as PostgreSQL gets them,
 * whole and with their plans.
 *
 * ## No choice for the planner
 *
 * A range of an index is read by a subquery: one value for each column that the index begins with, then phone numbers
 * in order, up to a LIMIT. A materialized common table expression computes its rows once, before they are used.
 * Candidates are tested by `… IS NULL OR … IN (SELECT …)`. No index supports this condition, so PostgreSQL looks each
 * row up in a hash of the values.
 *
 * ## Names
 *
 * The statements share these common table expressions, with their columns in parentheses:
 *
 * - `wanted_terms` (`id`): the terms under which the matching numbers are listed.
 * - `range` (`value`, `term_id`): a row for each range of the scan; one of the two columns if the scan needs only one.
 * - `found` (`phone_number`): the page's numbers, and one more if there is a next page.
 * - `bound`, `half`, `reach` (`last`): a single row with the last phone number to read.
 */
import type { SQL } from 'drizzle-orm';
import { sql } from '../database/drizzle.js';
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

/** Without carriers, a filter uses the few terms without one. The index `terms_by_carrier` finds terms with and without one. */
const wantedTerms = fragment`wanted_terms AS MATERIALIZED (
    SELECT ${terms.id} FROM ${terms} WHERE ${parameter('carrier')} IS NULL AND ${terms.carrier} = '' AND ${isWantedTerm}
    UNION ALL
    SELECT term.${terms.id} FROM unnest(${parameter('carrier')}) AS wanted CROSS JOIN LATERAL (
      SELECT ${terms.id} FROM ${terms} WHERE ${terms.carrier} = wanted AND ${isWantedTerm} OFFSET 0
    ) AS term
  )`;

/**
 * Is false until the first numbers are committed, since every number has a term. Without this condition, a page would
 * step over all the numbers that an uncommitted transaction has loaded.
 */
const hasNumbers = fragment`EXISTS (SELECT FROM ${terms})`;

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

/**
 * Returns the conditions that limit the scanned table to one row of `range`. With `= ANY` of one value, an attribute stays in the
 * order (`orderOf`), and the scan still stops at the end of the range. With `=`, the planner would drop it from the order, which is
 * then that of the primary key, and if the statistics show a single value, read all numbers to find a rare one.
 */
function inRange({ table, attribute }: Scan): SQL[] {
  return [
    ...(attribute === null ? [] : [fragment`${tables[table][attribute]} = ANY (ARRAY[range.value])`]),
    ...(table === 'items' ? [] : [fragment`${postings.termId} = range.${postings.termId}`]),
  ];
}

/** Returns the order of a range: that of the index that has it. */
function orderOf({ table, attribute }: Scan): SQL {
  return attribute === null ? fragment`${phoneNumber}` : fragment`${tables[table][attribute]}, ${phoneNumber}`;
}

/**
 * Selects the numbers of one range that follow the previous page, in order. `upTo` names the expression with the last
 * phone number to read; `limit` is the LIMIT or OFFSET clause.
 */
function numbersOfRange(scan: Scan, upTo: 'bound' | 'half' | null, limit: SQL): SQL {
  const conditions = [
    ...inRange(scan),
    fragment`${phoneNumber} > ${after}`,
    ...(upTo ? [fragment`${phoneNumber} <= (SELECT last FROM ${sql.raw(upTo)})`] : []),
  ];
  return fragment`SELECT ${phoneNumber} FROM ${tables[scan.table]}
      WHERE ${sql.join(conditions, and)}
      ORDER BY ${orderOf(scan)} ${limit}`;
}

/**
 * Compares an item's phone number. With `=`, the subquery would need no order, and if the table had one row when it was
 * analyzed, PostgreSQL 15 would read the whole of another index that contains the phone number. With BETWEEN, it needs
 * an order, which only the primary key has.
 */
const isItemOf = (number: SQL) => fragment`${items}.${phoneNumber} BETWEEN ${number} AND ${number}`;
const orderOfItem = fragment`ORDER BY ${items}.${phoneNumber} OFFSET 0`;

/** Tests whether a candidate has a wanted value of each attribute except the scan's own, which the range guarantees. */
function hasWantedAttributes({ table, attribute }: Scan): SQL {
  const tests = ATTRIBUTES.filter((name) => name !== attribute).map((name) => {
    const values = parameter(name);
    return fragment`(${values} IS NULL OR ${tables[table][name]} IN (SELECT unnest(${values})))`;
  });
  return sql.join(tests, andOnNewLine);
}

const hasWantedTerm = fragment`${items.termIds} && ARRAY(SELECT ${terms.id} FROM wanted_terms)`;

/** Tests a candidate that was found on an index alone. Its row is read only if every other test has passed. */
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
 * Selects the page of the numbers in `found`, which has all matching numbers up to `until`. Here and in `pageOfAll`,
 * the items are already read in page order. For `string_agg(… ORDER BY …)`, PostgreSQL 15 would sort them again, which
 * takes an eighth of a page's time.
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

// Exact ranges: `first`, `bound`, `next`. On file: test/page/statements/reporting groups and a status.sql

/**
 * Returns the expressions up to `next`, which has the next `limit` numbers of a scan, in order. If a number is in several ranges,
 * `next` may have fewer numbers and end at `bound`, unless `isComplete` is set. A single range needs no bound: `first` has one row.
 */
function nextOfRanges(scan: Scan, limit: SQL, isComplete: boolean): SQL {
  const numbers = isComplete ? fragment`DISTINCT ${phoneNumber}` : fragment`${phoneNumber}`;
  const limitOfRange = fragment`(SELECT CASE count(*) WHEN 1 THEN 1 ELSE 2 * ${limit} / count(*) + 1 END FROM range)`;
  return fragment`${rangesOf(scan)},
  -- A few numbers of each range yield a bound up to which there are enough, so few ranges have to be read up to the limit.
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

/** Selects a page of exactly the numbers in the ranges of a scan. */
export function pageOfRanges(scan: Scan): SQL {
  const found = fragment`found AS MATERIALIZED (SELECT ${phoneNumber} FROM next)`;
  return fragment`
  ${withExpressions(scan, nextOfRanges(scan, sizeAndOne, true), found)}
  ${pageOfFound(end)}`;
}

/** Selects the last of the next `count` phone numbers of a scan, exactly. */
export const reachOf = (scan: Scan) => fragment`
  ${withExpressions(scan, nextOfRanges(scan, count, false))}
  SELECT CASE count(*) WHEN ${count} THEN max(${phoneNumber}) ELSE (SELECT last FROM bound) END AS last FROM next`;

// Candidates: `share`, `half`, `reach`. On file: test/page/statements/business profile and internal name.sql

/**
 * Returns the expressions up to `reach`, which estimates the last of the next `count` phone numbers of a scan. If each range
 * supplied an equal share of `count`, `share` would have the last phone number of each; `half` is their median. If a single range
 * has `count` numbers up to `half`, `reach` is the last of these. A scan of one range is read only once.
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
 * Selects a page of the matching numbers among the next `count` numbers of a scan. If the filter has several
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

/** Returns the tests of a candidate. With a single attribute or none, a filter needs candidates only for its terms (`nextStep`). */
function testsOf(scan: Scan, hasSeveralAttributes: boolean): SQL[] {
  if (scan.table === 'postings') return [hasWantedAttributes(scan)];
  return hasSeveralAttributes ? [hasWantedAttributes(scan), hasWantedTermOnRow] : [hasWantedTerm];
}
