import { it } from 'vitest';
import { expectOneStart } from './latePostgres.js';

it.each([30, 90])(
  'serve is ready without a restart when PostgreSQL starts %i s later',
  { timeout: 180_000 },
  (seconds) => expectOneStart(seconds),
);
