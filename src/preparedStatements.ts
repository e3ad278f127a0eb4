/** What the service asks the database, prepared on one generation of its connections. */
import type { Database } from './database/connect.js';
import { prepareSchemaCheck } from './database/version.js';
import { migrationsFolder } from './packageFolder.js';
import { preparePages } from './page/page.js';
import { prepareFindKeys } from './request/keyLookups.js';

export type PreparedStatements = ReturnType<typeof prepareStatements>;

/** Prepares them all on `database`. */
export function prepareStatements(database: Database) {
  return {
    database,
    readPage: preparePages(database),
    findKeys: prepareFindKeys(database),
    checkSchema: prepareSchemaCheck(database, migrationsFolder),
  };
}
