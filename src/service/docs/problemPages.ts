/** HTML pages for people: what a problem's `type` means and what to do about it, and what is missing. */
import type { Problem } from '../../../generated/types/models/index.js';
import { contract, type ProblemType, responses } from '../../contract.js';
import { escaped, html, prose } from './layout.js';

/** Returns the page at `/problems`: a list of all problem types. */
export function problemList(): string {
  const entries = Object.entries(contract['x-problems'])
    .map(
      ([name, { title, status, meaning }]) =>
        `<div class="member">\n<dt><a href="problems/${name}">${prose(title)}</a><span>status ${status}</span></dt>\n<dd>${prose(meaning)}</dd>\n</div>`,
    )
    .join('\n');
  return html({
    title: 'Problems',
    root: '',
    content: `<h1>Problems</h1>
<p>Every response with a status of 400 or more is <code>application/problem+json</code> (RFC 9457). Its <code>type</code> is one of these.</p>
<dl class="members">
${entries}
</dl>`,
  });
}

/** Returns the page at `/problems/<name>`; `publicPath` is prepended to each type that it shows. */
export function problemPage(name: string, publicPath: string): string {
  const { title, status, meaning, advice } = contract['x-problems'][name] as ProblemType;
  const examples = exampleProblems(`/problems/${name}`)
    .map((problem) => ({ ...problem, type: `${publicPath}${problem.type}` }))
    .map((problem) => `<pre><code>${escaped(JSON.stringify(problem, null, 2))}</code></pre>`)
    .join('\n');
  return html({
    title: title,
    root: '../',
    content: `<h1>${prose(title)}</h1>
<p class="status">Status ${status} · type <code>${escaped(publicPath)}/problems/${name}</code></p>
<h2>What it means</h2>
<p>${prose(meaning)}</p>
<h2>What to do</h2>
<p>${prose(advice)}</p>
<h2>Example</h2>
${examples}
<p><a href="../problems">All problems</a> · <a href="../docs">The API's documentation</a></p>`,
  });
}

/** Returns the page for browsers at an address at which there is nothing. */
export function missingPage(path: string, detail: string): string {
  const root = '../'.repeat(path.split('/').length - 2);
  const content = `<h1>Not Found</h1>\n<p>${escaped(detail)}</p>\n<p><a href="${root}docs">The API's documentation</a></p>`;
  return html({ title: 'Not Found', root, content });
}

/** Returns the problems of this type among the examples of the contract's responses. */
function exampleProblems(type: string): Problem[] {
  return [...responses.values()]
    .map(({ content }) => content?.['application/problem+json'])
    .flatMap((media) => [media?.example, ...Object.values(media?.examples ?? {}).map((example) => example.value)])
    .filter((example): example is Problem => (example as { type?: string } | undefined)?.type === type);
}
