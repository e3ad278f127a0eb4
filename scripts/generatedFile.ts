/** Writes a generated file or, with the option `--check`, only checks it. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageFolder } from '../src/packageFolder.js';

/**
 * Writes `content` to the file at `path`, which is relative to the package. With `--check` it writes nothing, and the
 * process fails if the file differs; the message then says to run `npm run <script>`.
 */
export function writeOrCheck(path: string, content: string, script: string): void {
  const file = join(packageFolder, path);
  if (existsSync(file) && readFileSync(file, 'utf8') === content) {
    console.log(`${path} is up to date`);
  } else if (process.argv.includes('--check')) {
    console.error(`${path} is out of date: run npm run ${script}`);
    process.exitCode = 1;
  } else {
    writeFileSync(file, content);
    console.log(`wrote ${path}`);
  }
}
