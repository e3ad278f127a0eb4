/** `make cluster`: starts the cluster, with the demo data, and runs it until it is interrupted. */

import { once } from 'node:events';
import { createReadStream } from 'node:fs';
import { join } from 'node:path';
import { closeDatabase, openDatabase } from '../../src/database/connect.js';
import { importNumbers } from '../../src/numbers/import.js';
import { packageFolder } from '../../src/packageFolder.js';
import { missingPrograms, startCluster } from './cluster.js';

if (missingPrograms.length > 0) {
  console.error(`missing: ${missingPrograms.join(', ')}. Install with: apt-get install ${missingPrograms.join(' ')}`);
  process.exit(1);
}
const cluster = await startCluster({ port: Number(process.env.PORT ?? 3000) });
const database = openDatabase(cluster.primary.url);
await importNumbers(database, createReadStream(join(packageFolder, 'demo', 'numbers.ndjson')));
await closeDatabase(database);
console.log(`HAProxy       ${cluster.url}/docs
instances     ${cluster.instanceUrls.join(', ')}
PostgreSQL    ${cluster.primary.url}, replica ${cluster.replicas[0].url}
Ctrl-C ends all of it.`);
await Promise.race([once(process, 'SIGINT'), once(process, 'SIGTERM')]);
await cluster.stop();
