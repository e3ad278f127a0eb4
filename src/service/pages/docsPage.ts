/** The page at `/docs`, as the server sends it: complete but for Swagger UI, which its script loads below. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { listBrandedPhoneNumbers as operation } from '../../../generated/types/apis/index.js';
import type { Config } from '../../config/config.js';
import { contract, type Parameter, parameters, resolve, responses, type Schema } from '../../contract.js';
import { timesWords, valueWords } from '../../messages/parameterWords.js';
import { packageFolder } from '../../packageFolder.js';
import { type Client, clients, offersClient, type Packages } from '../packages.js';
import { escaped, html, markdown, prose } from './layout.js';

/** The settings that the page shows. */
export type Shown = Pick<Config, 'AUTH' | 'RATE_LIMIT_PER_SECOND'> &
  Partial<Pick<Config, 'PUBLIC_URL' | 'CONTACT' | 'TERMS_URL'>>;

/** The address of the service in the clients' READMEs and in the Postman collection. */
export const EXAMPLE_ADDRESS = 'http://localhost:3000';

const LANGUAGES: Record<Client, string> = { typescript: 'TypeScript', python: 'Python', java: 'Java', go: 'Go' };

/** Returns the page. Its script replaces EXAMPLE_ADDRESS by the address at which the page was loaded. */
export function docsPage(config: Shown, packages: Packages): string {
  const { info } = contract;
  const needsKey = config.AUTH === 'api-key';
  const [purpose = '', ...paragraphs] = info.description.trim().split('\n\n');
  /** Returns the paragraph of the contract's description that begins with this title. */
  const about = (title: string) => {
    const text = paragraphs.find((paragraph) => paragraph.startsWith(`**${title}.**`)) ?? '';
    return `<h3>${title}</h3>\n${markdown(text.slice(title.length + '**.**'.length))}`;
  };
  const content = `<div class="docs" data-address="${EXAMPLE_ADDRESS}" data-path="${operation.path}">
<section class="prose">
<h1>${escaped(info.title)} <small>${escaped(info.version)}</small></h1>
<p>${prose(info.summary)}</p>
</section>
<section class="start prose" aria-labelledby="start">
<h2 id="start">Get started</h2>
<p>${accessWords(config)}</p>
${firstPrograms(config, packages)}
</section>
<section aria-labelledby="requests">
<h2 id="requests">Send a request</h2>
${requestList(needsKey)}
</section>
<section class="prose" aria-labelledby="reference">
<h2 id="reference">Reference</h2>
<p>${prose(purpose)}</p>
${['Pages', 'Filters', 'Encoding'].map(about).join('\n')}
<h3>Parameters</h3>
${definitions([...parameters.values()].map(parameterDefinition))}
<h3>A page</h3>
${definitions(memberDefinitions(contract.components.schemas.BrandedPhoneNumberPage))}
<h3>A problem</h3>
${definitions(memberDefinitions(contract.components.schemas.Problem))}
<h3>Responses</h3>
${definitions([...responses].map(([status, { description }]) => ({ name: status === 'default' ? 'Others' : status, description })))}
</section>
<section aria-labelledby="explore">
<h2 id="explore">Try every parameter</h2>
<div id="swagger-ui"><p class="quiet">This part needs JavaScript. The <a href="openapi.yaml">OpenAPI document</a> has the same content.</p></div>
</section>
<section class="prose" aria-labelledby="more">
<h2 id="more">Good to know</h2>
${['Transport', 'Growth'].map(about).join('\n')}
</section>
</div>
${needsKey ? KEY_DIALOG : ''}`;
  return html({ root: '', content, head: SCRIPTS });
}

/** The page's script; the files that it imports are named, so that the browser loads them at the same time. */
const SCRIPTS = `<script src="docs/page.js" type="module"></script>
${['key', 'response', 'json'].map((name) => `<link rel="modulepreload" href="docs/${name}.js">`).join('\n')}`;

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

const code = (text: string) => `<pre><code>${escaped(text)}</code></pre>`;

/** Returns a button for each language, and the first program in it. They are disabled until the script runs. */
function firstPrograms(config: Shown, packages: Packages): string {
  const samples = [
    { name: 'curl', sample: code(curl('size=5', config.AUTH === 'api-key')) },
    ...clients.map((client) => ({ name: LANGUAGES[client], sample: firstProgram(client, config, packages) })),
  ];
  const buttons = samples.map(
    ({ name }, index) =>
      `<button type="button" data-language="${name}" aria-pressed="${index === 0}" disabled>${name}</button>`,
  );
  const panels = samples.map(
    ({ name, sample }, index) => `<div data-sample="${name}"${index === 0 ? '' : ' hidden'}>\n${sample}\n</div>`,
  );
  return `<div class="buttons" role="group" aria-label="Language">\n${buttons.join('\n')}\n</div>\n${panels.join('\n')}`;
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
    `<p><a href="clients/${client}/README.md">More about this client</a></p>`,
  ].join('\n');
}

/** Returns the requests of `x-requests` with their curl lines, one with the reader's own query, and room for a response. */
function requestList(needsKey: boolean): string {
  const requests = contract.paths[operation.path]?.get?.['x-requests'] ?? [];
  const rows = requests.map(({ summary, examples }) => {
    const query = new URLSearchParams(
      Object.entries(examples).flatMap(([name, example]) =>
        [parameters.get(name)?.examples?.[example]?.value]
          .flat()
          .map((value): [string, string] => [name, String(value)]),
      ),
    ).toString();
    return `<div class="request">
<button type="button" data-query="${escaped(query)}" disabled>${escaped(summary)}</button>
${code(curl(query, needsKey))}
</div>`;
  });
  return `<div class="requests">
${rows.join('\n')}
<form class="request">
<label for="query">Your own query</label>
<input id="query" name="query" value="size=2&amp;carier=AT%26T" autocomplete="off" autocapitalize="off" spellcheck="false">
<button disabled>Send</button>
</form>
<section id="response" class="panel" aria-label="Response">
<p class="quiet">Press a button: the response appears here.</p>
</section>
</div>`;
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

interface Definition {
  name: string;
  /** Its type and bounds in a few words. */
  words?: string;
  description: string;
}

function definitions(list: Definition[]): string {
  const entries = list.map(
    ({ name, words, description }) =>
      `<dt><code>${escaped(name)}</code>${words ? ` <span class="quiet">${escaped(words)}</span>` : ''}</dt>\n<dd>${prose(description)}</dd>`,
  );
  return `<dl class="members">\n${entries.join('\n')}\n</dl>`;
}

function parameterDefinition({ name, schema, description = '' }: Parameter): Definition {
  const item = resolve(schema.items ?? schema);
  return {
    name,
    words: `${item.enum ? item.title : valueWords(item)}; ${timesWords(schema)}`,
    description: description + listed('Values', item.enum),
  };
}

/** Returns the members of an object, and those of the objects in it, such as `items[].id`. */
function memberDefinitions(schema: Schema | undefined, prefix = ''): Definition[] {
  return Object.entries(schema?.properties ?? {}).flatMap(([member, reference]) => {
    const { type, items, description = '', 'x-known-values': known, ...rest } = resolve(reference);
    const name = `${prefix}${member}${items ? '[]' : ''}`;
    return [
      {
        name,
        words: [type].flat().join(' or '),
        description: description + listed('Known values', known && resolve<Schema>(known).enum),
      },
      ...memberDefinitions(items ? resolve(items) : rest, `${name}.`),
    ];
  });
}

function listed(title: string, values: string[] | undefined): string {
  return values ? ` ${title}: ${values.map((value) => `\`${value}\``).join(', ')}.` : '';
}
