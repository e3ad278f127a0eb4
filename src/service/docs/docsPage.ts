/** The page at `/docs`, as the server sends it: complete but for Swagger UI, which its script loads below. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { listBrandedPhoneNumbers as operation } from '../../../generated/types/apis/index.js';
import type { Config } from '../../config/config.js';
import { contract, parameters } from '../../contract.js';
import { packageFolder } from '../../packageFolder.js';
import { escaped, html, markdown, prose } from './layout.js';
import { type Client, clients, offersClient, type Packages } from './packages.js';
import { exampleOf, memberRows, parameterRows, responseRows } from './reference.js';

/** The settings that the page shows. */
export type Shown = Pick<Config, 'AUTH' | 'RATE_LIMIT_PER_SECOND'> &
  Partial<Pick<Config, 'PUBLIC_URL' | 'CONTACT' | 'TERMS_URL'>>;

/** The address of the service in the clients' READMEs and in the Postman collection. */
export const EXAMPLE_ADDRESS = 'http://localhost:3000';

const LANGUAGES: Record<Client, string> = { typescript: 'TypeScript', python: 'Python', java: 'Java', go: 'Go' };
const LANGUAGE_TABS = ['curl', ...Object.values(LANGUAGES)];

/** The filters of the first programs, which the page replaces by those of other requests. */
const FIRST_QUERY = 'carrier=AT%26T&status=approved';
/** A request with a typing error, since what a 400 says is worth seeing. */
const MISSPELLED = 'carier=AT%26T';

/** Returns the page. Its script replaces EXAMPLE_ADDRESS by the address at which the page was loaded. */
export function docsPage(config: Shown, packages: Packages): string {
  const { info, paths } = contract;
  const needsKey = config.AUTH === 'api-key';
  const [purpose = '', ...paragraphs] = info.description.trim().split('\n\n');
  /** Returns the paragraph of the contract's description that begins with this title. */
  const about = (title: string) => {
    const text = paragraphs.find((paragraph) => paragraph.startsWith(`**${title}.**`)) ?? '';
    return `<h3>${title}</h3>\n${markdown(text.slice(title.length + '**.**'.length))}`;
  };
  const sections: [id: string, title: string, content: string][] = [
    ['programs', 'First program', firstPrograms(config, packages)],
    [
      'pages',
      'Pages and filters',
      `<p>${prose(purpose)}</p>\n${['Pages', 'Filters', 'Encoding'].map(about).join('\n')}`,
    ],
    ['parameters', 'Parameters', parameterRows()],
    ['page', 'A page', besideExample(memberRows('BrandedPhoneNumberPage', 'page'), '200')],
    ['problem', 'A problem', besideExample(memberRows('Problem', 'problem'), '400')],
    ['responses', 'Responses', responseRows()],
    ['explore', 'Every parameter, in Swagger UI', SWAGGER_UI],
    ['more', 'Good to know', ['Transport', 'Growth'].map(about).join('\n')],
  ];
  const content = `<div class="docs" data-address="${EXAMPLE_ADDRESS}" data-path="${operation.path}">
<section id="start">
<h1>${escaped(paths[operation.path]?.get?.summary ?? info.title)}</h1>
<p class="lead">${prose(info.summary)}</p>
<p>${accessWords(config)}</p>
<h2 class="minor">Send a request</h2>
${requestConsole(needsKey)}
</section>
${sections.map(([id, title, content]) => `<section id="${id}">\n<h2>${title}</h2>\n${content}\n</section>`).join('\n')}
</div>
${needsKey ? KEY_DIALOG : ''}`;
  return html({ root: '', content, contents: contentsOf([['start', 'Send a request'], ...sections]), head: SCRIPTS });
}

/** Returns links to the sections, beside the text; on a phone, behind a button that says where the reader is. */
function contentsOf(sections: [id: string, title: string, ...unknown[]][]): string {
  const links = sections.map(([id, title]) => `<li><a href="#${id}">${title}</a></li>`);
  return `<nav class="contents" aria-label="On this page">
<button type="button" aria-expanded="false" aria-controls="contents">On this page: <b>${sections[0]?.[1]}</b></button>
<ul id="contents">
${links.join('\n')}
</ul>
</nav>`;
}

const SWAGGER_UI = `<p>Without JavaScript, or for other tools, the OpenAPI document has the same content, as
<a href="openapi.yaml">YAML</a> and <a href="openapi.json">JSON</a>.</p>
<div id="swagger-ui"></div>`;

function besideExample(members: string, status: string): string {
  return `<div class="beside">
${members}
<div class="block"><div class="top">Example: ${status}</div>
<pre tabindex="0" role="region" aria-label="Example: ${status}">${escaped(exampleOf(status))}</pre>
</div>
</div>`;
}

/** The page's script; the files that it imports are named, so that the browser loads them at the same time. */
const SCRIPTS = `<script src="docs/page.js" type="module"></script>
${['console', 'json', 'key', 'request', 'tabs'].map((name) => `<link rel="modulepreload" href="docs/${name}.js">`).join('\n')}`;

/** Returns how to get access to this instance, and the limit that it keeps. */
function accessWords({ AUTH, RATE_LIMIT_PER_SECOND: limit, CONTACT, TERMS_URL }: Shown): string {
  return [
    AUTH === 'api-key'
      ? `This service requires an API key. Ask ${operator(CONTACT)} for one, and send it as <code>Authorization: Bearer &lt;key&gt;</code>.`
      : `This service requires no API key.${CONTACT ? ` Questions go to ${operator(CONTACT)}.` : ''}`,
    `Each ${AUTH === 'api-key' ? 'key' : 'address'} may send ${limitWords(limit)}; <code>Retry-After</code> of a 429 says when to retry.`,
    TERMS_URL ? `<a href="${escaped(TERMS_URL)}">Terms of service</a>` : '',
  ].join(' ');
}

/** Returns "the operator", with a link if CONTACT is set. */
function operator(contact: string | undefined): string {
  if (!contact) return 'the operator';
  return `<a href="${escaped(contact.includes('://') ? contact : `mailto:${contact}`)}">the operator</a>`;
}

const limitWords = (limit: number) =>
  limit === 0 ? 'any number of requests' : `at most ${requests(limit)} in any one second`;

const requests = (count: number) => `${count} ${count === 1 ? 'request' : 'requests'}`;

/** Returns a text of the contract, which has the default limit, with the limit that this instance keeps. */
export function withLimit(text: string, limit: number): string {
  const described = text.replaceAll(`may send ${limitWords(10)}`, `may send ${limitWords(limit)}`);
  if (limit === 0) return described;
  return described
    .replaceAll('At most 10 requests', `At most ${requests(limit)}`)
    .replaceAll('q=10;', `q=${limit};`)
    .replaceAll('r=9;', `r=${limit - 1};`);
}

const curl = (query: string, needsKey: boolean) =>
  `curl ${needsKey ? '--header "Authorization: Bearer $KEY" ' : ''}'${EXAMPLE_ADDRESS}${operation.path}${query && '?'}${query}'`;

/** Returns tabs, the first of them pressed. They are disabled until the script runs. */
function tabs(names: string[], label: string): string {
  const buttons = names.map(
    (name, index) =>
      `<button type="button" class="tab" data-tab="${name}" aria-pressed="${index === 0}" disabled>${name}</button>`,
  );
  return `<div class="top" role="group" aria-label="${label}">\n${buttons.join('\n')}\n</div>`;
}

/** Returns the first program in each language. */
function firstPrograms(config: Shown, packages: Packages): string {
  const panels = clients.map(
    (client) =>
      `<div class="steps" data-panel="${LANGUAGES[client]}" hidden>\n${firstProgram(client, config, packages)}\n</div>`,
  );
  return `<p>Every approved number that has an entry at AT&amp;T, from all pages, within the rate limit; with curl, the first page.</p>
<div class="block">
${tabs(LANGUAGE_TABS, 'Language')}
<pre data-panel="curl">${escaped(curl(FIRST_QUERY, config.AUTH === 'api-key'))}</pre>
${panels.join('\n')}
</div>`;
}

/**
 * Returns how to install a client and its first program, from its README: all between the first paragraph and the list below;
 * if the service requires a key, also the item of that list that says how to set it.
 */
function firstProgram(client: Client, { AUTH, CONTACT }: Shown, packages: Packages): string {
  const readme = readFileSync(join(packageFolder, 'clients', client, 'README.md'), 'utf8');
  const [, install = '', program = '', ...items] = readme.split(/^(?=Install|The service|This program|- |## )/m);
  const key = items.find((item) => item.startsWith('- ') && item.includes('API key'))?.slice(2);
  return [
    offersClient(packages, client) ? markdown(install) : `<p>Ask ${operator(CONTACT)} for the package.</p>`,
    markdown(AUTH === 'api-key' && key ? `${program}\n${key}` : program),
    `<p><a href="clients/${client}/README.md">More about this client</a>, <a href="packages/">all packages</a></p>`,
  ].join('\n');
}

/** Returns the console: the requests of `x-requests`, the query, and room for a response and for the request as a program. */
function requestConsole(needsKey: boolean): string {
  const requests = [
    ...(contract.paths[operation.path]?.get?.['x-requests'] ?? []).map(({ summary, examples }) => ({
      summary,
      query: queryOf(examples),
    })),
    { summary: 'A misspelled parameter', query: MISSPELLED },
  ];
  const [, , shown = { query: '' }] = requests;
  const questions = requests.map(
    ({ summary, query }, index) => `<li class="request">
<button type="button" data-query="${escaped(query)}" aria-describedby="query-${index}" aria-pressed="${query === shown.query}" disabled>${escaped(summary)}</button>
<span id="query-${index}">${escaped(query || 'no filter')}</span>
</li>`,
  );
  const panel = (name: string, text = '') =>
    `<pre data-panel="${name}" tabindex="0" role="region" aria-label="${name}"${name === 'Body' ? '' : ' hidden'}>${escaped(text)}</pre>`;
  return `<div class="console requests">
<ul class="questions" aria-label="Requests">
${questions.join('\n')}
</ul>
<div class="asked">
<form class="ask" data-first="${escaped(FIRST_QUERY)}">
<label class="url"><span class="visually-hidden">Query of </span><span><b>GET</b> ${operation.path}?</span><input id="query" name="query" value="${escaped(shown.query)}" autocomplete="off" autocapitalize="off" spellcheck="false"></label>
<button class="primary" disabled>Send</button>
</form>
<section id="response" aria-label="Response">
<div class="outcome"><p role="status">An example. Press Send for the response of this service.</p></div>
<div class="block">
${tabs(['Body', 'Headers', ...LANGUAGE_TABS], 'Response and request')}
${panel('Body', exampleOf('200'))}
${panel('Headers')}
${panel('curl', curl(shown.query, needsKey))}
${Object.values(LANGUAGES)
  .map((name) => panel(name))
  .join('\n')}
</div>
</section>
</div>
</div>`;
}

/** Returns the query that has these examples, by parameter. */
function queryOf(examples: Record<string, string>): string {
  const pairs = Object.entries(examples).flatMap(([name, example]) =>
    [parameters.get(name)?.examples?.[example]?.value].flat().map((value): [string, string] => [name, String(value)]),
  );
  return new URLSearchParams(pairs).toString();
}

const KEY_DIALOG = `<dialog aria-labelledby="key-title">
<form>
<h2 id="key-title">API key</h2>
<label for="key">Your API key</label>
<input id="key" name="key" type="password" autocomplete="off" required>
<p class="quiet">It is kept until you close or reload this page.</p>
<div class="buttons"><button>Send the request</button> <button type="button" data-cancel>Cancel</button></div>
</form>
</dialog>`;
