/** HTML pages for people: what a problem's `type` means and what to do about it, and what is missing. */
import type { Problem } from '../../../generated/types/models/index.js';
import { contract, type ProblemType, responses } from '../../contract.js';
import { escaped, fill, html, prose, rootFrom } from './layout.js';

/** Returns the page at `/problems`: a list of all problem types. */
export function problemList(): string {
  const entries = Object.entries(contract['x-problems'])
    .map(
      ([name, { title, status, meaning }]) =>
        `<div class="member">\n<dt><a href="problems/${name}">${prose(title)}</a><span>status ${status}</span></dt>\n<dd>${prose(meaning)}</dd>\n</div>`,
    )
    .join('\n');
  return html({ title: 'Problems', path: 'problems', content: fill('problems.html', { entries }) });
}

/** Returns the page at `/problems/<name>`; `publicPath` is prepended to each type that it shows. */
export function problemPage(name: string, publicPath: string): string {
  const { title, status, meaning, advice } = contract['x-problems'][name] as ProblemType;
  const examples = exampleProblems(`/problems/${name}`)
    .map((problem) => ({ ...problem, type: `${publicPath}${problem.type}` }))
    .map((problem) => `<pre><code>${escaped(JSON.stringify(problem, null, 2))}</code></pre>`)
    .join('\n');
  const parts = { title: prose(title), status: `${status}`, type: `${escaped(publicPath)}/problems/${name}`, examples };
  const content = fill('problem.html', { ...parts, meaning: prose(meaning), advice: prose(advice) });
  return html({ title, path: `problems/${name}`, content });
}

/** Returns the page for browsers at an address at which there is nothing. */
export function missingPage(path: string, detail: string): string {
  const content = fill('missing.html', { detail: escaped(detail), root: rootFrom(path.slice(1)) });
  return html({ title: 'Not Found', path: path.slice(1), content });
}

function exampleProblems(type: string): Problem[] {
  return [...responses.values()]
    .map(({ content }) => content?.['application/problem+json'])
    .flatMap((media) => [media?.example, ...Object.values(media?.examples ?? {}).map((example) => example.value)])
    .filter((example): example is Problem => (example as { type?: string } | undefined)?.type === type);
}
