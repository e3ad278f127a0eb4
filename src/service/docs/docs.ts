/** Serves the documentation of the API: /docs, the OpenAPI document, and pages of problems and of Markdown files. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import express, { type Request, type RequestHandler, type Router } from 'express';
import helmet from 'helmet';
import { dump } from 'js-yaml';
import { LRUCache } from 'lru-cache';
// Not the package's main module: that would load all of Swagger UI into the server.
import swaggerUiFolder from 'swagger-ui-dist/absolute-path.js';
import { listBrandedPhoneNumbers as operation } from '../../../generated/types/apis/index.js';
import { type Config, publicPath } from '../../config/config.js';
import { type Contract, contract } from '../../contract.js';
import { packageFolder } from '../../packageFolder.js';
import { encodeBody } from '../http/compression.js';
import { noSuchPath } from '../http/problemResponse.js';
import { constantResponse } from './constantResponse.js';
import { missingPackage, withLimit } from './deployment.js';
import { docsPage, swaggerPage } from './docsPage.js';
import { EXAMPLE_ADDRESS, escaped, fill, markdownPage, readText, readTexts } from './layout.js';
import { clientReadmes, type Packages, packagesPage, readmeParts, servePackages } from './packages.js';
import { missingPage, problemList, problemPage } from './problemPages.js';

const browserFolder = join(packageFolder, 'browser');

/** Returns a router for the root, with security headers for its paths only. Links are relative, so a proxy may prepend a path. */
export function docs(config: Config, packages: Packages = new Map()): Router {
  const document = () => documentFor(config, contract);
  const router = express.Router({ caseSensitive: true, strict: true });
  const serve = (path: string, ...handlers: RequestHandler[]) => router.get(path, securityHeaders, ...handlers);
  const servePage = (path: string, html: () => string) => serve(path, withAddress('text/html', html, config));
  const json = (content: () => object) => constantResponse('application/json', () => JSON.stringify(content()));
  router.get('/', redirectTo('./docs'));
  servePage('/docs', () => docsPage(config, packages));
  servePage('/swagger', () => swaggerPage(config));
  for (const name of ['docs', 'swagger', 'problems']) router.get(`/${name}/`, redirectTo(`../${name}`));
  for (const [folder, name] of assets) serve(`/docs/${name}`, constantResponse(name, readFileSync(join(folder, name))));
  // Browsers request it for what is not HTML.
  serve('/favicon.ico', constantResponse('icon.svg', readFileSync(join(browserFolder, 'icon.svg'))));
  const yaml = () => dump(document(), { lineWidth: -1 });
  serve('/openapi.yaml', allowAnyOrigin, constantResponse('application/yaml', yaml));
  serve('/openapi.json', allowAnyOrigin, json(document));
  const built: string[] = [];
  /** Serves a document that `npm run build` makes: a checkout that is not built, such as that of `make dev`, has none. */
  const serveBuilt = (path: string, contentOf: (document: Contract) => object) => {
    const name = basename(path);
    if (!existsSync(join(packageFolder, 'dist', name))) return;
    const text = readText(`dist/${name}`).replaceAll(EXAMPLE_ADDRESS, () => config.PUBLIC_URL ?? EXAMPLE_ADDRESS);
    const response = json(() => contentOf(JSON.parse(text)));
    for (const address of [path, `/packages/${name}`]) serve(address, allowAnyOrigin, response);
    built.push(name);
  };
  serveBuilt('/openapi-3.0.json', (document) => documentFor(config, document));
  serveBuilt('/clients/postman/branded-phone-numbers.postman_collection.json', (collection) => collection);
  servePage('/problems', problemList);
  for (const name of Object.keys(contract['x-problems'])) {
    const problem = () => withLimit(problemPage(name, publicPath(config)), config.RATE_LIMIT_PER_SECOND);
    servePage(`/problems/${name}`, problem);
  }
  for (const [path, given] of readmes) {
    const text = clientReadmes.has(path) ? readmeParts(path, config, packages).join('') : given;
    const markdown = withAddress('text/markdown', () => text, config);
    serve(`/${path}`, onlyIf(prefersMarkdown), markdown);
    servePage(`/${path}`, () => markdownPage(path, text, addresses));
  }
  const llms = () => llmsText(config, packages);
  serve('/llms.txt', constantResponse('text/plain', llms));
  router.get('/packages', redirectTo('./packages/'));
  servePage('/packages/', () => packagesPage(config, packages, built));
  router.get('/packages/*path', securityHeaders, servePackages(packages));
  // A 404 for browsers. Not for `*`, and not for a path so long that the links of the page would be.
  router.get(/^\/.{0,999}$/, onlyIf(prefersPage), securityHeaders, async (request, response) => {
    const { detail = '' } = noSuchPath(request, publicPath(config)).problem;
    response.status(404).type('text/html');
    response.send(await encodeBody(request, response, Buffer.from(missingPage(request.path, detail))));
  });
  return router;
}

/** Returns the contract with the address, the contact, the terms, the limit and the authentication of this deployment. */
function documentFor(config: Config, original: Contract): object {
  const { AUTH, PUBLIC_URL, CONTACT, TERMS_URL } = config;
  const document = published(original, config);
  const { securitySchemes, ...withoutSchemes } = document.components;
  return {
    ...document,
    info: {
      ...document.info,
      ...(TERMS_URL ? { termsOfService: TERMS_URL } : {}),
      contact: {
        name: 'The operator of this service',
        ...(CONTACT ? { [CONTACT.includes('://') ? 'url' : 'email']: CONTACT } : {}),
      },
    },
    // Without PUBLIC_URL, no externalDocs: linters reject a relative one, and the document must not name a host.
    ...(PUBLIC_URL ? { externalDocs: { url: `${PUBLIC_URL}/docs` }, servers: [{ url: PUBLIC_URL }] } : {}),
    security: AUTH === 'api-key' ? document.security.filter((scheme) => Object.keys(scheme).length > 0) : [],
    components: AUTH === 'api-key' ? document.components : withoutSchemes,
  };
}

/** The extensions that are useful to clients; the service, its pages and mocks read the rest. */
const PUBLIC_EXTENSIONS = ['x-known-values', 'x-exact-pattern'];

/** Returns a document without the other extensions, with the limit, and with PUBLIC_URL in the examples of `type` and `Link`. */
function published(document: Contract, { PUBLIC_URL, RATE_LIMIT_PER_SECOND }: Config): Contract {
  const isPublic = (key: string) => !key.startsWith('x-') || PUBLIC_EXTENSIONS.includes(key);
  const json = JSON.stringify(document, (key, value) => (isPublic(key) ? value : undefined));
  const list = PUBLIC_URL ? `${PUBLIC_URL}${operation.path}` : '';
  return JSON.parse(
    withLimit(json, RATE_LIMIT_PER_SECOND)
      .replaceAll('"/problems/', () => `"${publicPath({ PUBLIC_URL })}/problems/`)
      .replaceAll('"<?', () => `"<${list}?`),
  );
}

/** The files of /docs. Swagger UI's own index.html is not among them: it would load a demo document from another host. */
const assets: [folder: string, name: string][] = [
  [swaggerUiFolder(), 'swagger-ui.css'],
  [swaggerUiFolder(), 'swagger-ui-bundle.js'],
  ...readdirSync(browserFolder)
    .filter((name) => /\.(css|js|svg)$/.test(name))
    .map((name): [string, string] => [browserFolder, name]),
];

/** The Markdown files of the package that have a page, at the same path. */
const readmes = new Map([...clientReadmes, ...readTexts('docs/api-changelog.md', 'docs/deprecation.md')]);

/** Returns what there is for programs that read (llmstxt.org). */
function llmsText(config: Config, packages: Packages): string {
  const note = packages.size > 0 ? '' : `: ${missingPackage(config)}`;
  const pages = [...readmes].map(([path, text]) => `- [${/^# (.*)$/m.exec(text)?.[1]}](${path})`).join('\n');
  return fill('llms.txt', { service: contract.info.title, summary: contract.info.summary, note, pages });
}

/** The addresses of files of the package that the pages link to. */
const addresses = new Map([
  ...[...readmes.keys()].map((path): [string, string] => [path, path]),
  ['openapi/openapi.yaml', 'openapi.yaml'],
]);

const securityHeaders = helmet({
  contentSecurityPolicy: {
    useDefaults: false,
    directives: {
      defaultSrc: ["'none'"],
      baseUri: ["'none'"],
      connectSrc: ["'self'"],
      formAction: ["'none'"],
      frameAncestors: ["'none'"],
      // Swagger UI's style sheet draws its arrows as data: images.
      imgSrc: ["'self'", 'data:'],
      scriptSrc: ["'self'"],
      styleSrc: ["'self'"],
      // No upgrade-insecure-requests: it would break the page if the service is reached over plain HTTP.
    },
  },
  // Only the proxy that terminates TLS can tell whether a host is HTTPS only.
  strictTransportSecurity: false,
});

/** Lets browser-based tools of any origin read the document. */
const allowAnyOrigin: RequestHandler = (_request, response, next) => {
  response.set('Access-Control-Allow-Origin', '*');
  next();
};

/** Returns a handler that passes on a request to the next route unless its Accept fulfils `prefers`. */
function onlyIf(prefers: (request: Request) => boolean): RequestHandler {
  return (request, response, next) => {
    response.vary('Accept');
    next(prefers(request) ? undefined : 'route');
  };
}

const prefersMarkdown = (request: Request) => request.accepts('text/html', 'text/markdown') === 'text/markdown';

/** Returns whether a browser asks: only browsers accept XHTML, or HTML but no problem. */
function prefersPage(request: Request): boolean {
  const preferred = request.accepts('application/problem+json', 'application/json', 'application/xhtml+xml');
  return preferred === 'application/xhtml+xml' || (!preferred && request.accepts('text/html') !== false);
}

/** Returns a handler that serves a text whose samples have PUBLIC_URL, or else the address at which it was requested. */
function withAddress(type: string, make: () => string, { PUBLIC_URL }: Config): RequestHandler {
  let text: string | undefined;
  const memoMethod = (address: string) => {
    text ??= make();
    return constantResponse(type, Buffer.from(text.replaceAll(EXAMPLE_ADDRESS, () => address)));
  };
  // Few, because clients choose the Host.
  const handlers = new LRUCache({ max: 4, memoMethod });
  return (request, response, next) => {
    const { protocol, host } = request;
    const address = PUBLIC_URL ?? (host ? `${protocol}://${host}` : EXAMPLE_ADDRESS);
    return handlers.memo(type === 'text/html' ? escaped(address) : address)(request, response, next);
  };
}

function redirectTo(address: string): RequestHandler {
  return (_request, response) => response.redirect(303, address);
}
