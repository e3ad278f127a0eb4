/** Updates of single carrier statuses per second, with and without the triggers that keep the read model up to date. */
import { withConnection } from './database.js';
import { mediansInTurn } from './medians.js';
import { hasPgbench, pgbench } from './pgbench.js';

const ROUNDS = 3;
const SECONDS = 3;
/** Clients for the comparison of the table with its bare copy. */
const CLIENTS = 2;
const WRITERS = [1, 2, 4, 8];

/** Updates per second, medians of several rounds. */
export interface Changes {
  withTriggers: number;
  /** In a copy of the table that has its indexes but no triggers. */
  bare: number;
  ratesByWriters: RatesByWriters;
}

/** Updates per second, with triggers, by the number of concurrent writers. */
export type RatesByWriters = Record<number, number>;

/** Measures updates in a database that has `numbers` generated phone numbers; undefined without pgbench. */
export async function measureChanges(url: string, numbers: number): Promise<Changes | undefined> {
  if (!hasPgbench) return undefined;
  await withConnection(url, async (sql) => {
    await sql`CREATE TABLE bare (LIKE carrier_statuses INCLUDING ALL)`;
    await sql`INSERT INTO bare SELECT * FROM carrier_statuses`;
    await sql`ANALYZE bare`;
  });
  const tables = ['carrier_statuses', 'bare'].map((table) => ({
    measure: () => updatesPerSecond(url, table, numbers, CLIENTS),
  }));
  const [withTriggers, bare] = await mediansInTurn(tables, ROUNDS);
  const [ratesByWriters = {}] = await measureWriters([url], numbers);
  return { withTriggers: withTriggers?.median ?? 0, bare: bare?.median ?? 0, ratesByWriters };
}

/** Measures 1, 2, 4 and 8 writers in each of the databases; no rates without pgbench. */
export async function measureWriters(urls: string[], numbers: number): Promise<RatesByWriters[]> {
  if (!hasPgbench) return urls.map(() => ({}));
  const cases = urls.flatMap((url) =>
    WRITERS.map((writers) => {
      return { url, writers, measure: () => updatesPerSecond(url, 'carrier_statuses', numbers, writers) };
    }),
  );
  const measured = await mediansInTurn(cases, ROUNDS);
  return urls.map((url) =>
    Object.fromEntries(measured.filter((rate) => rate.url === url).map(({ writers, median }) => [writers, median])),
  );
}

/** Returns the updates per second; each sets a carrier status of a random phone number to a random value. */
function updatesPerSecond(url: string, table: string, numbers: number, clients: number): Promise<number> {
  const script = `\\set number random(1, ${numbers})
\\set status random(1, 9)
UPDATE ${table} SET detailed_status = (enum_range(NULL::detailed_status))[:status]
WHERE phone_number = '+1' || (2000000000 + :number * 7)::text AND carrier = 'AT&T' AND feature = 'brandedCallerId';
`;
  return pgbench(url, script, clients, SECONDS);
}
