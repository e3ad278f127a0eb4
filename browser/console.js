/** The console of /docs: sends requests, and shows their responses, and each request as a program. */
import { show } from './json.js';
import { askForKey, forgetKey, keyHeaders, needsKey } from './key.js';
import { curl, program } from './request.js';
import { select, selected } from './tabs.js';

/** The headers that are shown, if the response has them. */
const HEADERS = [
  'Content-Type',
  'ETag',
  'RateLimit-Policy',
  'RateLimit',
  'Retry-After',
  'WWW-Authenticate',
  'X-Request-Id',
];

const WORDS = { 200: 'OK', 304: 'Not Modified' };

const section = document.getElementById('response');
const outcome = section.querySelector('.outcome');
const stale = section.querySelector('.stale');
const block = section.querySelector('.block');
const form = document.querySelector('.ask');
const input = form.elements.query;
const requests = [...document.querySelectorAll('.request button')];
const panel = (name) => section.querySelector(`[data-panel="${name}"]`);

/**
 * Lets the reader send requests to the operation at `path` below `root`, and read them as a program.
 * @param programs the first program in each language, by language
 */
export function enableConsole(root, path, programs) {
  const parameters = parametersOfReference();
  /** The last page of each request, by its key and URL: its ETag and its text. */
  const pages = new Map();
  /** The number of requests sent so far. */
  let count = 0;
  /** The query whose response is shown or awaited: at first, that of the example. */
  let requested = input.defaultValue;

  for (const button of requests) {
    button.addEventListener('click', () => {
      input.value = button.dataset.query;
      return send();
    });
  }
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    return send();
  });
  input.addEventListener('input', showRequest);
  for (const button of [...requests, form.querySelector('button')]) button.disabled = false;
  addEventListener('hashchange', readAddress);
  readAddress();

  /** Returns the request's target: its path and query. */
  function targetOf(query) {
    return `${path}${query && '?'}${query}`;
  }

  /** Shows the request that the page's address has behind `#`, such as `/docs#/v1/brandedPhoneNumbers?size=5`. */
  function readAddress(event) {
    const [, hashPath, query] = /^#([^?]*)\??(.*)$/.exec(location.hash) ?? [];
    if (hashPath === path) {
      input.value = query;
      // A link or Back led here.
      if (event) form.scrollIntoView();
    }
    showRequest();
  }

  /** Shows the query as a command and as a program, which of the requests it is, and whether the response is another's. */
  function showRequest() {
    const query = input.value.trim();
    stale.textContent =
      query === requested
        ? ''
        : `The response to another request: ${requested || 'no filter'}. Press Send for this one.`;
    for (const button of requests) button.setAttribute('aria-pressed', button.dataset.query === query);
    show(panel('curl'), curl(root + targetOf(query), needsKey));
    for (const [language, text] of programs) {
      try {
        show(panel(language), program(language, { text, query: form.dataset.first }, query, parameters));
      } catch ({ message }) {
        panel(language).textContent = message;
      }
    }
  }

  /** Sends the query in the field, and shows the response. */
  async function send() {
    showRequest();
    if (!(await askForKey())) return;
    requested = input.value.trim();
    showRequest();
    section.ariaBusy = 'true';
    outcome.textContent = 'Waiting for the response …';
    const target = targetOf(requested);
    history.replaceState(null, '', `#${target}`);
    const url = root + target;
    const headers = keyHeaders();
    const page = `${headers.Authorization} ${url}`;
    if (pages.has(page)) headers['If-None-Match'] = pages.get(page).etag;
    const id = ++count;
    const start = performance.now();
    let received;
    try {
      const response = await fetch(url, { headers, cache: 'no-store' });
      received = { response, text: await response.text() };
    } catch (error) {
      received = { error, text: '' };
    }
    // Another request was sent meanwhile: its response is the one to show.
    if (id !== count) return;
    section.ariaBusy = 'false';
    const ms = Math.round(performance.now() - start);
    const { response, text } = received;
    if (response?.status === 401) forgetKey();
    if (response?.ok) pages.set(page, { etag: response.headers.get('ETag'), text });
    const isHeld = response?.status === 304;
    showOutcome({ ...received, text: isHeld ? pages.get(page).text : text, url, headers, ms, isHeld });
  }

  function showOutcome({ url, headers, ms, response, text, error, isHeld }) {
    const body = parsed(text);
    const word = WORDS[response?.status] ?? body?.title ?? response?.statusText;
    const status = element('strong', response ? `${response.status} ${word}` : 'No response');
    status.className = response?.ok ? 'good' : isHeld ? 'same' : 'bad';
    const line = element('p', status, ` ${outcomeWords({ ms, response, body, error, isHeld })}`);
    line.setAttribute('role', 'status');
    outcome.replaceChildren(line);
    if (typeof body?.nextCursor === 'string') {
      const next = Object.assign(element('button', 'Next page'), { type: 'button', className: 'small' });
      next.addEventListener('click', () => {
        const query = new URLSearchParams(input.value.trim());
        query.set('nextCursor', body.nextCursor);
        input.value = String(query);
        return send();
      });
      outcome.append(next);
    }
    outcome.append(...problem(body));
    show(panel('Body'), body === undefined ? text : JSON.stringify(body, null, 2));
    panel('Headers').textContent = headerLines({ url, headers, response });
    if (selected(block) !== 'Headers') select(block, 'Body');
    panel('Body').scrollTop = 0;
    section.scrollIntoView({ block: 'nearest' });
  }
}

/** Returns the type and the values of each parameter, by name, from the rows of the reference. */
function parametersOfReference() {
  const rows = document.querySelectorAll('#parameters [data-type]');
  return new Map(
    Array.from(rows, (row) => {
      const values = Array.from(row.querySelectorAll('.values code'), (code) => code.textContent);
      return [row.dataset.name, { type: row.dataset.type, ...(values.length > 0 ? { values } : {}) }];
    }),
  );
}

/** Returns the outcome in a sentence, such as "77 ms · 25 numbers · 9 more requests this second". */
function outcomeWords({ ms, response, body, error, isHeld }) {
  if (error) return `The service did not respond: ${error.message}`;
  const left = /;r=(\d+)/.exec(response.headers.get('RateLimit'))?.[1];
  return [
    `${ms} ms`,
    isHeld && 'unchanged since you last sent it',
    Array.isArray(body?.items) && counted(body.items.length, 'number'),
    left && `${counted(Number(left), 'more request')} this second`,
    response.headers.has('Retry-After') && `retry in ${response.headers.get('Retry-After')} s`,
  ]
    .filter(Boolean)
    .join(' · ');
}

const counted = (count, noun) => `${count} ${noun}${count === 1 ? '' : 's'}`;

/** Returns the request's line and headers, without the key, and those of the response. */
function headerLines({ url, headers, response }) {
  const { pathname, search } = new URL(url);
  const sent = Object.entries({ ...headers, ...(headers.Authorization ? { Authorization: 'Bearer $KEY' } : {}) });
  const got = HEADERS.filter((name) => response?.headers.has(name)).map((name) => [name, response.headers.get(name)]);
  const lines = (pairs) => pairs.map(([name, value]) => `${name}: ${value}`);
  const status = response ? ['', String(response.status), ...lines(got)] : [];
  return [`GET ${pathname}${search}`, ...lines(sent), ...status].join('\n');
}

/** Returns what a problem says, with a link to its page. A gateway's error may have any members. */
function problem(body) {
  const { detail, type, title, errors } = body ?? {};
  if (typeof detail !== 'string') return [];
  const faults = Array.isArray(errors) ? errors.filter((fault) => typeof fault?.detail === 'string') : [];
  const list = element(
    'ul',
    ...faults.map((fault) => element('li', element('code', fault.parameter || 'the query'), ` ${fault.detail}`)),
  );
  const shown = [element('p', detail), ...(faults.length > 1 ? [list] : [])];
  const [page] = /problems\/[\w-]+$/.exec(type) ?? [];
  if (!page) return shown;
  const link = element('a', `What “${title}” means, and what to do`);
  link.href = new URL(page, document.baseURI).href;
  return [...shown, element('p', link)];
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function element(name, ...children) {
  const created = document.createElement(name);
  created.append(...children);
  return created;
}
