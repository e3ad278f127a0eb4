/** `make cluster`: runs the cluster with the demo data until it is interrupted. */
import { once } from 'node:events';
import { createReadStream } from 'node:fs';
import { join } from 'node:path';
import { closeDatabase, openDatabase } from '../../src/database/connect.js';
import { importNumbers } from '../../src/operator/numbers/import.js';
import { packageFolder } from '../../src/packageFolder.js';
import { missingPackages, startCluster } from './cluster.js';

if (missingPackages.length > 0) {
  console.error(`missing: ${missingPackages.join(', ')}. Install with: apt-get install ${missingPackages.join(' ')}`);
  process.exit(1);
}
const cluster = await startCluster();
const database = openDatabase(cluster.databaseUrl);
await importNumbers(database, createReadStream(join(packageFolder, 'demo', 'numbers.ndjson')));
await closeDatabase(database);
console.log(`HAProxy       ${cluster.url}/docs
without Redis ${cluster.withoutRedis}
PostgreSQL    ${cluster.databaseUrl}
Ctrl-C stops the cluster.`);
await Promise.race([once(process, 'SIGINT'), once(process, 'SIGTERM')]);
await cluster.stop();
