/** `make cluster`: runs the cluster with the demo data until it is interrupted. */
import { once } from 'node:events';
import { importDemo } from '../support/demo.js';
import { missingPackages, startCluster } from './cluster.js';

if (missingPackages.length > 0) {
  console.error(`missing: ${missingPackages.join(', ')}. Install with: apt-get install ${missingPackages.join(' ')}`);
  process.exit(1);
}
const cluster = await startCluster();
await importDemo(cluster.databaseUrl);
console.log(`HAProxy       ${cluster.haproxy.url}/docs
without Redis ${cluster.withoutRedis}
PostgreSQL    ${cluster.databaseUrl}
Ctrl-C stops the cluster.`);
await Promise.race([once(process, 'SIGINT'), once(process, 'SIGTERM')]);
await cluster.stop();
