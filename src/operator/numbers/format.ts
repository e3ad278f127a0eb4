/** Recognizes inputs that are not NDJSON. */
import { isUtf8 } from 'node:buffer';

const convertBy = (command: string) => `convert it: ${command} FILE | branded-phone-numbers import -`;

const GZIP = Buffer.of(0x1f, 0x8b);
/** Matches the beginning of an API page. */
const PAGE = /^\{\s*"(?:items|nextCursor)"\s*:/;
/** Matches the first line of an object that continues on the next line. */
const CONTINUES = /^\{(?:.*[{[,])?$/s;

/**
 * Returns, from the first line that is not blank, what the input is and how to convert it to NDJSON; undefined if it
 * may be NDJSON, whose faulty lines are reported one by one.
 */
export function otherFormat(line: Buffer): string | undefined {
  if (line.subarray(0, GZIP.length).equals(GZIP)) return `is compressed; ${convertBy('gunzip --stdout')}`;
  const text = line.toString().trim();
  if (text.startsWith('[')) return `is a JSON array; ${convertBy("jq -c '.[]'")}`;
  if (PAGE.test(text)) return `is a page of the API; ${convertBy("jq -c '.items[]'")}`;
  // A complete object followed by a comma is a faulty line of NDJSON.
  if (CONTINUES.test(text) && !isJson(text.replace(/,$/, ''))) {
    return `is JSON that spans several lines; ${convertBy("jq -c '.items[]? // .'")}`;
  }
  if (text.startsWith('{') || isJson(text)) return undefined;
  if (!isUtf8(line)) return 'is not UTF-8 text; decompress the file first, or convert it to NDJSON in UTF-8';
  return 'is not NDJSON; convert the file to one JSON object per line first';
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
