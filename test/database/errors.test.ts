/** The meaning of PostgreSQL's errors, in any language. */
import { expect, it } from 'vitest';
import { failureOf, reasonOf } from '../../src/database/errors.js';
import { usePool } from '../support/database.js';
import { errorResponse, failStatements, openImpostor } from '../support/impostor.js';

it('an error of PostgreSQL means that row-level security hides rows, in German, too', async () => {
  const text = 'Anfrage würde von Policy für Sicherheit auf Zeilenebene für Tabelle »items« betroffen sein';
  const impostor = await openImpostor(0, failStatements(errorResponse('42501', text, 'check_enable_rls')));
  const database = usePool(`postgres://numbers@127.0.0.1:${impostor.port}/numbers`);
  const error: unknown = await database.$client`SELECT ${1}::int`.catch((reason: unknown) => reason);
  impostor.close();
  expect(failureOf(error)).toBe('hidden');
  expect(reasonOf(error)).toBe(
    `${text}: give the role in DATABASE_URL the attribute BYPASSRLS, or disable row-level security for the table`,
  );
});
