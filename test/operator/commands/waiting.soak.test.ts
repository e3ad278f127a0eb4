import { it } from 'vitest';
import { expectNoLocks, expectReport, useWriters } from './waiting.js';

useWriters();

it.each([
  ['delete gone.txt', 'SIGINT', 'FOR UPDATE'],
  ['check', 'SIGKILL', 'FOR NO KEY UPDATE'],
] as const)('a command holds no locks after it has ended: %s, after %s while it writes', expectNoLocks);

it('a command reports once what blocks it: a prepared transaction', () =>
  expectReport(
    `SELECT FROM branded_phone_numbers FOR UPDATE; PREPARE TRANSACTION 'forgotten'`,
    `ROLLBACK PREPARED 'forgotten'`,
    'prepared transaction forgotten, \\w+',
  ));

it('a command reports once what blocks it: a session that holds a business profile', () =>
  expectReport(
    'SELECT FROM business_profiles FOR UPDATE',
    'ROLLBACK',
    'process \\d+, \\w+, a writer, idle in transaction',
  ));
