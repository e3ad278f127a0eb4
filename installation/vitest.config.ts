import { defineConfig } from 'vitest/config';

export default defineConfig({
  // One after the other: each installs some six hundred packages.
  test: { include: ['installation/*.test.ts'], testTimeout: 600_000, hookTimeout: 600_000, fileParallelism: false },
});
