/** What a person, or that person's tools, read about the API: Swagger UI, the document, and a page for each kind of problem. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import express, { type RequestHandler, type Router } from 'express';
import helmet from 'helmet';
// Not the package's main module, which would load all of Swagger UI into the server.
import swaggerUiFolder from 'swagger-ui-dist/absolute-path.js';
import { contract, contractYaml, packageFolder } from './contract.js';
import { problemList, problemPage } from './problemPages.js';

const browserFolder = join(packageFolder, 'browser');

/**
 * Serves `/docs`, `/openapi.yaml`, `/openapi.json`, `/problems` and a redirect from `/`, with headers of its own, and
 * passes on everything else. To be mounted at the root. All links are relative, so a proxy may add a path in front.
 */
export function docs(): Router {
  const router = express.Router({ caseSensitive: true, strict: true });
  router.get('/', redirectTo('./docs'));
  router.get('/docs', securityHeaders, text('text/html', readFileSync(join(browserFolder, 'docs.html'), 'utf8')));
  router.get('/docs/', redirectTo('../docs'));
  for (const [folder, name] of assets) router.get(`/docs/${name}`, securityHeaders, file(folder, name));
  router.get('/openapi.yaml', securityHeaders, readableEverywhere, text('application/yaml', contractYaml));
  router.get('/openapi.json', securityHeaders, readableEverywhere, text('application/json', JSON.stringify(contract)));
  router.get('/problems', securityHeaders, text('text/html', problemList()));
  for (const name of Object.keys(contract['x-problems'])) {
    router.get(`/problems/${name}`, securityHeaders, text('text/html', problemPage(name)));
  }
  return router;
}

/** Of Swagger UI's own files only these: its index.html would load a demo document from another host. */
const assets: [folder: string, name: string][] = [
  [swaggerUiFolder(), 'swagger-ui.css'],
  [swaggerUiFolder(), 'swagger-ui-bundle.js'],
  [browserFolder, 'start.js'],
  [browserFolder, 'style.css'],
  [browserFolder, 'icon.svg'],
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
  // Whether a host is HTTPS only is for whoever ends TLS in front of this service to say.
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

/** Answers with a text that is the same as long as the process lives; Express makes it a 304 where the ETag matches. */
function text(type: string, content: string): RequestHandler {
  const etag = `"${createHash('sha256').update(content).digest('base64url')}"`;
  return (_request, response) => {
    response.set({ ETag: etag, 'Cache-Control': 'no-cache' }).type(type).send(content);
  };
}

function file(folder: string, name: string): RequestHandler {
  return (_request, response) => response.sendFile(name, { root: folder });
}
