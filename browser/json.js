const TOKEN = /("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|\b(?:true|false|null|\d+(?:\.\d+)?)\b)/;

/** Splits a text into parts. Strings have a kind, and so have, in JSON, the names of members, numbers and literals. */
export function parts(text) {
  const isJson = /^\s*[{[]/.test(text);
  const texts = text.split(TOKEN);
  return texts.map((text, index) => ({ text, kind: index % 2 === 1 && kindOf(text, texts[index + 1], isJson) }));
}

/** Returns the class of a token that is followed by `rest`, or false if it has none. */
function kindOf(token, rest, isJson) {
  if (!/^["']/.test(token)) return isJson && 'number';
  return isJson && /^\s*:/.test(rest) ? 'name' : 'text';
}

/** Shows a text in an element, with its parts in color. */
export function show(element, text) {
  element.replaceChildren(
    ...parts(text).map(({ text, kind }) => {
      if (!kind) return text;
      return Object.assign(document.createElement('span'), { className: kind, textContent: text });
    }),
  );
}
