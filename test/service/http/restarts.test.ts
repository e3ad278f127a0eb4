import { readFile } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { useDatabase } from '../../support/database.js';
import { freePort } from '../../support/port.js';
import { listenOn } from '../../support/service.js';
import { hasNginx, startNginx } from './nginx.js';

describe.skipIf(!hasNginx)('two instances behind nginx, restarted one after the other', () => {
  const database = useDatabase();

  it.each([
    ['fail no request with the upstream block of deploy/nginx', '', 200],
    ['fail requests with the defaults of nginx', ' max_fails=0', 502],
  ])('%s', async (_, without, status) => {
    const ports = [await freePort(), await freePort()];
    const start = (port?: number) =>
      listenOn(database.url, { PORT: String(port), DRAIN_SECONDS: '0', TRUST_PROXY: '1' });
    const instances = [await start(ports[0]), await start(ports[1])];
    const file = await readFile('deploy/nginx/branded-phone-numbers.conf', 'utf8');
    const [block = ''] = /^upstream .*?^}$/ms.exec(file) ?? [];
    let named = 0;
    const upstream = block.replace(/10\.0\.1\.\d+:3000/g, () => `127.0.0.1:${ports[named++]}`).replaceAll(without, '');
    expect(named).toBe(2);
    const port = await freePort();
    const stop = await startNginx(port, 'http://numbers', upstream);
    const statuses: number[] = [];
    try {
      for (const [i, instance] of instances.entries()) {
        await instance.close();
        // nginx takes them in turn.
        for (let n = 0; n < 4; n++) {
          statuses.push((await fetch(`http://127.0.0.1:${port}/numbers/v1/brandedPhoneNumbers`)).status);
        }
        instances[i] = await start(ports[i]);
      }
    } finally {
      await stop();
      for (const instance of instances) await instance.close();
    }
    expect(statuses.slice(0, 4)).toEqual([200, 200, 200, 200]);
    expect(Math.max(...statuses)).toBe(status);
  });
});
