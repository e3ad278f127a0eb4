/** The script of /docs: contents, samples, the console, and Swagger UI once it comes into view. */
import { enableConsole } from './console.js';
import { show } from './json.js';
import { select, selected } from './tabs.js';

const docs = document.querySelector('.docs');
/** The address of the service, without a slash: the page may be served behind a path prefix. */
const root = new URL('.', document.baseURI).href.replace(/\/$/, '');
const programs = docs.querySelector('#programs .block');
const languages = new Map([...programs.querySelectorAll('[data-panel]')].map((panel) => [panel.dataset.panel, panel]));

showAddress();
enableContents();
enableTabs();
enableConsole(`${root}${docs.dataset.path}`, firstPrograms());
for (const pre of docs.querySelectorAll('pre')) show(pre, pre.textContent);
for (const block of docs.querySelectorAll('.block')) addCopy(block.firstElementChild, () => shownText(block));
for (const pre of docs.querySelectorAll('.steps pre:not(:last-of-type)')) addCopy(boxAround(pre), () => pre);
loadSwaggerInView();

/** Replaces the address in all samples by that of this page. */
function showAddress() {
  const texts = document.createTreeWalker(docs, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(docs.dataset.address, root);
}

/** Marks the section that is in view; on a phone, lets the button show and hide the list. */
function enableContents() {
  const contents = document.querySelector('.contents');
  const button = contents.querySelector('button');
  const links = [...contents.querySelectorAll('a')];
  const sections = links.map(({ hash }) => document.querySelector(hash));
  const expand = (isExpanded) => button.setAttribute('aria-expanded', isExpanded);
  const mark = () => {
    const isAtEnd = innerHeight + scrollY > document.documentElement.scrollHeight - 2;
    const index = sections.findLastIndex((section) => section.getBoundingClientRect().top < 120);
    const current = isAtEnd ? links.at(-1) : links[Math.max(index, 0)];
    if (current.ariaCurrent) return;
    for (const link of links) link.ariaCurrent = link === current ? 'location' : null;
    button.querySelector('b').textContent = current.textContent;
  };
  button.addEventListener('click', () => expand(button.ariaExpanded === 'false'));
  contents.addEventListener('keydown', ({ key }) => {
    if (key === 'Escape') expand(false);
  });
  for (const link of links) link.addEventListener('click', () => expand(false));
  addEventListener('scroll', mark, { passive: true });
  addEventListener('resize', mark);
  mark();
}

/** Lets each tab show its panel. A chosen language is shown in all samples, now and at the next visit. */
function enableTabs() {
  const blocks = [programs, docs.querySelector('#response .block')];
  const choose = (name) => {
    for (const block of blocks) if (languages.has(name) && languages.has(selected(block))) select(block, name);
  };
  for (const tab of docs.querySelectorAll('.tab')) {
    const name = tab.dataset.tab;
    tab.disabled = false;
    tab.addEventListener('click', () => {
      select(tab.closest('.block'), name);
      choose(name);
      if (languages.has(name)) remember(name);
    });
  }
  choose(remembered());
}

function remember(language) {
  try {
    localStorage.setItem('language', language);
  } catch {
    // A browser may forbid storage.
  }
}

function remembered() {
  try {
    return localStorage.getItem('language');
  } catch {
    return null;
  }
}

/** Returns the first program in each language that has a client. */
function firstPrograms() {
  const clients = [...languages].filter(([language]) => language !== 'curl');
  return new Map(clients.map(([language, panel]) => [language, [...panel.querySelectorAll('pre')].at(-1).textContent]));
}

/** Returns what a block shows; of a panel with several texts, the program. */
function shownText(block) {
  return [...block.querySelectorAll('pre')].filter((pre) => pre.checkVisibility()).at(-1);
}

function boxAround(pre) {
  const box = Object.assign(document.createElement('div'), { className: 'code' });
  pre.replaceWith(box);
  box.append(pre);
  return box;
}

/** Adds a button that copies the text of the element that `source` returns. */
function addCopy(place, source) {
  const button = Object.assign(document.createElement('button'), { type: 'button', className: 'small' });
  button.textContent = 'Copy';
  button.addEventListener('click', async () => {
    await copy(source());
    button.textContent = 'Copied';
    setTimeout(() => {
      button.textContent = 'Copy';
    }, 2000);
  });
  place.append(button);
}

async function copy(element) {
  try {
    await navigator.clipboard.writeText(element.textContent);
  } catch {
    // The clipboard is missing in pages that are served over plain HTTP by another machine, or may be forbidden.
    getSelection().selectAllChildren(element);
    document.execCommand('copy');
  }
}

/** Loads Swagger UI, which is larger than all else together, for readers who get to it. */
function loadSwaggerInView() {
  const observer = new IntersectionObserver((entries) => {
    if (!entries.some(({ isIntersecting }) => isIntersecting)) return;
    observer.disconnect();
    return import('./swagger.js');
  });
  observer.observe(docs.querySelector('#swagger-ui'));
}
