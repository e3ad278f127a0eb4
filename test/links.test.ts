/** Links and anchors of all Markdown files in this repository, as GitHub resolves them. */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { posix } from 'node:path';
import { Marked, type Token } from 'marked';
import { expect, it } from 'vitest';

const marked = new Marked();
const files = execFileSync('git', ['ls-files', '*.md'], { encoding: 'utf8' }).split('\n').filter(Boolean);

/** Returns the headings' texts and the links' targets of a file. */
function partsOf(file: string) {
  const parts: { headings: string[]; links: string[] } = { headings: [], links: [] };
  marked.walkTokens(marked.lexer(readFileSync(file, 'utf8')), (token: Token) => {
    if (token.type === 'heading') parts.headings.push(token.text);
    if (token.type === 'link' || token.type === 'image') parts.links.push(token.href);
  });
  return parts;
}

const parts = new Map(files.map((file) => [file, partsOf(file)]));
const anchorOf = (heading: string) =>
  heading
    .toLowerCase()
    .replace(/[^\p{L}\p{N}_ -]/gu, '')
    .replaceAll(' ', '-');

it('every relative link of a Markdown file leads to a file, and every anchor to a heading', () => {
  const broken = [...parts].flatMap(([file, { links }]) =>
    links
      .filter((href) => !/^[a-z]+:/.test(href))
      .filter((href) => {
        const [path = '', anchor] = href.split('#');
        const target = path === '' ? file : posix.join(posix.dirname(file), path);
        return !existsSync(target) || (anchor && !parts.get(target)?.headings.map(anchorOf).includes(anchor));
      })
      .map((href) => `${file}: ${href}`),
  );
  expect(broken).toEqual([]);
});
