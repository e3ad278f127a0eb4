import { it } from 'vitest';
import { expectOneStart } from './latePostgres.js';

it('serve waits without a restart, and is ready when PostgreSQL starts 90 s later', { timeout: 180_000 }, () =>
  expectOneStart(90),
);
