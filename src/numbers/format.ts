/** Formats that are mistaken for NDJSON. */

/**
 * What to do if a file that begins with this line is not NDJSON but compressed, UTF-16, a page of the API, a JSON array,
 * JSON over several lines or CSV; undefined for any other line.
 */
export function hintOfFormat(bytes: Buffer): string | undefined {
  if (bytes[0] === 0x1f && bytes[1] === 0x8b) {
    return 'is compressed; an import takes it as gunzip --stdout FILE | branded-phone-numbers import -';
  }
  if (/^(fffe|feff)/.test(bytes.toString('hex', 0, 2))) return 'is UTF-16; an import takes UTF-8';
  const text = bytes.subarray(0, 1000).toString().trim();
  if (text.startsWith('['))
    return `begins a JSON array; an import takes one item a line, as jq -c '.[]' FILE writes them`;
  if (/^\{\s*"(items|nextCursor)"\s*:/.test(text)) {
    return `is a page of the API; an import takes one item a line, as jq -c '.items[]' FILE writes them`;
  }
  if (text === '{') {
    return `begins JSON over several lines; an import takes one item a line, as jq -c . FILE writes them (jq -c '.items[]' FILE for a page of the API)`;
  }
  if (/^[^{]*[\w"]\s*[,;\t]\s*\S/.test(text)) {
    return 'looks like CSV; an import takes NDJSON: one item a line, as the command export writes them';
  }
  return undefined;
}
