/** The API key: asked for once, sent with every request of the page, never shown, and forgotten when the page is closed. */
const dialog = document.querySelector('dialog');
const [change, forget] = document.querySelectorAll('.key button');
let key;

export const needsKey = dialog !== null;

if (needsKey) {
  change.addEventListener('click', enterKey);
  forget.addEventListener('click', () => {
    forgetKey();
    change.focus();
  });
  change.disabled = false;
}

/** Returns whether a request can be sent. If the service requires a key and none was entered, asks for it. */
export async function askForKey() {
  return !dialog || Boolean(key) || enterKey();
}

/** Asks for the key. Returns whether there is one then: the reader may cancel. */
function enterKey() {
  const form = dialog.querySelector('form');
  form.reset();
  dialog.showModal();
  return new Promise((resolve) => {
    form.onsubmit = (event) => {
      event.preventDefault();
      setKey(form.elements.key.value.trim());
      dialog.close();
    };
    form.querySelector('[data-cancel]').onclick = () => dialog.close();
    dialog.onclose = () => resolve(Boolean(key));
  });
}

export function forgetKey() {
  if (key) setKey(undefined);
}

/** Returns a request's headers with the key, if there is one. */
export function keyHeaders() {
  return key ? { Authorization: `Bearer ${key}` } : {};
}

function setKey(entered) {
  key = entered;
  document.querySelector('.key [role="status"]').textContent = key ? 'An API key is set.' : 'No API key is set.';
  change.textContent = key ? 'Change it' : 'Enter the key';
  forget.hidden = !key;
}
