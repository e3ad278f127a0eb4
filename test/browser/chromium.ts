/** A headless Chromium for tests, which needs no other installation than `npm ci`. */
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { type Browser, chromium } from 'playwright-core';
import { packageFolder } from '../../src/packageFolder.js';
import { run } from '../support/programs.js';

const require = createRequire(import.meta.url);

/** Chromium sends no requests to Google's hosts with these flags: all requests are the page's. */
const flags = [
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-gpu',
  '--disable-quic',
  '--disable-sync',
  '--no-first-run',
];

/**
 * Starts the browser at `CHROMIUM_PATH`, or else the one in the npm package @sparticuz/chromium, but without the flags that
 * the package recommends: they are for AWS Lambda, and switch off the same-origin policy.
 */
export async function openChromium(): Promise<Browser> {
  // The sandbox fails as root and in many containers; these tests open only our own pages.
  const options = { args: flags, chromiumSandbox: false };
  const installed = process.env.CHROMIUM_PATH;
  if (installed) return chromium.launch({ ...options, executablePath: installed });
  // The package has a browser for Linux on x64 only.
  if (process.platform !== 'linux' || process.arch !== 'x64') return chromium.launch({ ...options, channel: 'chrome' });
  const folder = await unpackedChromium();
  return chromium.launch({
    ...options,
    executablePath: join(folder, 'chromium'),
    env: { ...(process.env as Record<string, string>), ...(await librariesAndFonts(folder)) },
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
    // Renamed when complete, so that an interrupted run leaves no partial folder of this name.
    await rename(unfinished, folder);
  } catch (error) {
    await rm(unfinished, { recursive: true, force: true });
    // Another process may have unpacked it meanwhile.
    if (!existsSync(folder)) throw error;
  }
  return folder;
}

/**
 * Lets the package unpack into `folder`, in another process, because its environment controls that. CODEBUILD_BUILD_IMAGE
 * makes it unpack the libraries that a bare machine lacks (NSS, NSPR, Expat); they need glibc 2.34 or later.
 */
async function unpackInto(folder: string): Promise<void> {
  const script = "import chromium from '@sparticuz/chromium'; await chromium.executablePath();";
  await run(process.execPath, ['--input-type=module', '--eval', script], {
    cwd: packageFolder,
    env: { TMPDIR: folder, CODEBUILD_BUILD_IMAGE: 'nodejs20' },
  });
}

/** Returns variables for the package's font, and for its libraries if the machine lacks any. */
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
