/**
 * Part of `npm run build`: generates dist/openapi-3.0.json from the contract, for tools that do not read OpenAPI 3.1.
 */
import { writeFileSync } from 'node:fs';
import { Converter } from '@apiture/openapi-down-convert';
import { contract } from '../src/contract.js';

const converted = new Converter(structuredClone(contract)).convert();
// OpenAPI 3.0 has no summary, and a license has a URL instead of an identifier; the converter handles neither.
delete converted.info.summary;
converted.info.license.url = `https://spdx.org/licenses/${contract.info.license.identifier}`;
writeFileSync('dist/openapi-3.0.json', `${JSON.stringify(converted, null, 2)}\n`);
