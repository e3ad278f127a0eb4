/**
 * `npm run docs:openapi-3.0` generates openapi/openapi-3.0.json from the contract, for tools that do not read OpenAPI
 * 3.1.
 */
import { Converter } from '@apiture/openapi-down-convert';
import { contract } from '../src/contract.js';
import { writeOrCheck } from './generatedFile.js';

const converted = new Converter(structuredClone(contract)).convert();
// OpenAPI 3.0 has no summary, and a license has a URL instead of an identifier; the converter handles neither.
delete converted.info.summary;
converted.info.license.url = `https://spdx.org/licenses/${contract.info.license.identifier}`;
writeOrCheck('openapi/openapi-3.0.json', `${JSON.stringify(converted, null, 2)}\n`, 'docs:openapi-3.0');
