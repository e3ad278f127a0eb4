/** Makes ten million phone numbers out of a million by SQL, since an import would take too long. */
import type { Sql } from 'postgres';

/** Added to the phone numbers for each copy: the million generated ones, 7 apart, span less, so copies don't overlap. */
const COPY_DISTANCE = 7_000_000;

/**
 * Adds nine copies of the read model's rows, with the same attributes and statuses but other phone numbers. Empties the
 * tables that it is derived from, since no page reads them.
 */
export async function growTenfold(sql: Sql): Promise<void> {
  await sql`SET session_replication_role = replica`;
  await sql`SET maintenance_work_mem = '1GB'`;
  await sql`TRUNCATE branded_phone_numbers, carrier_statuses`;
  const indexes = await sql`
    SELECT index.indexrelid::regclass::text AS name, index.indrelid::regclass::text AS table, conname AS constraint,
      coalesce(pg_get_constraintdef(c.oid), pg_get_indexdef(index.indexrelid)) AS definition
    FROM pg_index AS index LEFT JOIN pg_constraint AS c ON c.conindid = index.indexrelid AND c.contype IN ('p', 'u')
    WHERE index.indrelid IN ('items'::regclass, 'postings'::regclass)`;
  for (const { name, table, constraint } of indexes) {
    await sql.unsafe(constraint ? `ALTER TABLE ${table} DROP CONSTRAINT ${constraint}` : `DROP INDEX ${name}`);
  }
  for (const table of ['items', 'postings']) {
    const columns = await sql`
      SELECT column_name AS name FROM information_schema.columns
      WHERE table_name = ${table} AND is_generated = 'NEVER' ORDER BY ordinal_position`;
    const names = columns.map(({ name }) => name as string);
    await sql.unsafe(`CREATE TEMPORARY TABLE original AS SELECT * FROM ${table}`);
    for (let copy = 1; copy < 10; copy++) {
      const values = names.map((name) => {
        if (name === 'phone_number') return `'+' || (substr(phone_number, 2)::bigint + ${copy * COPY_DISTANCE})`;
        return table === 'items' && name === 'id' ? 'gen_random_uuid()' : name;
      });
      await sql.unsafe(`INSERT INTO ${table} (${names}) SELECT ${values} FROM original`);
    }
    await sql`DROP TABLE original`;
  }
  for (const { table, constraint, definition } of indexes) {
    await sql.unsafe(constraint ? `ALTER TABLE ${table} ADD CONSTRAINT ${constraint} ${definition}` : definition);
  }
}
