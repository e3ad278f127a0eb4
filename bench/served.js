// The service in a worker thread. bench/costs.ts reads the CPU time of the thread.
import { readlinkSync } from 'node:fs';
import { parentPort, workerData } from 'node:worker_threads';
import { readConfig } from '../dist/src/config/config.js';
import { openLog } from '../dist/src/log.js';
import { startService } from '../dist/src/service/server.js';

const config = readConfig(workerData);
const service = await startService(config, config.DATABASE_URL, openLog(config));
await service.begin();
parentPort.once('message', () => service.close());
parentPort.postMessage({ url: service.url, task: readlinkSync('/proc/thread-self') });
