import { sql } from 'drizzle-orm';
import request from 'supertest';
import { beforeAll, describe, expect, it } from 'vitest';
import { migrateDatabase } from '../../src/database/migrations.js';
import { migrationsFolder } from '../../src/packageFolder.js';
import { connectTo } from '../support/connection.js';
import { useListeningService } from '../support/listening.js';
import { numberWith, write } from '../support/numbers.js';
import { problemOf } from '../support/response.js';
import { type TestService, useService } from '../support/service.js';

const statuses = async ({ app }: TestService) => ({
  ready: await request(app).get('/readyz'),
  list: await request(app).get('/v1/brandedPhoneNumbers'),
});

describe('/readyz responds with 503 and the reason if', () => {
  const service = useService();
  const NOT_READY = [503, expect.stringMatching(/schema .* run branded-phone-numbers migrate$/)];
  const wrongs: [string, string, string, unknown[], number][] = [
    [
      'the list’s table is gone',
      'ALTER TABLE items RENAME TO gone',
      'ALTER TABLE gone RENAME TO items',
      NOT_READY,
      503,
    ],
    [
      'but it cannot tell if a column is missing',
      'ALTER TABLE items RENAME item_tail TO gone',
      'ALTER TABLE items RENAME gone TO item_tail',
      [200, 'ready'],
      503,
    ],
    [
      'nothing was migrated',
      'ALTER SCHEMA drizzle RENAME TO gone',
      'ALTER SCHEMA gone RENAME TO drizzle',
      NOT_READY,
      200,
    ],
    [
      'the migrations are older',
      'UPDATE drizzle.__drizzle_migrations SET created_at = created_at - 1',
      'UPDATE drizzle.__drizzle_migrations SET created_at = created_at + 1',
      NOT_READY,
      200,
    ],
  ];
  it.each(wrongs)('%s', async (_name, harm, repair, readiness, listStatus) => {
    await service.database.execute(sql.raw(harm));
    try {
      const { ready, list } = await statuses(service);
      expect([ready.status, ready.body.status]).toEqual(readiness);
      expect(list.status).toBe(listStatus);
      if (listStatus === 503) expect(problemOf(list)).toMatchObject({ type: '/problems/unavailable', status: 503 });
    } finally {
      await service.database.execute(sql.raw(repair));
    }
    const { ready, list } = await statuses(service);
    expect([ready.status, list.status]).toEqual([200, 200]);
  });
});

describe('/readyz', () => {
  const service = useListeningService();

  it('shows PostgreSQL’s message only on METRICS_PORT', async () => {
    const sql = connectTo(service.databaseUrl);
    const statusAt = async (url: string) => (await (await fetch(`${url}/readyz`)).json()) as { status: string };
    await sql`ALTER TABLE items RENAME TO gone`;
    const [shown, hidden] = [await statusAt(service.metricsUrl), await statusAt(service.url)];
    await sql.end();
    expect(shown.status).toBe(`${hidden.status} (relation "items" does not exist)`);
  });
});

describe('an instance whose database was migrated by a newer version', () => {
  const service = useService();
  beforeAll(async () => {
    await write(service.database, [numberWith({ phoneNumber: '+14155550123' })]);
    await statuses(service);
    for (const statement of [
      'CREATE TABLE later (id uuid PRIMARY KEY, phone_number text REFERENCES branded_phone_numbers)',
      'ALTER TABLE branded_phone_numbers ADD COLUMN later text',
      'ALTER TABLE carrier_statuses ADD COLUMN later text',
      'ALTER TABLE api_keys ADD COLUMN later text',
      "INSERT INTO drizzle.__drizzle_migrations (hash, created_at) VALUES ('later', 4102444800000)",
    ])
      await service.database.execute(sql.raw(statement));
  });

  it('continues to serve', async () => {
    const { ready, list } = await statuses(service);
    expect([ready.status, list.status, list.body.items.length]).toEqual([200, 200, 1]);
  });

  it('changes nothing at its start', async () => {
    await migrateDatabase(service.databaseUrl, migrationsFolder);
    const [row] = await service.database.execute<{ newest: string }>(
      sql`SELECT max(created_at) AS newest FROM drizzle.__drizzle_migrations`,
    );
    expect(Number(row?.newest)).toBe(4102444800000);
  });
});
