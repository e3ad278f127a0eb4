/** The API key: asked for once, sent with every request of the page, and forgotten when the page is closed. */
const dialog = document.querySelector('dialog');
let key;

export const needsKey = dialog !== null;

/** Returns whether a request can be sent. If the service requires a key and none was entered, asks for it. */
export async function askForKey() {
  if (!dialog || key) return true;
  const form = dialog.querySelector('form');
  form.reset();
  dialog.showModal();
  return new Promise((resolve) => {
    form.onsubmit = (event) => {
      event.preventDefault();
      key = form.elements.key.value.trim();
      dialog.close();
    };
    form.querySelector('[data-cancel]').onclick = () => dialog.close();
    dialog.onclose = () => resolve(Boolean(key));
  });
}

export function forgetKey() {
  key = undefined;
}

/** Returns a request's headers with the key, if there is one. */
export function keyHeaders() {
  return key ? { Authorization: `Bearer ${key}` } : {};
}
