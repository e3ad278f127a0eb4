/** The documentation of the API: Swagger UI, the OpenAPI document, and a page for each kind of problem. */
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import express, { type RequestHandler, type Router } from 'express';
import helmet from 'helmet';
import { dump } from 'js-yaml';
// Not the package's main module: that would load all of Swagger UI into the server.
import swaggerUiFolder from 'swagger-ui-dist/absolute-path.js';
import { listBrandedPhoneNumbers as operation } from '../generated/types/apis/index.js';
import { type Config, publicPath } from './config.js';
import { type Contract, contract } from './contract.js';
import { keptBody } from './http/compression.js';
import { packageFolder } from './packageFolder.js';
import { noSuchProblem, problemList, problemPage } from './problem/pages.js';

const browserFolder = join(packageFolder, 'browser');

/**
 * Serves `/docs`, `/openapi.yaml`, `/openapi.json`, `/openapi-3.0.json`, `/problems` and a redirect from `/`, with headers of
 * its own, and passes on everything else. To be mounted at the root. All links are relative, so a proxy may add a path in front.
 */
export function docs(config: Deployment): Router {
  const document = documentFor(config, contract);
  const older = JSON.parse(readFileSync(join(packageFolder, 'openapi', 'openapi-3.0.json'), 'utf8'));
  const router = express.Router({ caseSensitive: true, strict: true });
  router.get('/', redirectTo('./docs'));
  router.get('/docs', securityHeaders, file(browserFolder, 'docs.html'));
  router.get('/docs/', redirectTo('../docs'));
  for (const [root, name] of assets) {
    router.get(`/docs/${name}`, securityHeaders, file(root, name));
  }
  router.get(
    '/openapi.yaml',
    securityHeaders,
    readableEverywhere,
    text('application/yaml', dump(document, { lineWidth: -1 })),
  );
  for (const [name, content] of [
    ['openapi', document],
    ['openapi-3.0', documentFor(config, older)],
  ]) {
    router.get(`/${name}.json`, securityHeaders, readableEverywhere, text('application/json', JSON.stringify(content)));
  }
  router.get('/problems', securityHeaders, text('text/html', problemList()));
  for (const name of Object.keys(contract['x-problems'])) {
    router.get(`/problems/${name}`, securityHeaders, text('text/html', problemPage(name, publicPath(config))));
  }
  for (const path of readings) {
    router.get(`/${path}`, securityHeaders, text('text/plain', readFileSync(join(packageFolder, path))));
  }
  router.get('/problems/', redirectTo('../problems'));
  router.get('/problems/:unknown', onlyForPeople, securityHeaders, text('text/html', noSuchProblem(), 404));
  return router;
}

/** The settings that the published document shows. */
type Deployment = Pick<Config, 'AUTH'> & Partial<Pick<Config, 'PUBLIC_URL' | 'CONTACT'>>;

/** The contract, with the address, the contact and the authentication of this deployment. */
function documentFor({ AUTH, PUBLIC_URL, CONTACT }: Deployment, original: Contract): object {
  const contract = PUBLIC_URL ? withExamplesAt(PUBLIC_URL, original) : original;
  const { securitySchemes, ...withoutSchemes } = contract.components;
  const contact = CONTACT && { [CONTACT.includes('://') ? 'url' : 'email']: CONTACT };
  return {
    ...contract,
    info: contact ? { ...contract.info, contact } : contract.info,
    ...(PUBLIC_URL ? { servers: [{ url: PUBLIC_URL }] } : {}),
    security: AUTH === 'api-key' ? contract.security.filter((way) => Object.keys(way).length > 0) : [],
    components: AUTH === 'api-key' ? contract.components : withoutSchemes,
  };
}

/** Returns the contract with the examples of `type` and `Link` as they are with PUBLIC_URL. */
function withExamplesAt(PUBLIC_URL: string, contract: Contract): Contract {
  const text = JSON.stringify(contract)
    .replaceAll('"/problems/', () => `"${publicPath({ PUBLIC_URL })}/problems/`)
    .replaceAll('"<?', () => `"<${PUBLIC_URL}${operation.path}?`);
  return JSON.parse(text);
}

/** Of Swagger UI's own files only these: its index.html would load a demo document from another host. */
const assets: [folder: string, name: string][] = [
  [swaggerUiFolder(), 'swagger-ui.css'],
  [swaggerUiFolder(), 'swagger-ui-bundle.js'],
  ...readdirSync(browserFolder)
    .filter((name) => !name.endsWith('.html'))
    .map((name): [string, string] => [browserFolder, name]),
];

/** What /docs shows the beginning of, or leads to, as it is in the package. */
const readings = [
  'clients/README.md',
  ...['typescript', 'python', 'java', 'go'].map((client) => `clients/${client}/README.md`),
  'docs/api-changelog.md',
  'docs/deprecation.md',
];

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
      // No upgrade-insecure-requests: where the service itself is reached over plain HTTP, it would break the page.
    },
  },
  // Whether a host is HTTPS only is up to the proxy that terminates TLS in front of this service.
  strictTransportSecurity: false,
});

/** Lets tools that run in the browser, on pages of other hosts, read the document. */
const readableEverywhere: RequestHandler = (_request, response, next) => {
  response.set('Access-Control-Allow-Origin', '*');
  next();
};

function redirectTo(place: string): RequestHandler {
  return (_request, response) => response.redirect(303, place);
}

const file = (folder: string, name: string) => text(name, readFileSync(join(folder, name)));

/** Answers with a text that never changes while the process runs; `type` is a media type or a file's name. */
function text(type: string, content: string | Buffer, status = 200): RequestHandler {
  const encode = keptBody(Buffer.from(content));
  // Weak: it is the same for every encoding.
  const etag = `W/"${createHash('sha256').update(content).digest('base64url')}"`;
  return async (request, response) => {
    response.status(status).set({ ETag: etag, 'Cache-Control': 'no-cache' }).vary('Accept-Encoding').type(type);
    if (request.fresh) response.status(304).end();
    else response.send(await encode(request, response));
  };
}

/** Passes on the requests of programs, for which `problem.ts` has an answer. */
const onlyForPeople: RequestHandler = (request, response, next) => {
  response.vary('Accept');
  next(request.accepts(['application/problem+json', 'text/html']) === 'text/html' ? undefined : 'route');
};
