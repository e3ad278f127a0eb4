/** `require_auth=scram-sha-256` keeps the password in DATABASE_URL from a server that does not use SCRAM. */
import { describe, expect, it } from 'vitest';
import { readConfig } from '../../src/config/config.js';
import { closeDatabase, openDatabase } from '../../src/database/connect.js';
import { CLEAR_TEXT, MD5, OK, openImpostor, SASL } from '../support/impostor.js';

const SECRET = 'not-for-impostors';

/** Returns the error of a query to the server on `port`, with the password in its URL. */
async function errorOf(port: number, parameters: string): Promise<unknown> {
  const database = openDatabase(`postgres://someone:${SECRET}@127.0.0.1:${port}/some${parameters}`, { connections: 1 });
  try {
    return await database.$client`SELECT 1`.catch((error: unknown) => error);
  } finally {
    await closeDatabase(database, 0);
  }
}

describe('require_auth=scram-sha-256', () => {
  it.each([
    ['the password in clear text', [CLEAR_TEXT]],
    ['its MD5', [MD5]],
    ['no password', [OK]],
    ['SCRAM and then clear text, in one write', [Buffer.concat([SASL, CLEAR_TEXT])]],
    ['clear text, in two writes', [CLEAR_TEXT.subarray(0, 7), CLEAR_TEXT.subarray(7)]],
  ])('closes the connection if the server requests %s', async (_what, requests) => {
    const impostor = await openImpostor(0, requests);
    expect(await errorOf(impostor.port, '?require_auth=scram-sha-256')).toMatchObject({ code: 'SCRAM_NOT_OFFERED' });
    impostor.close();
    expect(impostor.received()).not.toContain(SECRET);
    expect(impostor.received()).not.toContain('md5');
    expect(impostor.received()).not.toContain('SELECT');
  });

  it.each(['require_auth=md5', 'require_auth=scram-sha-256&sslmode=require'])(
    'is the only setting of its kind that is accepted: rejects %s',
    (parameters) => {
      expect(() => readConfig({ DATABASE_URL: `postgres://host/some?${parameters}` })).toThrow(
        /^DATABASE_URL may only have/,
      );
    },
  );
});
