/** Several files read as one, remembering which line came from where. */
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { FileError } from '../messages/fileError.js';
import { printable } from '../messages/shorten.js';

const LINE_FEED = 0x0a;

export interface InputFiles {
  stream: Readable;
  /** Bytes of all files together; undefined where one of them is standard input or a pipe. */
  size: number | undefined;
  /** How a message names a line of the whole: by its file, if there are several. */
  place(line: number): string;
}

/**
 * Opens files to be read one after the other; `-` is standard input.
 * @throws {FileError} when one of them does not exist; the stream fails with one if reading fails
 */
export async function openInputFiles(names: readonly string[]): Promise<InputFiles> {
  if (names.indexOf('-') !== names.lastIndexOf('-')) {
    throw new FileError('standard input', 'read', new Error('it is named more than once'));
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
    size: sizes.includes(undefined) ? undefined : sizes.reduce<number>((sum, size) => sum + (size ?? 0), 0),
    place(line) {
      const file = starts.findLast((start) => start.line < line);
      return file && names.length > 1 ? `${file.name} line ${line - file.line}` : `line ${line}`;
    },
  };
}

/** The size of a file in bytes; undefined for what has no size, such as a pipe. */
async function sizeOf(name: string): Promise<number | undefined> {
  const found = await stat(name).catch((error: unknown) => {
    throw new FileError(name, 'read', error);
  });
  return found.isFile() ? found.size : undefined;
}

/** @throws {FileError} also if less than `size` is read: part of a file is not what was asked for */
async function* contentOf(name: string, size: number): AsyncGenerator<Buffer> {
  const stream = name === '-' ? process.stdin : createReadStream(name);
  let length = 0;
  try {
    for await (const chunk of stream) {
      length += chunk.length;
      yield chunk;
    }
  } catch (error) {
    throw new FileError(name === '-' ? 'standard input' : name, 'read', error);
  }
  if (length < size) throw new FileError(name, 'read', new Error('it became shorter meanwhile'));
}
