/**
 * The packages of the clients, offered under `/packages/`: an npm tarball, a wheel, a Maven repository and a Go module proxy,
 * as `make clients` lays them out in the folder `packages`. Earlier versions that an operator copies there are offered, too.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join, posix } from 'node:path';
import type { RequestHandler } from 'express';
import type { Config } from '../../config/config.js';
import { contract } from '../../contract.js';
import type { Log } from '../../log.js';
import { packageFolder } from '../../packageFolder.js';
import { constantResponse } from './constantResponse.js';
import { missingPackage } from './deployment.js';
import { escaped, fill, html, markdown, readTexts } from './layout.js';

/** Handlers that serve the files, by their paths below `/packages/`. */
export type Packages = ReadonlyMap<string, RequestHandler>;

const { version } = contract.info;
/** The file that a package manager installs a client from. The commands that do so are in the client's README. */
const FILES = {
  typescript: `branded-phone-numbers-client-${version}.tgz`,
  python: `branded_phone_numbers_client-${version}-py3-none-any.whl`,
  java: `maven/example/brandedphonenumbers/branded-phone-numbers-client/${version}/branded-phone-numbers-client-${version}.jar`,
  go: `go/branded-phone-numbers.example/clients/go/@v/v${version}.zip`,
};

type Client = keyof typeof FILES;
export const clients = Object.keys(FILES) as Client[];
export const LANGUAGES: Record<Client, string> = { typescript: 'TypeScript', python: 'Python', java: 'Java', go: 'Go' };

/** The READMEs of the clients, and the one that lists them, by their paths. */
export const clientReadmes: ReadonlyMap<string, string> = readTexts(
  'clients/README.md',
  ...clients.map((client) => `clients/${client}/README.md`),
);

/**
 * Returns the parts of a README of `clients/`: an introduction, how to install the package (all before the program or the list of
 * clients), and the rest, beginning with the program. If the service does not have the package, the second says where to get it.
 */
export function readmeParts(path: string, config: Config, packages: Packages): string[] {
  const parts = (clientReadmes.get(path) as string).split(/^(?=Install|The service|This program|- |## |\| )/m);
  const client = clients.find((name) => path.includes(`/${name}/`));
  const isThere = client ? packages.has(FILES[client]) : packages.size > 0;
  if (!isThere) parts[1] = `${missingPackage(config)}\n\n`;
  return parts;
}

/** The media types of the files that package managers request, by the end of their paths. */
const TYPES: [ending: RegExp, type: string][] = [
  [/\.tgz$/, 'application/gzip'],
  [/\.(whl|zip)$/, 'application/zip'],
  [/\.jar$/, 'application/java-archive'],
  [/\.(pom|xml)$/, 'application/xml'],
  [/\.(md5|sha1|sha256|sha512)$|\/@v\/(list|.*\.mod)$/, 'text/plain'],
  [/\/@latest$|\/@v\/.*\.info$/, 'application/json'],
];
/** In the path of a file that belongs to one version of a client, and so never changes. */
const VERSION = /\d+\.\d+\.\d+/;

/**
 * Reads the packages in a folder, which may be missing. Requests reach only what is read here: files of the types above, not
 * hidden files and not symbolic links. What can't be read is left out, with a line in the log.
 */
export function readPackages(log: Pick<Log, 'warn'>, folder = join(packageFolder, 'packages')): Packages {
  const packages = new Map<string, RequestHandler>();
  const readFile = (path: string) => {
    const [, type] = TYPES.find(([ending]) => ending.test(path)) ?? [];
    if (type) packages.set(path, constantResponse(type, readFileSync(join(folder, path)), VERSION.test(path)));
  };
  const read = (path: string, isFolder: boolean): void => {
    try {
      if (!isFolder) return void readFile(path);
      for (const entry of readdirSync(join(folder, path), { withFileTypes: true })) {
        const isOffered = (entry.isFile() || entry.isDirectory()) && !entry.name.startsWith('.');
        if (isOffered) read(posix.join(path, entry.name), entry.isDirectory());
      }
    } catch (error) {
      log.warn({ reason: (error as Error).message }, 'left out of /packages/, because it cannot be read');
    }
  };
  if (existsSync(folder)) read('', true);
  return packages;
}

/** Returns a handler for requests below `/packages/`, which passes on requests for anything but a package. */
export function servePackages(packages: Packages): RequestHandler<{ path: string[] }> {
  return (request, response, next) => {
    const serve = packages.get(request.params.path.join('/'));
    return serve ? serve(request as never, response, next) : next();
  };
}

/** Returns the page at `/packages/`, which also lists the `documents` that are served there. */
export function packagesPage(config: Config, packages: Packages, documents: string[]): string {
  const sections = clients.map((client) => {
    const path = `clients/${client}/README.md`;
    const [, install = ''] = readmeParts(path, config, packages);
    return `<h2>${LANGUAGES[client]}</h2>\n${markdown(install)}\n<p><a href="../${path}">First program</a></p>`;
  });
  const files = [...packages.keys(), ...documents]
    .filter((path) => !/\.(md5|sha\d+)$/.test(path))
    .sort()
    .map((path) => `<li><a href="${escaped(encodeURI(path))}">${escaped(path)}</a></li>`);
  const content = fill('packages.html', { sections: sections.join('\n'), files: files.join('\n') });
  return html({ title: 'Packages', path: 'packages/', content });
}
