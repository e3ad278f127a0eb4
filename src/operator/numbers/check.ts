/** Compares the read model with its sources by deriving it again (drizzle/current.sql), and repairs it on request. */
import { type Transaction, withConnection } from '../../database/connection.js';
import { retryInOutage } from '../../database/outage.js';
import { lockToDerive } from './numberLocks.js';
import { type Columns, type Find, givenKeys, givenRows, keyOf, type Row, rowOfGiven } from './rows.js';
import { Spool } from './spool.js';
import { OUTAGE, runSteps, type Steps } from './steps.js';

const MAX_EXAMPLES = 5;
const WORK_AT_ONCE = 1000;

/**
 * Lets the planner read whole tables, which `planningOptions` prevents for pages. After a bulk load in one transaction, it may
 * expect one row, and a nested loop would compare each row with all others.
 */
const PLAN_FOR_WHOLE_TABLES = `
  SET LOCAL enable_seqscan = on; SET LOCAL enable_bitmapscan = on; SET LOCAL enable_sort = on; SET LOCAL enable_nestloop = off;
  SET LOCAL plan_cache_mode = auto; SET LOCAL work_mem = '128MB'`;

interface Options {
  /** Whether to keep the derived rows and delete stale postings; otherwise nothing changes. */
  keep: boolean;
  /** Ends the work after the current steps. */
  signal?: AbortSignal;
  /** Called after each step that derives, with how many of all numbers are done. */
  onProgress?(done: number, total: number): void;
}

/** Numbers that differ in the same way. */
interface Difference {
  count: number;
  /** The first phone numbers, at most `MAX_EXAMPLES`. */
  examples: string[];
  /** What is wrong, for `countOf`: with one number, and with several. */
  nouns: readonly [one: string, many: string];
}

function add(difference: Difference, phoneNumbers: string[]): void {
  difference.count += phoneNumbers.length;
  difference.examples = [...difference.examples, ...phoneNumbers].sort().slice(0, MAX_EXAMPLES);
}

/** Derives all numbers again, and finds stale postings. @returns the differences: none if the read model matches its sources */
export async function deriveAll(url: string, options: Options): Promise<Difference[]> {
  const differences = [await examineNumbers(url, options), await examinePostings(url, options)];
  return differences.filter(({ count }) => count > 0);
}

/**
 * Derives all numbers, and those that differ once more. derive() compares by several statements, each with its own
 * snapshot: a number that another program inserts meanwhile, which could not be locked, may seem to differ, but not twice.
 */
async function examineNumbers(url: string, { keep, signal, onProgress = () => {} }: Options): Promise<Difference> {
  const nouns = ['number differs from its sources', 'numbers differ from their sources'] as const;
  const found: Difference = { count: 0, examples: [], nouns };
  const numbers = await retryInOutage(() => spoolOf(url, allNumbers), OUTAGE);
  const differing = new Spool();
  let done = 0;
  try {
    const onDerived = (rows: Row[], keys: string[]) => {
      done += rows.length;
      onProgress(done, numbers.length);
      const differs = new Set(keys);
      for (const row of rows) if (differs.has(keyOf(row))) differing.add(row);
    };
    await runSteps(url, numbers, { ...deriving, end: 'ROLLBACK', onWritten: onDerived }, { signal });
    const onWritten = (_: Row[], keys: string[]) => add(found, keys);
    const end = keep ? 'COMMIT' : 'ROLLBACK';
    await runSteps(url, differing, { ...deriving, end, countsChanges: keep, onWritten }, { signal });
    return found;
  } finally {
    numbers.close();
    differing.close();
  }
}

async function examinePostings(url: string, { keep, signal }: Options): Promise<Difference> {
  const nouns = ['number has stale index entries', 'numbers have stale index entries'] as const;
  const found: Difference = { count: 0, examples: [], nouns };
  const stale = await retryInOutage(() => spoolOf(url, stalePostings), OUTAGE);
  const onWritten = (rows: Row[]) => add(found, rows.map(keyOf));
  try {
    if (keep) await runSteps(url, stale, { ...deletingPostings, onWritten }, { signal });
    else for (let rows = stale.take(WORK_AT_ONCE); rows.length > 0; rows = stale.take(WORK_AT_ONCE)) onWritten(rows);
    return found;
  } finally {
    stale.close();
  }
}

async function spoolOf(url: string, find: Find): Promise<Spool> {
  const spool = new Spool();
  try {
    const read = async (sql: Transaction) => {
      await sql.unsafe(PLAN_FOR_WHOLE_TABLES);
      await spool.fill(find(sql));
    };
    await withConnection(url, (connection) => connection.transaction('READ COMMITTED', read));
    return spool;
  } catch (error) {
    spool.close();
    throw error;
  }
}

/** Selects all numbers, and items of numbers that are gone. */
const allNumbers: Find = (sql) => sql`
  SELECT ${rowOfGiven(sql, { phone_number: 'text' }, sql`coalesce(entries, 0)`)} AS row
  FROM (
    SELECT phone_number, entries FROM branded_phone_numbers FULL JOIN items USING (phone_number)
    LEFT JOIN (SELECT phone_number, count(*) AS entries FROM carrier_statuses GROUP BY 1) AS entry USING (phone_number)
  ) AS given
  ORDER BY phone_number`;

const deriving: Steps = {
  lock: lockToDerive,
  write: (sql) => [sql`SELECT DISTINCT key FROM derive(${givenKeys(sql)}) AS key ORDER BY key`],
};

const STALE: Columns = { phone_number: 'text COLLATE "C"', terms: 'bigint[]' };

/**
 * Selects postings under terms that their number's item does not have, which derive() does not look at. Numbers without an
 * item were counted before, when they were derived. One statement reads both tables, so that it sees a consistent state
 * beside other writers.
 */
const stalePostings: Find = (sql) => sql`
  SELECT ${rowOfGiven(sql, STALE, sql`cardinality(terms)`)} AS row
  FROM (
    SELECT phone_number, array_agg(term_id) AS terms
    FROM postings
    LEFT JOIN items USING (phone_number)
    LEFT JOIN branded_phone_numbers AS number USING (phone_number)
    WHERE CASE WHEN items.id IS NULL THEN number.id IS NULL ELSE term_id <> ALL (term_ids) END
    GROUP BY phone_number
  ) AS given
  ORDER BY phone_number`;

/** Looks the postings up by the primary key, whatever the statistics: no other index has them in order. */
const deletingPostings: Steps = {
  // The table, since a posting may belong to a number that another transaction is inserting.
  lock: (sql) => [sql`LOCK TABLE branded_phone_numbers IN EXCLUSIVE MODE`],
  write: (sql) => [
    sql`
      DELETE FROM postings
      WHERE ctid = ANY (ARRAY(
        SELECT (
          SELECT ctid FROM postings
          WHERE postings.term_id = stale.term_id AND postings.phone_number BETWEEN stale.phone_number AND stale.phone_number
          ORDER BY postings.phone_number
        )
        FROM (SELECT phone_number, unnest(terms) AS term_id FROM ${givenRows(sql, STALE)}) AS stale
      )) AND term_id <> ALL (coalesce((
        SELECT term_ids FROM items WHERE items.phone_number BETWEEN postings.phone_number AND postings.phone_number
        ORDER BY items.phone_number
      ), '{}'))`,
  ],
};
