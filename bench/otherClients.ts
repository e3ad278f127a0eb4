/** Other clients that use up all connections of a PostgreSQL. */
import { setTimeout as sleep } from 'node:timers/promises';
import type postgres from 'postgres';
import { codeOf, TOO_MANY_CONNECTIONS } from '../src/database/errors.js';
import { connectTo } from '../test/support/connection.js';

export interface OtherClients {
  leave(): Promise<void>;
}

/** Opens connections to the PostgreSQL at `url` until all attempts have failed for 200 ms. */
export async function useUpConnections(url: string): Promise<OtherClients> {
  const taken: postgres.Sql[] = [];
  for (let full = 0; full < 10; ) {
    const sql = connectTo(url, { max_lifetime: null });
    try {
      await sql`SELECT 1`;
      taken.push(sql);
      full = 0;
    } catch (error) {
      if (codeOf(error) !== TOO_MANY_CONNECTIONS) throw error;
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
