/** The script of /docs: sends requests, shows their responses, and then loads Swagger UI below. */
import { askForKey, forgetKey, keyHeaders } from './key.js';
import { showResponse } from './response.js';

const docs = document.querySelector('.docs');
/** The address of the service, without a slash: the page may be served behind a path prefix. */
const root = new URL('.', document.baseURI).href.replace(/\/$/, '');

/** The ETag of the last response to each request, by its key and address. */
const etags = new Map();
/** The number of requests sent so far. */
let count = 0;

showAddress();
enableLanguages();
enableRequests();
for (const pre of document.querySelectorAll('main pre')) addCopy(pre);
if (document.readyState !== 'complete') await new Promise((resolve) => addEventListener('load', resolve));
await import('./swagger.js');

/** Replaces the address in all samples by that of this page. */
function showAddress() {
  const texts = document.createTreeWalker(docs, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(docs.dataset.address, root);
}

function enableLanguages() {
  const buttons = docs.querySelectorAll('[data-language]');
  for (const button of buttons) {
    button.disabled = false;
    button.addEventListener('click', () => {
      for (const other of buttons) other.setAttribute('aria-pressed', other === button);
      for (const sample of docs.querySelectorAll('[data-sample]'))
        sample.hidden = sample.dataset.sample !== button.dataset.language;
    });
  }
}

function enableRequests() {
  for (const button of docs.querySelectorAll('.request button')) {
    button.disabled = false;
    if (button.form) continue;
    button.addEventListener('click', () => send(button.closest('.request'), button.dataset.query));
  }
  docs.querySelector('form.request').addEventListener('submit', (event) => {
    event.preventDefault();
    send(event.target, event.target.elements.query.value.trim());
  });
}

/** Sends a request, and shows its response below `request`, the element that it was sent from. */
async function send(request, query) {
  if (!(await askForKey())) return;
  const url = `${root}${docs.dataset.path}${query && '?'}${query}`;
  const headers = keyHeaders();
  const etagKey = `${headers.Authorization} ${url}`;
  if (etags.has(etagKey)) headers['If-None-Match'] = etags.get(etagKey);
  const id = ++count;
  const start = performance.now();
  let outcome;
  try {
    const response = await fetch(url, { headers, cache: 'no-store' });
    outcome = { response, text: await response.text() };
  } catch (error) {
    outcome = { error };
  }
  // Another request was sent meanwhile: its response is the one to show.
  if (id !== count) return;
  const { response } = outcome;
  if (response?.status === 401) forgetKey();
  if (response?.ok) etags.set(etagKey, response.headers.get('ETag'));
  const section = document.getElementById('response');
  request.after(section);
  const ms = Math.round(performance.now() - start);
  showResponse(section, { url, headers, ms, ...outcome }, (cursor) => {
    const next = new URLSearchParams(query);
    next.set('nextCursor', cursor);
    return send(request, String(next));
  });
  for (const pre of section.querySelectorAll('pre')) addCopy(pre);
  section.scrollIntoView({ block: 'nearest' });
}

/** Puts a `pre` into a box with a button that copies its text. */
function addCopy(pre) {
  const box = document.createElement('div');
  const button = document.createElement('button');
  box.className = 'code';
  button.type = 'button';
  button.textContent = 'Copy';
  button.addEventListener('click', async () => {
    await copy(pre);
    button.textContent = 'Copied';
    setTimeout(() => {
      button.textContent = 'Copy';
    }, 2000);
  });
  pre.replaceWith(box);
  box.append(pre, button);
}

async function copy(pre) {
  try {
    await navigator.clipboard.writeText(pre.textContent);
  } catch {
    // The clipboard is missing in pages that are served over plain HTTP by another machine, or may be forbidden.
    getSelection().selectAllChildren(pre);
    document.execCommand('copy');
  }
}
