import { it } from 'vitest';
import { expectOneStart } from './latePostgres.js';

it('serve is ready without a restart when PostgreSQL starts 90 s later', { timeout: 180_000 }, () =>
  expectOneStart(90),
);
