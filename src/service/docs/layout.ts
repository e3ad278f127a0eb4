/** What all HTML pages have in common: their header, and Markdown as HTML. */
import { readdirSync, readFileSync } from 'node:fs';
import { join, posix } from 'node:path';
import { Marked, type Tokens } from 'marked';
import { contract } from '../../contract.js';
import { packageFolder } from '../../packageFolder.js';

/**
 * The address of the service in all samples. `docs.ts` replaces it by that of a request, and `browser/samples.js` by that of the
 * page, which may be another one behind a proxy.
 */
export const EXAMPLE_ADDRESS = 'http://localhost:3000';

/**
 * Returns a page as HTML, with a list of contents beside its content. The page of the API itself has no title.
 * @param path the page's path, relative to the root of the service; the header marks its link, or that of its section
 */
export function html(page: { title?: string; path: string; content: string; contents?: string }): string {
  const { title, path, content, contents = '' } = page;
  const { info } = contract;
  const service = escaped(info.title);
  const root = rootFrom(path);
  const parts = {
    title: title ? `${escaped(title)} · ${service}` : service,
    description: escaped(info.summary),
    version: escaped(info.version),
    ...{ service, root, content, contents, address: EXAMPLE_ADDRESS },
  };
  const section = path
    .replace(/^clients\/.*/, 'clients/README.md')
    .replace(/^problems\/.*/, 'problems')
    .replace('docs/deprecation.md', 'docs/api-changelog.md');
  const current = section === path ? 'page' : 'true';
  // The first link with this address is in the header.
  return fill('page.html', parts).replace(`href="${root}${section}"`, `$& aria-current="${current}"`);
}

/** Returns the relative path from a page to the root of the service, such as `../`. */
export const rootFrom = (path: string) => '../'.repeat(path.split('/').length - 1);

/** Returns a text file of the package. For the start alone: when a page is requested, no file descriptor may be free. */
export const readText = (path: string) => readFileSync(join(packageFolder, path), 'utf8');

/** Returns text files of the package by their paths. */
export const readTexts = (...paths: string[]) => new Map(paths.map((path) => [path, readText(path)]));

const files = readdirSync(join(packageFolder, 'browser'));
const templates = new Map(files.map((file) => [file, readText(`browser/${file}`).trim()]));

/** Returns a file of `browser/`, in which `{name}` is replaced by the HTML of that name. */
export function fill(file: string, parts: Record<string, string>): string {
  const template = templates.get(file) as string;
  return template.replace(/\{(\w+)\}/g, (_placeholder, name) => parts[name] ?? '');
}

export function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}

const marked = new Marked();

/** Converts Markdown, such as a description of the contract, to HTML with paragraphs. */
export function markdown(text: string): string {
  return marked.parse(text, { async: false });
}

/** Converts a text of one paragraph to HTML without a paragraph. */
export function prose(text: string): string {
  return marked.parseInline(text.trim(), { async: false });
}

/**
 * Returns a Markdown file of the package as a page at the same path, relative to the root.
 * @param served the paths of the files that have an address: a link to any other file would lead nowhere, so its text stays
 */
export function markdownPage(path: string, text: string, served: ReadonlyMap<string, string>): string {
  const root = rootFrom(path);
  const page = new Marked({
    renderer: {
      heading({ tokens, depth, text }: Tokens.Heading) {
        const id = text.toLowerCase().replace(/[^a-z0-9]+/g, '-');
        return `<h${depth} id="${id}">${this.parser.parseInline(tokens)}</h${depth}>\n`;
      },
      link({ href, tokens }: Tokens.Link) {
        const label = this.parser.parseInline(tokens);
        if (/^(https?:|mailto:|#)/.test(href)) return `<a href="${escaped(href)}">${label}</a>`;
        const [file = '', fragment] = posix.join(posix.dirname(path), href).split('#');
        const address = served.get(file);
        if (address === undefined) return label;
        return `<a href="${escaped(posix.join(root, address))}${fragment ? `#${fragment}` : ''}">${label}</a>`;
      },
    },
  });
  const [, title = ''] = /^# (.*)$/m.exec(text) ?? [];
  return html({ title, path, content: page.parse(text, { async: false }) });
}
