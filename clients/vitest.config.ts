import { join } from 'node:path';
import { defineConfig } from 'vitest/config';

const cache = join(import.meta.dirname, '..', '.cache', 'clients');

/** The tests import the clients as their users do; these aliases lead to where `make test-clients` put them. */
export default defineConfig({
  root: import.meta.dirname,
  resolve: {
    alias: {
      'branded-phone-numbers-client': join(cache, 'installed/typescript/node_modules/branded-phone-numbers-client'),
      'reference-client': join(cache, 'reference/index.ts'),
      'openapi-fetch': join(cache, 'openapi-fetch/node_modules/openapi-fetch'),
    },
  },
  // One file after the other: they share one rate limit.
  test: { include: ['**/*.test.ts'], fileParallelism: false, testTimeout: 120_000 },
});
