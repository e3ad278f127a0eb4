/** How many descriptors (open files, sockets included) the system lets this process have. */
import { closeSync, openSync, readSync } from 'node:fs';

export interface DescriptorLimit {
  /** The limit now; it may be changed while the process runs. Infinity where the system doesn't tell. */
  read(): number;
  close(): void;
}

/** Opens what Linux says about this process. Elsewhere nothing is known: macOS lets Node have more than it needs. */
export function openDescriptorLimit(): DescriptorLimit {
  const unknown = { read: () => Number.POSITIVE_INFINITY, close() {} };
  if (process.platform !== 'linux') return unknown;
  let file: number;
  try {
    file = openSync('/proc/self/limits', 'r');
  } catch {
    return unknown;
  }
  const buffer = Buffer.alloc(4096);
  return {
    // The file stays open, so that it can be read when no descriptor is left.
    read() {
      const text = buffer.toString('latin1', 0, readSync(file, buffer, 0, buffer.length, 0));
      return Number(/^Max open files +(\d+)/m.exec(text)?.[1] ?? Number.POSITIVE_INFINITY);
    },
    close: () => closeSync(file),
  };
}
