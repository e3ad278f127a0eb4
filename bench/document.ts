/** Markdown tables, and the sections of documents that benchmarks write. */
import { execFileSync } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { cpus, totalmem } from 'node:os';

/** Returns the commit, date, hardware and version of Node. */
export function machine(): string {
  const date = new Date().toISOString().slice(0, 10);
  const commit = execFileSync('git', ['describe', '--always', '--dirty'], { encoding: 'utf8' }).trim();
  const memory = Math.round(totalmem() / 2 ** 30);
  return `${commit}, ${date}, ${cpus().length} × ${cpus()[0]?.model.trim()}, ${memory} GB, Node ${process.version}`;
}

/** Returns a Markdown table, or '' without rows. All columns are right-aligned except those in `left`. */
export function table(head: string[], rows: (string | number)[][], left = [0]): string {
  if (rows.length === 0) return '';
  const line = (cells: (string | number)[]) => `| ${cells.join(' | ')} |`;
  const alignment = head.map((_, index) => (left.includes(index) ? '---' : '---:'));
  return [head, alignment, ...rows].map(line).join('\n');
}

/** Replaces the text between `<!-- bench:… -->` and `<!-- /bench -->` for each named section that the document has. */
export async function writeSections(document: string, sections: Record<string, string>): Promise<void> {
  let page = await readFile(document, 'utf8');
  for (const [name, text] of Object.entries(sections)) {
    const section = new RegExp(`(<!-- bench:${name} -->\n)[^]*?(<!-- /bench -->)`);
    page = page.replace(section, (_, start, end) => `${start}\n${text}\n\n${end}`);
  }
  await writeFile(document, page);
}
