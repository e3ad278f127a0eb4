/** The script of /docs: contents, tabs and the console. */
import { enableConsole } from './console.js';
import { addCopy, root } from './samples.js';
import { select } from './tabs.js';

const docs = document.querySelector('.docs');
const programs = docs.querySelector('#programs .block');
const languages = new Map([...programs.querySelectorAll('[data-panel]')].map((panel) => [panel.dataset.panel, panel]));

enableContents();
enableTabs();
enableConsole(root, docs.dataset.path, firstPrograms());
for (const block of docs.querySelectorAll('.block:not([data-panel])'))
  addCopy(block.firstElementChild, () => shownText(block));

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

/** Lets each tab show its panel. A language is chosen once, for all samples, now and at the next visit. */
function enableTabs() {
  const choose = (language) => {
    for (const block of [programs, docs.querySelector('[data-panel="Code"]')]) select(block, language);
  };
  for (const tab of docs.querySelectorAll('.tab')) {
    const name = tab.dataset.tab;
    tab.disabled = false;
    tab.addEventListener('click', () => {
      if (!languages.has(name)) return select(tab.closest('.block'), name);
      choose(name);
      remember(name);
    });
  }
  const language = remembered();
  if (languages.has(language)) choose(language);
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
