import { readFileSync } from 'node:fs';
import { chmod, mkdir, rm, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import express from 'express';
import request from 'supertest';
import { beforeAll, describe, expect, it } from 'vitest';
import { readConfig } from '../../../src/config/config.js';
import { contract } from '../../../src/contract.js';
import { docs } from '../../../src/service/docs/docs.js';
import { readPackages } from '../../../src/service/docs/packages.js';
import { outcomeOf } from '../../support/programs.js';
import { useTemporaryFolder } from '../../support/temporaryFolder.js';

const SETTINGS = readConfig({ HOST: '0.0.0.0', AUTH: 'none' });
const { version } = contract.info;
const TARBALL = `branded-phone-numbers-client-${version}.tgz`;
const MAVEN = 'maven/example/brandedphonenumbers/branded-phone-numbers-client';
const GO = 'go/branded-phone-numbers.example/clients/go';
/** A file of each kind that `make clients` makes, with its media type. */
const files: [path: string, type: string, isVersioned: boolean][] = [
  [TARBALL, 'application/gzip', true],
  [`branded_phone_numbers_client-${version}-py3-none-any.whl`, 'application/zip', true],
  [`${MAVEN}/maven-metadata.xml`, 'application/xml', false],
  [`${MAVEN}/maven-metadata.xml.sha1`, 'text/plain', false],
  [`${MAVEN}/${version}/branded-phone-numbers-client-${version}.jar`, 'application/java-archive', true],
  [`${MAVEN}/${version}/branded-phone-numbers-client-${version}.pom`, 'application/xml', true],
  [`${MAVEN}/${version}/branded-phone-numbers-client-${version}.jar.md5`, 'text/plain', true],
  [`${GO}/@latest`, 'application/json', false],
  [`${GO}/@v/list`, 'text/plain', false],
  [`${GO}/@v/v${version}.info`, 'application/json', true],
  [`${GO}/@v/v${version}.mod`, 'text/plain', true],
  [`${GO}/@v/v${version}.zip`, 'application/zip', true],
];
/** Long enough to be compressed. */
const contentOf = (path: string) => `the content of ${path}\n`.repeat(50);

const folder = useTemporaryFolder('branded-phone-numbers-packages-');
const packages = () => join(folder.path, 'packages');
let service: express.Express;

beforeAll(async () => {
  for (const [path] of files) await write(path, packages());
  service = serviceWith();
});

async function write(path: string, into: string, content = contentOf(path)) {
  const file = join(into, path);
  await mkdir(dirname(file), { recursive: true });
  await writeFile(file, content);
}

const NO_WARNINGS = { warn: (details: object): void => expect.unreachable(JSON.stringify(details)) };

/** Returns a service behind a path prefix, with the packages that are there now. */
const serviceWith = (settings: object = {}, read = readPackages(NO_WARNINGS, packages())) =>
  express()
    .use('/numbers', docs({ ...SETTINGS, ...settings }, read))
    .use((_request, response) => {
      response.status(404).json({ from: 'the API' });
    });

/** Runs `work`, which must be synchronous, as a user without rights: root may read everything. */
function asNobody<T>(work: () => T): T {
  if (process.geteuid?.() !== 0) return work();
  process.seteuid?.(65534);
  try {
    return work();
  } finally {
    process.seteuid?.(0);
  }
}

/** Requests bytes, whatever their type is. */
const download = (path: string, app = service) =>
  request(app)
    .get(`/numbers/packages/${path}`)
    .buffer()
    .parse((response, done) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk) => chunks.push(Buffer.from(chunk)));
      response.on('end', () => done(null, Buffer.concat(chunks)));
    });

describe('GET /packages/', () => {
  it.each(files)('serves %s as %s, for good if it belongs to a version: %s', async (path, type, isVersioned) => {
    const { headers, body } = await download(path).expect(200);
    expect(String(body)).toBe(contentOf(path));
    expect(headers['content-type']).toMatch(new RegExp(`^${type}(;|$)`));
    expect(headers['cache-control']).toBe(isVersioned ? 'public, max-age=31536000, immutable' : 'no-cache');
    expect(headers['x-content-type-options']).toBe('nosniff');
    expect(headers['content-security-policy']).toContain("default-src 'none'");
    // Archives are compressed already, and pip and npm would see others' bytes.
    const isArchive = /\.(tgz|whl|jar|zip)$/.test(path);
    expect(headers['content-encoding']).toBe(isArchive ? undefined : 'gzip');
  });

  it('responds to its ETag with a 304, and to HEAD without the content', async () => {
    const { headers } = await download(TARBALL);
    await download(TARBALL).set('If-None-Match', String(headers.etag)).expect(304);
    const head = await request(service).head(`/numbers/packages/${TARBALL}`).expect(200);
    expect(head.headers).toMatchObject({ etag: headers.etag, 'content-length': headers['content-length'] });
    expect(head.text).toBeUndefined();
  });

  it('decodes the path', async () => {
    await download(`${GO}/%40v/list`).expect(200);
  });

  it('serves earlier versions that the command of docs/operations.md has copied there, and nothing else of theirs', async () => {
    const [command = ''] =
      /^cp .*CHECKOUT_OF_THE_NEW_VERSION.*$/m.exec(readFileSync('docs/operations.md', 'utf8')) ?? [];
    const earlier = 'branded-phone-numbers-client-0.9.0.tgz';
    const before = join(folder.path, 'before');
    for (const path of [earlier, `${GO}/@v/list`]) await write(path, join(before, 'packages'), 'earlier\n');
    const paths = { '/opt/branded-phone-numbers': before, CHECKOUT_OF_THE_NEW_VERSION: folder.path };
    const typed = Object.entries(paths).reduce((text, [shown, path]) => text.replace(shown, path), command);
    expect(await outcomeOf('bash', ['-c', typed])).toEqual({ status: 0, output: '' });
    const copied = serviceWith();
    expect(String((await download(earlier, copied).expect(200)).body)).toBe('earlier\n');
    expect(String((await download(`${GO}/@v/list`, copied)).body)).toBe(contentOf(`${GO}/@v/list`));
  });

  it('serves nothing but packages', async () => {
    await writeFile(join(folder.path, 'secret.tgz'), 'a secret');
    for (const path of ['.npmrc', '.git/v1.0.0.tgz', 'index.html', 'notes.txt', 'page.js'])
      await write(path, packages());
    await symlink(join(packages(), TARBALL), join(packages(), 'link-1.0.0.tgz'));
    await symlink(folder.path, join(packages(), 'linked'));
    const app = serviceWith();
    const paths = [
      ...['.npmrc', '.git/v1.0.0.tgz', 'index.html', 'notes.txt', 'page.js', 'link-1.0.0.tgz', 'linked/secret.tgz'],
      ...['..%2fsecret.tgz', '%2e%2e/secret.tgz', 'maven', 'maven/', `${TARBALL}/`, 'toString', '__proto__'],
      `/${TARBALL}`,
    ];
    for (const path of paths) {
      const { status, body } = await request(app).get(`/numbers/packages/${path}`);
      expect([path, status, body]).toEqual([path, 404, { from: 'the API' }]);
    }
    await request(service).post(`/numbers/packages/${TARBALL}`).expect(404);
  });

  it('leaves out the files and folders that the service may not read, and names them in the log', async () => {
    const unreadable = [join(packages(), TARBALL), join(packages(), 'go')];
    await Promise.all(unreadable.map((path) => chmod(path, 0)));
    await chmod(folder.path, 0o755);
    const warnings: object[] = [];
    const read = asNobody(() => readPackages({ warn: (details: object) => void warnings.push(details) }, packages()));
    const app = serviceWith({}, read);
    await Promise.all(unreadable.map((path) => chmod(path, 0o755)));
    expect(JSON.stringify(warnings)).toMatch(
      new RegExp(
        unreadable
          .map((path) => `"reason":"EACCES: [^"]*'${path}'"`)
          .toSorted()
          .join('.*'),
      ),
    );
    await download(TARBALL, app).expect(404);
    await download(`${GO}/@v/list`, app).expect(404);
    await download(`${MAVEN}/maven-metadata.xml`, app).expect(200);
  });

  it('lists what is there, with links', async () => {
    const { headers } = await request(service).get('/numbers/packages').expect(303);
    expect(new URL(String(headers.location), 'http://host/numbers/packages').pathname).toBe('/numbers/packages/');
    const { text } = await request(serviceWith()).get('/numbers/packages/').expect(200);
    for (const path of [
      TARBALL,
      `${GO}/@v/list`,
      'openapi-3.0.json',
      'branded-phone-numbers.postman_collection.json',
    ]) {
      expect(text).toContain(`<a href="${path}">${path}</a>`);
      await request(service).get(`/numbers/packages/${path}`).expect(200);
    }
    expect(text).not.toContain('.sha1');
  });
});

const CLIENTS = ['typescript', 'python', 'java', 'go'];

describe('GET /docs', () => {
  const READMES = CLIENTS.map((client) => `<a href="clients/${client}/README.md">`);
  const INSTALLATIONS = [
    `npm install https://numbers.test/telephony/packages/${TARBALL}`,
    `pip install https://numbers.test/telephony/packages/branded_phone_numbers_client-${version}-py3-none-any.whl`,
    '&lt;url&gt;https://numbers.test/telephony/packages/maven&lt;/url&gt;',
    'GOPROXY=https://numbers.test/telephony/packages/go ',
  ];

  it('tells who runs a private instance from a checkout to build the packages that are not there', async () => {
    const local = { HOST: '127.0.0.1', TRUST_PROXY: 0 };
    const wordsOf = async (settings: object) => {
      const { text } = await request(express().use(docs({ ...SETTINGS, ...settings }))).get('/packages/');
      return /make clients|Ask the operator/.exec(text)?.[0];
    };
    expect(await wordsOf(local)).toBe('make clients');
    const reached = [
      { HOST: '0.0.0.0' },
      { TRUST_PROXY: 1 },
      { AUTH: 'api-key' },
      { PUBLIC_URL: 'https://numbers.test' },
    ];
    for (const setting of reached) expect(await wordsOf({ ...local, ...setting })).toBe('Ask the operator');
  });

  it('begins each sample with the command that installs it from PUBLIC_URL, or says whom to ask for the package', async () => {
    const settings = { PUBLIC_URL: 'https://numbers.test/telephony', CONTACT: 'api@numbers.test' };
    const read = async () => (await request(serviceWith(settings)).get('/numbers/docs')).text;
    const there = await read();
    for (const part of [...READMES, ...INSTALLATIONS]) expect(there).toContain(part);
    expect(there).not.toContain('for the package.');
    await rm(join(packages(), 'go'), { recursive: true });
    const text = await read();
    for (const part of INSTALLATIONS.slice(0, 3)) expect(text).toContain(part);
    expect(text).not.toContain('GOPROXY');
    expect(text).toContain('Ask <a href="mailto:api@numbers.test">the operator</a> for the package.');
  });
});

describe('where to get a package that is not there', () => {
  const PUBLIC_URL = 'https://numbers.test/telephony';
  const ASK =
    /Ask (\[the operator\]\(<mailto:api@numbers.test>\)|<a href="mailto:api@numbers.test">the operator<.a>) for the package\./;

  const READMES = ['clients', ...CLIENTS.map((client) => `clients/${client}`)].map((folder) => `${folder}/README.md`);
  it.each([...READMES, 'docs', 'packages/', 'llms.txt'])(
    'is said by /%s, in HTML and Markdown, instead of how to install it',
    async (path) => {
      for (const [file] of files) await write(file, packages());
      const install = path === 'llms.txt' ? /packages\/\)$/m : new RegExp(`${PUBLIC_URL}/packages/`);
      for (const type of ['text/html', 'text/markdown']) {
        const read = async (read?: ReturnType<typeof readPackages>) => {
          const service = request(serviceWith({ PUBLIC_URL, CONTACT: 'api@numbers.test' }, read));
          return (await service.get(`/numbers/${path}`).set('Accept', type).buffer().expect(200)).text;
        };
        const [there, missing] = [await read(), await read(new Map())];
        expect([install.test(there), ASK.test(there)]).toEqual([true, false]);
        expect([install.test(missing), ASK.test(missing)]).toEqual([false, true]);
        if (path.endsWith('.md')) expect(missing).toMatch(/This program prints|TypeScript, JavaScript/);
      }
    },
  );
});
