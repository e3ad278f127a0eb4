/** Others who take every connection that a PostgreSQL has. */
import { setTimeout as sleep } from 'node:timers/promises';
import postgres from 'postgres';

export interface Crowd {
  leave(): Promise<void>;
}

/** Takes the connections of the PostgreSQL at `url` until it has had none left for 200 ms, also none that others gave up. */
export async function crowd(url: string): Promise<Crowd> {
  const taken: postgres.Sql[] = [];
  for (let full = 0; full < 10; ) {
    const sql = postgres(url, { max: 1, max_lifetime: null, onnotice: () => {} });
    try {
      await sql`SELECT 1`;
      taken.push(sql);
      full = 0;
    } catch (error) {
      if ((error as { code?: string }).code !== '53300') throw error;
      await sql.end({ timeout: 0 });
      full++;
      await sleep(20);
    }
  }
  return {
    async leave() {
      await Promise.all(taken.map((sql) => sql.end({ timeout: 1 })));
    },
  };
}
