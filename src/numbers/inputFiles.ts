/** Several files read as one, remembering which line came from where. */
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { printable } from '../messages/shorten.js';
import { UserError } from '../userError.js';

const LINE_FEED = 0x0a;

export type InputFiles = Awaited<ReturnType<typeof openInputFiles>>;

/**
 * Opens files to be read one after the other; `-` is standard input.
 * @throws when one of them does not exist; the stream fails if reading fails
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
      starts.push({ name: printable(name), line: lines });
      let last = LINE_FEED;
      for await (const bytes of contentOf(name, sizes[i] ?? 0)) {
        for (let at = bytes.indexOf(LINE_FEED); at >= 0; at = bytes.indexOf(LINE_FEED, at + 1)) lines++;
        last = bytes.at(-1) ?? last;
        yield bytes;
      }
      if (last === LINE_FEED) continue;
      lines++;
      yield Buffer.of(LINE_FEED);
    }
  }
  return {
    stream: Readable.from(read(), { objectMode: false }),
    /** Bytes of all files together; undefined where one of them is standard input or a pipe. */
    size: sizes.includes(undefined) ? undefined : sizes.reduce<number>((sum, size) => sum + (size ?? 0), 0),
    /** How a message names a line of the whole: by its file, if there are several. */
    place(line: number): string {
      const file = starts.findLast((start) => start.line < line);
      return file && names.length > 1 ? `${file.name} line ${line - file.line}` : `line ${line}`;
    },
  };
}

/** The size of a file in bytes; undefined for what has no size, such as a pipe. */
async function sizeOf(name: string): Promise<number | undefined> {
  const found = await stat(name);
  return found.isFile() ? found.size : undefined;
}

/** @throws also if less than `size` is read: part of a file is not what was asked for */
async function* contentOf(name: string, size: number): AsyncGenerator<Buffer> {
  let length = 0;
  for await (const chunk of name === '-' ? process.stdin : createReadStream(name)) {
    length += chunk.length;
    yield chunk;
  }
  if (length < size) throw new UserError(`${printable(name)} became shorter while it was read`);
}
