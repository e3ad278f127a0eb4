/** Splits JSON into parts, so that values that are strings can have a color. */
export function parts(json) {
  const texts = json.split(/("(?:[^"\\]|\\.)*")/);
  return texts.map((text, index) => ({ text, isValue: index % 2 === 1 && !/^\s*:/.test(texts[index + 1]) }));
}
