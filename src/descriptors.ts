/** How many descriptors (open files, sockets included) the system lets this process have. */
import { openSync, readSync } from 'node:fs';

/** What Linux says about this process. It stays open, so that it can be read when no descriptor is left. */
const limits = openLimits();
const buffer = Buffer.alloc(4096);

function openLimits(): number | undefined {
  try {
    return openSync('/proc/self/limits', 'r');
  } catch {
    // Elsewhere nothing is known: macOS lets Node have more than it needs.
    return undefined;
  }
}

/** The limit now, which may be changed while the process runs; Infinity where the system doesn't tell. */
export function descriptorLimit(): number {
  if (limits === undefined) return Number.POSITIVE_INFINITY;
  const text = buffer.toString('latin1', 0, readSync(limits, buffer, 0, buffer.length, 0));
  return Number(/^Max open files +(\d+)/m.exec(text)?.[1] ?? Number.POSITIVE_INFINITY);
}
