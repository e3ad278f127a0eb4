/** Shows a response: its status, the request as it was sent, its headers and its body. */
import { parts } from './json.js';

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

/**
 * Fills `section`.
 * @param sent the request's `url` and `headers`, the milliseconds it took, and `response` with its `text`, or the `error`
 * @param sendNext sends the request for the page at a cursor
 */
export function showResponse(section, { url, headers, ms, response, text, error }, sendNext) {
  const body = response && parsed(text);
  const word = WORDS[response?.status] ?? body?.title ?? response?.statusText;
  const status = element('strong', response ? `${response.status} ${word}` : 'No response');
  status.className = response?.ok ? 'good' : response?.status === 304 ? 'same' : 'bad';
  const outcome = element('p', status, ` in ${ms} ms`);
  outcome.setAttribute('role', 'status');
  const top = element('div', outcome);
  top.className = 'outcome';
  if (body?.nextCursor) {
    const next = element('button', 'Next page');
    next.type = 'button';
    next.addEventListener('click', () => sendNext(body.nextCursor));
    top.append(next);
  }
  section.replaceChildren(top);
  if (error) section.append(element('p', `The service did not respond: ${error.message}`));
  if (body?.detail) section.append(...problem(body));
  if (response?.status === 304)
    section.append(element('p', 'The page is the same as the one that you have, so its body was not sent again.'));
  section.append(element('h3', 'Request'), element('pre', curl(url, headers)));
  if (!response) return;
  const lines = HEADERS.filter((name) => response.headers.has(name)).map(
    (name) => `${name}: ${response.headers.get(name)}`,
  );
  section.append(element('h3', 'Headers'), element('pre', lines.join('\n')));
  if (!text) return;
  const shown = element('pre', ...(body ? highlighted(JSON.stringify(body, null, 2)) : [text]));
  shown.className = 'body';
  // It scrolls, so the keyboard has to reach it.
  Object.assign(shown, { tabIndex: 0, role: 'region', ariaLabel: 'Body' });
  section.append(element('h3', 'Body'), shown);
}

/** Returns what a problem says, with a link to its page. */
function problem({ detail, type, title, errors = [] }) {
  const link = element('a', `What “${title}” means, and what to do`);
  link.href = new URL(type.slice(type.lastIndexOf('problems/')), document.baseURI).href;
  const list = element(
    'ul',
    ...errors.map((fault) => element('li', element('code', fault.parameter || 'the query'), ` ${fault.detail}`)),
  );
  return [element('p', detail), ...(errors.length > 1 ? [list] : []), element('p', link)];
}

function curl(url, headers) {
  const options = Object.entries(headers).map(([name, value]) =>
    name === 'Authorization' ? '--header "Authorization: Bearer $KEY"' : `--header '${name}: ${value}'`,
  );
  return ['curl', ...options, `'${new URL(url).href.replaceAll("'", '%27')}'`].join(' ');
}

function highlighted(json) {
  return parts(json).map(({ text, isValue }) => {
    if (!isValue) return text;
    const value = element('span', text);
    value.className = 'text';
    return value;
  });
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
