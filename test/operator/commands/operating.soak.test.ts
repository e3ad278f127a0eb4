/** The commands at the size that we promise; what they take is printed. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { createDatabase } from '../../support/database.js';
import { operate } from '../../support/operating.js';

test('300,000 numbers are imported, checked, repaired, exported, deleted and restored, while pages are read', async () => {
  const [database, restored] = [await createDatabase(), await createDatabase()];
  const folder = await mkdtemp(join(tmpdir(), 'branded-phone-numbers-operating-'));
  try {
    const operations = await operate(database.url, restored.url, 300_000, folder);
    console.table(
      operations.map(({ what, ...measured }) => ({
        what,
        ...Object.fromEntries(Object.entries(measured).map(([name, value]) => [name, Math.round(value)])),
      })),
    );
    for (const { what, seconds, memory, write, unanswered } of operations) {
      // docs/operations.md: pages read past all that a first import has not committed yet.
      if (what !== 'import') expect([what, unanswered]).toEqual([what, 0]);
      // docs/performance.md: whatever the size.
      expect([what, memory]).toEqual([what, expect.toSatisfy((value: number) => value < 200)]);
      // docs/operations.md: a check lets others write in between.
      if (what.startsWith('check')) expect(write).toBeLessThan((seconds * 1000) / 3);
    }
  } finally {
    await rm(folder, { recursive: true, force: true });
    await Promise.all([database.drop(), restored.drop()]);
  }
}, 3_600_000);
