/** Opens the files of an input, and names their lines. */
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { escapeHidden } from '../../messages/shown.js';
import { UserError } from '../../userError.js';
import { fileOf, LINES_PER_FILE } from './lines.js';

export type InputFiles = Awaited<ReturnType<typeof openInputFiles>>;

/**
 * Opens files; `-` is standard input. Their streams are to be read one after the other.
 * @throws if a file does not exist; its stream emits later errors
 */
export async function openInputFiles(names: readonly string[]) {
  if (names.indexOf('-') !== names.lastIndexOf('-')) {
    throw new UserError('standard input (-) is named more than once');
  }
  const sizes = await Promise.all(names.map((name) => (name === '-' ? undefined : sizeOf(name))));
  let bytes = 0;
  /** Reads a file. @throws if it has fewer than `size` bytes, because a truncated file must not be imported in part */
  async function* contentOf(name: string, size = 0): AsyncGenerator<Buffer> {
    let length = 0;
    for await (const chunk of name === '-' ? process.stdin : createReadStream(name)) {
      length += chunk.length;
      bytes += chunk.length;
      yield chunk;
    }
    if (length < size) throw new UserError(`${escapeHidden(name)} was truncated while it was read`);
  }
  return {
    streams: names.map((name, i) => Readable.from(contentOf(name, sizes[i]), { objectMode: false })),
    bytesRead: () => bytes,
    /** Bytes of all files together; undefined if one of them is standard input or a pipe. */
    size: sizes.includes(undefined) ? undefined : sizes.reduce<number>((sum, size) => sum + (size ?? 0), 0),
    /** Returns what a message calls the line at a place: with its file if there are several. */
    place(line: number): string {
      const file = names.length > 1 ? `${escapeHidden(names[fileOf(line)] ?? '')} ` : '';
      return `${file}line ${line % LINES_PER_FILE}`;
    },
  };
}

/** Returns the size of a file in bytes; undefined for a pipe or device. */
async function sizeOf(name: string): Promise<number | undefined> {
  const stats = await stat(name);
  return stats.isFile() ? stats.size : undefined;
}
