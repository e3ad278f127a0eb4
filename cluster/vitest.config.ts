import { defineConfig } from 'vitest/config';

export default defineConfig({
  // One cluster at a time: two would compete for the CPU and miss the times that are promised.
  test: { include: ['cluster/*.test.ts'], testTimeout: 120_000, hookTimeout: 120_000, fileParallelism: false },
});
