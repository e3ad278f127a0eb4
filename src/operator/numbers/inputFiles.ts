/** Reads several files as one stream, and finds the file and line of each of its lines. */
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { escapeHidden } from '../../messages/shown.js';
import { UserError } from '../../userError.js';
import { LINE_FEED } from './lines.js';

export type InputFiles = Awaited<ReturnType<typeof openInputFiles>>;

/**
 * Opens files as one stream, in the given order; `-` is standard input.
 * @throws if a file does not exist; the stream emits later errors
 */
export async function openInputFiles(names: readonly string[]) {
  if (names.indexOf('-') !== names.lastIndexOf('-')) {
    throw new UserError('standard input (-) is named more than once');
  }
  const sizes = await Promise.all(names.map((name) => (name === '-' ? undefined : sizeOf(name))));
  const starts: { name: string; line: number }[] = [];
  async function* read() {
    let lines = 0;
    for (const [i, name] of names.entries()) {
      // Ends the last line of the previous file, or adds a blank one, which is ignored.
      if (i > 0) yield Buffer.of(LINE_FEED);
      starts.push({ name: escapeHidden(name), line: lines + i });
      for await (const bytes of contentOf(name, sizes[i] ?? 0)) {
        for (let at = bytes.indexOf(LINE_FEED); at >= 0; at = bytes.indexOf(LINE_FEED, at + 1)) lines++;
        yield bytes;
      }
    }
  }
  return {
    stream: Readable.from(read(), { objectMode: false }),
    /** Bytes of all files together; undefined if one of them is standard input or a pipe. */
    size: sizes.includes(undefined) ? undefined : sizes.reduce<number>((sum, size) => sum + (size ?? 0), 0),
    /** Returns what a message calls line `line` of the stream: with its file if there are several. */
    place(line: number): string {
      const file = starts.findLast((start) => start.line < line);
      return file && names.length > 1 ? `${file.name} line ${line - file.line}` : `line ${line}`;
    },
  };
}

/** Returns the size of a file in bytes; undefined for a pipe or device. */
async function sizeOf(name: string): Promise<number | undefined> {
  const stats = await stat(name);
  return stats.isFile() ? stats.size : undefined;
}

/** Reads a file. @throws if it has fewer than `size` bytes, because a truncated file must not be imported in part */
async function* contentOf(name: string, size: number): AsyncGenerator<Buffer> {
  let length = 0;
  for await (const chunk of name === '-' ? process.stdin : createReadStream(name)) {
    length += chunk.length;
    yield chunk;
  }
  if (length < size) throw new UserError(`${escapeHidden(name)} was truncated while it was read`);
}
