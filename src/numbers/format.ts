/** What an import is given instead of NDJSON. */
import { isUtf8 } from 'node:buffer';

const taken = (through: string) => `an import takes it as ${through} FILE | branded-phone-numbers import -`;

const GZIP = Buffer.of(0x1f, 0x8b);
/** How a page of the API begins. */
const PAGE = /^\{\s*"(?:items|nextCursor)"\s*:/;
/** How the first line of an object ends that goes on in the next one. */
const GOES_ON = /^\{(?:.*[{[,])?$/s;

/**
 * Says what an input is and how to make NDJSON of it, by its first line that is not blank. Returns undefined if the line may
 * be NDJSON: it is reported on its own then, if it is wrong.
 */
export function otherFormat(line: Buffer): string | undefined {
  if (line.subarray(0, GZIP.length).equals(GZIP)) return `is compressed; ${taken('gunzip --stdout')}`;
  const text = line.toString().trim();
  if (text.startsWith('[')) return `is a JSON array; ${taken("jq -c '.[]'")}`;
  if (PAGE.test(text)) return `is a page of the API; ${taken("jq -c '.items[]'")}`;
  // A whole object with a comma behind it is a line with a fault.
  if (GOES_ON.test(text) && !isJson(text.replace(/,$/, ''))) {
    return `is JSON over several lines; ${taken("jq -c '.items[]? // .'")}`;
  }
  if (text.startsWith('{') || isJson(text)) return undefined;
  if (!isUtf8(line)) return 'is not UTF-8 text; decompress the file first, or convert it to NDJSON in UTF-8';
  return 'is not NDJSON, a JSON object on each line; convert the file to that first';
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
