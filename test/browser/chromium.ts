/** A real headless Chromium for tests, on a machine where nothing but `npm ci` has been run. */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type Browser, chromium } from 'playwright-core';
import { packageFolder } from '../../src/packageFolder.js';

const run = promisify(execFile);
const require = createRequire(import.meta.url);

/** Turns off everything that Chromium fetches from Google's hosts at its start: a test's requests are the page's own. */
const flags = [
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-gpu',
  '--disable-quic',
  '--disable-sync',
  '--no-first-run',
];

/**
 * Starts the browser at `CHROMIUM_PATH`, or else the one inside the npm package @sparticuz/chromium.
 * The flags that the package itself recommends are for Lambda; they switch off the same-origin policy, among other things.
 */
export async function openChromium(): Promise<Browser> {
  // Chromium's sandbox refuses to run as root and in many containers; only our own pages are opened here.
  const options = { args: flags, chromiumSandbox: false };
  const installed = process.env.CHROMIUM_PATH;
  if (installed) return chromium.launch({ ...options, executablePath: installed });
  // The package's is for Linux on x64; elsewhere an installed Chrome is used.
  if (process.platform !== 'linux' || process.arch !== 'x64') return chromium.launch({ ...options, channel: 'chrome' });
  const folder = await unpackedChromium();
  return chromium.launch({
    ...options,
    executablePath: join(folder, 'chromium'),
    env: { ...definedEnvironment(), ...(await librariesAndFonts(folder)) },
  });
}

/** Unpacks the package's archives, once for each version of it. */
async function unpackedChromium(): Promise<string> {
  const { version } = require(join(require.resolve('@sparticuz/chromium'), '..', '..', '..', 'package.json'));
  const cache = join(packageFolder, '.cache');
  const folder = join(cache, `chromium-${version}`);
  if (existsSync(folder)) return folder;
  await mkdir(cache, { recursive: true });
  const unfinished = await mkdtemp(join(cache, 'unpacking-'));
  try {
    await unpackInto(unfinished);
    await writeFile(join(unfinished, 'fonts.conf'), fontsConfiguration(folder));
    // It gets its final name only when it is complete: an interrupted run leaves nothing that looks finished.
    await rename(unfinished, folder);
  } catch (error) {
    await rm(unfinished, { recursive: true, force: true });
    // Another process may have been faster.
    if (!existsSync(folder)) throw error;
  }
  return folder;
}

/**
 * Lets the package unpack into `folder`, in its own process, because it takes the place and what to unpack from the
 * environment. It unpacks the libraries that a bare machine lacks (NSS, NSPR, Expat) only if it believes that it is on
 * Amazon Linux; they run on any Linux with glibc 2.34 or later.
 */
async function unpackInto(folder: string): Promise<void> {
  const script = "import chromium from '@sparticuz/chromium'; await chromium.executablePath();";
  await run(process.execPath, ['--input-type=module', '--eval', script], {
    cwd: packageFolder,
    env: { TMPDIR: folder, CODEBUILD_BUILD_IMAGE: 'nodejs20' },
  });
}

/** The package's libraries if the machine lacks any; its font always, since the machine may have none. */
async function librariesAndFonts(folder: string): Promise<Record<string, string>> {
  const fonts = { FONTCONFIG_FILE: join(folder, 'fonts.conf') };
  const linked = await run('ldd', [join(folder, 'chromium')]).catch(() => ({ stdout: 'not found' }));
  return linked.stdout.includes('not found') ? { ...fonts, LD_LIBRARY_PATH: join(folder, 'al2023', 'lib') } : fonts;
}

function fontsConfiguration(folder: string): string {
  return `<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>${join(folder, 'fonts')}</dir>
  <dir>/usr/share/fonts</dir>
  <alias binding="same"><family>sans-serif</family><prefer><family>Open Sans</family></prefer></alias>
  <alias binding="same"><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
  <cachedir>${join(folder, 'fonts-cache')}</cachedir>
</fontconfig>
`;
}

function definedEnvironment(): Record<string, string> {
  return Object.fromEntries(
    Object.entries(process.env).filter((entry): entry is [string, string] => entry[1] !== undefined),
  );
}
