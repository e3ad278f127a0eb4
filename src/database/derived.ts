/** Computes again what the database derives, compares it, and repairs what differs. */
import type { TransactionSql } from 'postgres';

/** A kind of derived data that differs in `count` places, the first of which are `examples`. */
export interface Difference {
  what: 'business profiles' | 'numbers' | 'numbers in the index';
  count: number;
  examples: string[];
}

const MOST_EXAMPLES = 5;

/** Compares all that is derived with what it is derived from; the list is empty if everything is right. */
export async function findDifferences(sql: TransactionSql): Promise<Difference[]> {
  const found: Difference[] = [];
  for (const [what, differing] of [
    ['business profiles', differingProfiles(sql)],
    ['numbers', differingNumbers(sql)],
    ['numbers in the index', sql`SELECT DISTINCT phone_number FROM (${differingPostings(sql)}) AS posting`],
  ] as const) {
    const [row] = await sql<[{ count: number; examples: string[] | null }]>`
      SELECT count(*)::int, (array_agg(key ORDER BY key))[:${MOST_EXAMPLES}] AS examples
      FROM (${differing}) AS differing (key)`;
    if (row.count > 0) found.push({ what, count: row.count, examples: row.examples ?? [] });
  }
  return found;
}

/**
 * Derives again what differs. Writers have to be locked out until the transaction ends, so that nothing is set to a value
 * that is already out of date. Only the owner of the tables may do it.
 */
export async function repairDifferences(sql: TransactionSql): Promise<void> {
  await sql`UPDATE business_profiles SET item = '' WHERE id::text IN (${differingProfiles(sql)})`;
  await sql`UPDATE branded_phone_numbers SET status = DEFAULT WHERE phone_number IN (${differingNumbers(sql)})`;
  await sql`
    CREATE TEMPORARY TABLE differing ON COMMIT DROP AS
    SELECT DISTINCT phone_number FROM (${differingPostings(sql)}) AS posting`;
  await sql`ALTER TABLE postings DISABLE TRIGGER refuse`;
  await sql`DELETE FROM postings WHERE phone_number IN (TABLE differing)`;
  await sql`
    INSERT INTO postings (term_id, phone_number, business_profile_id, reporting_group, internal_name)
    SELECT posting.* FROM (${rightPostings(sql)}) AS posting JOIN differing USING (phone_number)`;
  await sql`ALTER TABLE postings ENABLE TRIGGER refuse`;
  await sql`SELECT sweep_terms()`;
}

const differingProfiles = (sql: TransactionSql) => sql`
  SELECT id::text FROM business_profiles WHERE item <> business_profile_json(id, business_name, status)`;

const differingNumbers = (sql: TransactionSql) => sql`
  SELECT phone_number FROM branded_phone_numbers AS number JOIN derived_numbers AS derived USING (phone_number)
  WHERE (number.status, number.term_ids, number.item_tail)
    IS DISTINCT FROM (derived.status, derived.term_ids, derived.item_tail)`;

const rightPostings = (sql: TransactionSql) => sql`
  SELECT unnest(derived.term_ids) AS term_id, phone_number, business_profile_id, reporting_group, internal_name
  FROM branded_phone_numbers JOIN derived_numbers AS derived USING (phone_number)`;

const differingPostings = (sql: TransactionSql) => sql`
  (${rightPostings(sql)} EXCEPT ALL TABLE postings) UNION ALL (TABLE postings EXCEPT ALL ${rightPostings(sql)})`;
