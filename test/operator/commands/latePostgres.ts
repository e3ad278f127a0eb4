/** `serve` beside a PostgreSQL that starts later. */
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'vitest';
import { startPostgres } from '../../support/postgresServer.js';
import { supervise } from '../../support/supervisor.js';

/** Expects the first start of `serve` to last until PostgreSQL starts, `seconds` later, and to be ready then. */
export async function expectOneStart(seconds: number): Promise<void> {
  const postgres = await startPostgres();
  await postgres.stop();
  // Redis never starts: the limit is then counted per instance.
  const service = await supervise(['--demo'], { DATABASE_URL: postgres.url, REDIS_URL: 'redis://127.0.0.1:1' });
  try {
    await service.untilAlive();
    expect(await service.get('/readyz')).toEqual({
      status: 503,
      body: '{"status":"waiting until PostgreSQL can be reached"}',
    });
    expect((await service.getAsOperator('/readyz'))?.body).toContain(
      `(connect ECONNREFUSED 127.0.0.1:${postgres.port})`,
    );
    const list = await service.get('/v1/brandedPhoneNumbers');
    expect([list?.status, JSON.parse(list?.body ?? '')]).toEqual([
      503,
      expect.objectContaining({ type: '/problems/unavailable', status: 503 }),
    ]);
    expect((await service.get('/openapi.json'))?.status).toBe(200);
    await sleep(seconds * 1000);
    await postgres.start();
    await service.untilReady();
    const { items } = JSON.parse((await service.get('/v1/brandedPhoneNumbers'))?.body ?? '');
    expect(items).toHaveLength(25);
    expect(service.starts).toHaveLength(1);
    service.stop();
    expect(await service.end()).toBe(0);
    const log = service.out.stdout.split('\n').flatMap((line) => (line.startsWith('{') ? JSON.parse(line).msg : []));
    expect(log.filter((line) => /^waiting until|^PostgreSQL is available|^listening/.test(line))).toEqual([
      'waiting until PostgreSQL can be reached',
      'PostgreSQL is available: starting',
      expect.stringMatching(/^listening on/),
    ]);
  } finally {
    service.stop('SIGKILL');
    await service.end();
    await postgres.remove();
  }
}
