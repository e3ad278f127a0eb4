/** Splits JSON, or a program, into parts, so that strings, except the names of members, can have a color. */
export function parts(text) {
  const texts = text.split(/("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')/);
  return texts.map((text, index) => ({ text, isValue: index % 2 === 1 && !/^\s*:/.test(texts[index + 1]) }));
}

/** Shows a text in an element, with its strings in color. */
export function show(element, text) {
  element.replaceChildren(
    ...parts(text).map(({ text, isValue }) => {
      if (!isValue) return text;
      return Object.assign(document.createElement('span'), { className: 'text', textContent: text });
    }),
  );
}
