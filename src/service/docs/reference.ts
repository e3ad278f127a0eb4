/** The reference in `/docs`: the contract's parameters, members, responses and examples, each row with an address. */
import { listBrandedPhoneNumbers as operation } from '../../../generated/types/apis/index.js';
import type { BrandedPhoneNumber, BrandedPhoneNumberPage } from '../../../generated/types/models/index.js';
import {
  contract,
  type Parameter,
  parameters,
  requestHeaders,
  resolve,
  responses,
  type Schema,
} from '../../contract.js';
import { rangeWords, timesWords, valueWords } from '../../messages/parameterWords.js';
import { filterOf } from '../../page/filter.js';
import { encodeCursor } from '../request/cursor.js';
import { escaped, prose } from './layout.js';

interface Row {
  /** Its address in the page. */
  id: string;
  name: string;
  /** The type and bounds, in a few words each. */
  words?: string[];
  description: string;
  /** The values of a list, as HTML, and the name of the list. */
  values?: { title: string; items: string[] } | undefined;
  /** The members that lead to this one, such as `items[].`. */
  path?: string;
  depth?: number;
  /** More attributes of the row, as HTML. */
  attributes?: string;
}

const parametersAndHeaders = [...parameters.values(), ...requestHeaders.values()];

/** Returns the type and bounds of each parameter, in a few words each, by name. */
export function parameterWords(): Record<string, string[]> {
  return Object.fromEntries(parametersAndHeaders.map(parameterRow).map(({ name, words = [] }) => [name, words]));
}

/** Returns a row for each parameter. `data-type` is the type in TypeScript of one in the query, from which the page writes its samples. */
export function parameterRows(): string {
  return rows(parametersAndHeaders.map(parameterRow));
}

function parameterRow({ name, in: place, schema, description = '', examples = {} }: Parameter): Row {
  const item = resolve(schema.items ?? schema);
  const [first = ''] = Object.keys(examples);
  const example = queryOf({ [name]: first });
  const type = item.enum ? schema.items?.$ref?.split('/').pop() : item.format === 'uuid' ? 'uuid' : item.type;
  return {
    id: `parameter-${name}`,
    name,
    words: [...(place === 'header' ? ['request header'] : []), valueWords(item), timesWords(schema)],
    description:
      first && place === 'query' ? `${description} [\`${example}\`](docs#${operation.path}?${example})` : description,
    values: codes('Values', item.enum),
    ...(place === 'query' && { attributes: ` data-name="${name}" data-type="${type}${schema.items ? '[]' : ''}"` }),
  };
}

/** Returns a row for each member of a schema of the contract, followed by rows for the members of its objects. */
export function memberRows(schema: string, id: string): string {
  return rows(members(contract.components.schemas[schema], { id, path: '', depth: 0 }));
}

function members(object: Schema | undefined, parent: { id: string; path: string; depth: number }): Row[] {
  return Object.entries(object?.properties ?? {}).flatMap(([member, reference]) => {
    const schema = resolve(reference);
    const { type, items, description = '', 'x-known-values': known } = schema;
    const [id, name] = [`${parent.id}-${member}`, `${member}${items ? '[]' : ''}`];
    const words = [[type].flat().join(' or '), rangeWords(schema)].filter(Boolean).join(', ');
    const values = codes('Known values', known && resolve<Schema>(known).enum);
    const within = { id, path: `${parent.path}${name}.`, depth: parent.depth + 1 };
    return [
      { ...parent, id, name, words: [words], description, values },
      ...members(items ? resolve(items) : schema, within),
    ];
  });
}

/** Returns a row for each response, with links to the problems that have its status. */
export function responseRows(): string {
  const problems = Object.entries(contract['x-problems']);
  return rows(
    [...responses].map(([status, { description }]) => {
      const links = problems
        .filter(([, problem]) => (responses.has(`${problem.status}`) ? `${problem.status}` : 'default') === status)
        .map(([name, { title }]) => `<a href="problems/${name}">${escaped(title)}</a>`);
      return {
        id: `response-${status}`,
        name: status === 'default' ? 'Others' : status,
        description,
        values: links.length > 0 ? { title: 'Problems', items: links } : undefined,
        attributes: ` data-class="${status[0]}"`,
      };
    }),
  );
}

function codes(title: string, values: string[] | undefined): Row['values'] {
  return values && { title, items: values.map((value) => `<code>${escaped(value)}</code>`) };
}

function rows(list: Row[]): string {
  const entries = list.map(({ id, name, words = [], description, values, path = '', depth = 0, attributes = '' }) => {
    const prefix = path && `<span class="visually-hidden">${escaped(path)}</span>`;
    const spans = words.map((text) => `<span>${escaped(text)}</span>`).join('');
    const items = values?.items.map((item) => `<li>${item}</li>`).join('');
    const valueList = values ? `<ul class="values" aria-label="${values.title}">${items}</ul>` : '';
    return `<div class="member d${depth}" id="${id}"${attributes}>
<dt><a href="#${id}"><code>${prefix}${escaped(name)}</code></a>${spans}</dt>
<dd><p>${prose(description)}</p>${valueList}</dd>
</div>`;
  });
  return `<dl class="members">\n${entries.join('\n')}\n</dl>`;
}

/** For each parameter of a request, the name of one of its examples in the contract. */
type ExampleNames = Record<string, string>;

/** Returns the query of a request. */
export function queryOf(names: ExampleNames): string {
  const pairs = examplesOf(names).flatMap(([name, values]) =>
    [values].flat().map((value): [string, string] => [name, String(value)]),
  );
  return new URLSearchParams(pairs).toString();
}

function examplesOf(names: ExampleNames): [name: string, value: unknown][] {
  return Object.entries(names).map(([name, example]) => [name, parameters.get(name)?.examples?.[example]?.value]);
}

/** Returns the first example of a response, formatted. */
export function exampleOf(status: string): string {
  const [media] = Object.values(responses.get(status)?.content ?? {});
  const [first] = Object.values(media?.examples ?? {});
  return JSON.stringify(media?.example ?? first?.value, null, 2);
}

/** Returns the contract's example of a page with a cursor for a request; the example's own is for one without filters. */
export function examplePage(names: ExampleNames): string {
  const page: BrandedPhoneNumberPage = JSON.parse(exampleOf('200'));
  const [last] = page.items.slice(-1) as [BrandedPhoneNumber];
  const nextCursor = encodeCursor(last.phoneNumber, filterOf(Object.fromEntries(examplesOf(names))));
  return JSON.stringify({ ...page, nextCursor }, null, 2);
}
