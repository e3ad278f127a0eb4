/** What the pages say about this deployment: who operates it, and what it requires and offers. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { type Config, isPrivate } from '../../config/config.js';
import { countOf } from '../../messages/count.js';
import { packageFolder } from '../../packageFolder.js';
import { escaped, prose } from './layout.js';

/** Returns how to get access to this instance. */
export function authenticationWords({ AUTH, CONTACT, TERMS_URL }: Config): string {
  const terms = TERMS_URL ? ` <a href="${escaped(TERMS_URL)}">Terms of service</a>` : '';
  const contact = prose(operator(CONTACT));
  if (AUTH === 'none')
    return `<p>This service requires no API key.${CONTACT ? ` Questions go to ${contact}.` : ''}${terms}</p>`;
  return `<p>This service requires an API key. Ask ${contact} for one, and send it as <code>Authorization: Bearer &lt;key&gt;</code>.
Without a valid one, the response is a 401, <a href="problems/unauthorized">Unauthorized</a>.${terms}</p>
<p>The commands and programs on this page take the key from the environment variable <code>KEY</code>.</p>`;
}

/** Returns the limit that this instance keeps. */
export function limitWords({ AUTH, RATE_LIMIT_PER_SECOND: limit }: Config): string {
  return `<p>Each ${AUTH === 'api-key' ? 'key' : 'address'} may send ${upTo(limit)}; <code>Retry-After</code> of a 429, <a
href="problems/rate-limit-exceeded">Rate Limit Exceeded</a>, says when to retry. <code>RateLimit</code> of a response says how many are left.</p>`;
}

/** Returns "the operator" in Markdown, with a link if CONTACT is set. */
function operator(contact: string | undefined): string {
  if (!contact) return 'the operator';
  return `[the operator](<${contact.includes('://') ? contact : `mailto:${contact}`}>)`;
}

const upTo = (limit: number) =>
  limit === 0 ? 'any number of requests' : `at most ${countOf(limit, 'request')} in any one second`;

/** Returns a text of the contract, which has the default limit, with the limit that this instance keeps. */
export function withLimit(text: string, limit: number): string {
  const described = text.replaceAll(`may send ${upTo(10)}`, `may send ${upTo(limit)}`);
  if (limit === 0) return described;
  return described
    .replaceAll('At most 10 requests', `At most ${countOf(limit, 'request')}`)
    .replaceAll('q=10;', `q=${limit};`)
    .replaceAll('r=9;', `r=${limit - 1};`);
}

/** Returns in Markdown where to get a package that this service does not have. A private instance is read by its operator alone. */
export function missingPackage(config: Config): string {
  const canBuild = isPrivate(config) && !config.PUBLIC_URL && existsSync(join(packageFolder, 'Makefile'));
  if (!canBuild) return `Ask ${operator(config.CONTACT)} for the package.`;
  return 'Run `make clients` in this checkout to build the package, and start the service again.';
}
