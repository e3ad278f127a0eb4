// The service in its own thread, whose CPU time is read from outside (bench/costs.ts).
import { readlinkSync } from 'node:fs';
import { parentPort, workerData } from 'node:worker_threads';
import { readConfig } from '../dist/src/config/config.js';
import { openLog } from '../dist/src/log.js';
import { startService } from '../dist/src/service/server.js';

const config = readConfig(workerData);
const service = await startService(config, config.DATABASE_URL, openLog(config));
parentPort.once('message', () => service.close());
parentPort.postMessage({ url: service.url, task: readlinkSync('/proc/thread-self') });
