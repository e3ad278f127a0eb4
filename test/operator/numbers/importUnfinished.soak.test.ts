import { it } from 'vitest';
import { expectCheckToContinue, expectReport, expectToContinueAfter, useServer } from './importUnfinished.js';

useServer();

it('an import reports how many numbers it imported, and is finished by the same import, after SIGINT', () =>
  expectReport('SIGINT', 130));

it('an import continues after PostgreSQL is stopped and started again', () => expectToContinueAfter('SIGINT'));

it.each([
  ['finds', 'LOCK TABLE carrier_statuses'],
  ['derives', 'SELECT FROM branded_phone_numbers FOR UPDATE'],
])('a check that loses PostgreSQL continues while it %s the numbers', (_verb, lock) => expectCheckToContinue(lock));
