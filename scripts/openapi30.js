/**
 * Makes `openapi/openapi-3.0.json` from the contract, for tools that refuse OpenAPI 3.1; with `--check`, only says whether
 * it is what it should be.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Converter } from '@apiture/openapi-down-convert';
import { contract } from '../src/contract.js';
import { packageFolder } from '../src/packageFolder.js';

const file = join(packageFolder, 'openapi', 'openapi-3.0.json');
const converted = new Converter(structuredClone(contract)).convert();
// The converter leaves the summary, which 3.0 does not know, and a license without an address.
delete converted.info.summary;
converted.info.license.url = `https://spdx.org/licenses/${contract.info.license.identifier}`;
const right = `${JSON.stringify(converted, null, 2)}\n`;
if (!process.argv.includes('--check')) writeFileSync(file, right);
else if (readFileSync(file, 'utf8') !== right) {
  console.error('openapi/openapi-3.0.json is not that of the contract: run `npm run docs:openapi-3.0`.');
  process.exitCode = 1;
}
