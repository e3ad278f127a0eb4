/** The pages at `/docs` and `/swagger`. The server sends `/docs` complete; scripts add what can be pressed. */
import { listBrandedPhoneNumbers as operation } from '../../../generated/types/apis/index.js';
import type { Config } from '../../config/config.js';
import { contract, listOperation } from '../../contract.js';
import { authenticationWords, limitWords } from './deployment.js';
import { EXAMPLE_ADDRESS, escaped, fill, html, markdown, prose } from './layout.js';
import { clients, LANGUAGES, type Packages, readmeParts } from './packages.js';
import {
  exampleOf,
  examplePage,
  memberRows,
  parameterRows,
  parameterWords,
  queryOf,
  responseRows,
} from './reference.js';

const LANGUAGE_TABS = ['curl', ...Object.values(LANGUAGES)];
/** The filters of the first programs, which the page replaces by those of other requests. */
const FIRST_QUERY = 'carrier=AT%26T&status=approved';
/** A request with a typing error, since what a 400 says is worth seeing. */
const MISSPELLED = { summary: 'A misspelled parameter', examples: {}, query: 'carier=AT%26T' };

/** Returns the page at `/docs`. */
export function docsPage(config: Config, packages: Packages): string {
  const [purpose = '', ...paragraphs] = contract.info.description.trim().split('\n\n');
  /** The other paragraphs, which begin with a title such as `**Pages.**`, as `aboutPages` and so on. */
  const abouts = paragraphs.map((paragraph) => {
    const [, title, text = ''] = paragraph.split(/^\*\*(\w+)\.\*\*/);
    return [`about${title}`, markdown(text)];
  });
  const content = fill('docs.html', {
    path: operation.path,
    title: escaped(listOperation.summary),
    purpose: prose(purpose),
    address: EXAMPLE_ADDRESS,
    ...consoleParts(config),
    programTabs: tabs(LANGUAGE_TABS, 'Language'),
    programs: firstPrograms(config, packages),
    setKey: config.AUTH === 'api-key' ? "<pre>export KEY='your API key'</pre>" : '',
    authentication: authenticationWords(config),
    rateLimit: limitWords(config),
    parameters: parameterRows(),
    page: memberRows('BrandedPhoneNumberPage', 'page'),
    pageExample: exampleBlock('200'),
    problem: memberRows('Problem', 'problem'),
    problemExample: exampleBlock('400'),
    responses: responseRows(),
    ...Object.fromEntries(abouts),
  });
  return html({ path: 'docs', content, contents: contentsOf(content) });
}

/** Returns the page at `/swagger`. */
export function swaggerPage({ AUTH }: Config): string {
  const content = fill('swagger.html', { key: keyPart(AUTH), words: escaped(JSON.stringify(parameterWords())) });
  return html({ title: 'Swagger UI', path: 'swagger', content });
}

/** Returns links to the sections of a page, beside the text; on a phone, behind a button that says where the reader is. */
function contentsOf(content: string): string {
  const sections = [...content.matchAll(/<section id="([\w-]+)">.*?<h2[^>]*>([^<]*)<\/h2>/gs)];
  const links = sections.map(([, id, title]) => `<li><a href="#${id}">${title}</a></li>`);
  return fill('contents.html', { first: sections[0]?.[2] ?? '', links: links.join('\n') });
}

function exampleBlock(status: string): string {
  return `<div class="block"><div class="top">Example: ${status}</div>
<pre tabindex="0" role="region" aria-label="Example: ${status}">${escaped(exampleOf(status))}</pre></div>`;
}

const keyPart = (AUTH: Config['AUTH']) => (AUTH === 'api-key' ? fill('key.html', {}) : '');

const curl = (query: string, AUTH: Config['AUTH']) =>
  `curl ${AUTH === 'api-key' ? '--header "Authorization: Bearer $KEY" ' : ''}'${EXAMPLE_ADDRESS}${operation.path}${query && '?'}${query}'`;

/** Returns tabs, the first of them pressed. They are disabled until the script runs. */
function tabs(names: string[], label: string): string {
  const buttons = names.map(
    (name, index) =>
      `<button type="button" class="tab" data-tab="${name}" aria-pressed="${index === 0}" disabled>${name}</button>`,
  );
  return `<div class="top">\n<div class="tabs" role="group" aria-label="${label}">\n${buttons.join('\n')}\n</div>\n</div>`;
}

/** Returns, for each language, how to install the client and its first program. */
function firstPrograms(config: Config, packages: Packages): string {
  const panels = clients.map((client) => {
    const path = `clients/${client}/README.md`;
    const [, install = '', program = ''] = readmeParts(path, config, packages);
    return `<div class="steps" data-panel="${LANGUAGES[client]}" hidden>
${markdown(install + program)}
<p><a href="${path}">More about this client</a>, <a href="packages/">all packages</a></p>
</div>`;
  });
  return [`<pre data-panel="curl">${escaped(curl(FIRST_QUERY, config.AUTH))}</pre>`, ...panels].join('\n');
}

/** Returns the parts of the console: the requests of `x-requests`, the query, and room for the response and the request as a program. */
function consoleParts({ AUTH }: Config): Record<string, string> {
  const offered = listOperation['x-requests'];
  const requests = [...offered.map((request) => ({ ...request, query: queryOf(request.examples) })), MISSPELLED];
  // The third, since the contract's example of a page, which is shown until a request is sent, fits its filter.
  const [, , shown = MISSPELLED] = requests;
  const questions = requests.map(
    ({ summary, query }, index) => `<li class="request">
<button type="button" data-query="${escaped(query)}" aria-describedby="query-${index}" aria-pressed="${query === shown.query}" disabled>${escaped(summary)}</button>
<span id="query-${index}">${escaped(query || 'no filter')}</span>
</li>`,
  );
  const texts: Record<string, string> = { Body: examplePage(shown.examples), curl: curl(shown.query, AUTH) };
  const panels = (names: string[]) =>
    names.map(
      (name, index) =>
        `<pre data-panel="${name}" tabindex="0" role="region" aria-label="${name}"${index ? ' hidden' : ''}>${escaped(texts[name] ?? '')}</pre>`,
    );
  const code = [tabs(LANGUAGE_TABS, 'Language'), ...panels(LANGUAGE_TABS)].join('\n');
  return {
    questions: questions.join('\n'),
    firstQuery: escaped(FIRST_QUERY),
    query: escaped(shown.query),
    key: keyPart(AUTH),
    responseTabs: tabs(['Body', 'Headers', 'Code'], 'Response and request'),
    panels: [...panels(['Body', 'Headers']), `<div class="block" data-panel="Code" hidden>${code}</div>`].join('\n'),
  };
}
