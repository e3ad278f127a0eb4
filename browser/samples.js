/** Code in all pages: the address of this service in it, its colors, and buttons that copy it. */
import { show } from './json.js';

/** The address of the service, without a slash: the page may be served behind a path prefix. */
export const root = new URL('..', import.meta.url).href.replace(/\/$/, '');

const main = document.querySelector('main');
const texts = document.createTreeWalker(main, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(main.dataset.address, root);
for (const code of main.querySelectorAll('.address code')) addCopy(code.parentNode, () => code);
for (const pre of main.querySelectorAll('pre')) {
  show(pre, pre.textContent);
  // A block has one button for what it shows.
  if (!pre.closest('.block') || pre.matches('.steps pre:not(:last-of-type)')) addCopy(boxAround(pre), () => pre);
}

function boxAround(element) {
  const box = Object.assign(document.createElement('div'), { className: 'code' });
  element.replaceWith(box);
  box.append(element);
  return box;
}

/** Adds a button that copies the text of the element that `source` returns. */
export function addCopy(place, source) {
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
