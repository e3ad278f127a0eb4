/** Further ends of a log, of its reader and of the process that writes it. */
import { once } from 'node:events';
import { cpSync, mkdirSync, readdirSync, readFileSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { packageFolder } from '../src/packageFolder.js';
import { copyCheckout } from './installation/checkout.js';
import {
  child,
  eventsIn,
  flood,
  folder,
  hang,
  LIMITED,
  LOG,
  listening,
  logInto,
  serveInto,
  start,
  usePrograms,
} from './logging.js';
import { isInstalled } from './support/programs.js';
import { MAIN } from './support/serverProcess.js';

usePrograms();

const terminateTwice = async () => {
  child.kill('SIGTERM');
  await sleep(400);
  child.kill('SIGTERM');
  expect(await once(child, 'exit')).toEqual([null, 'SIGTERM']);
};

it('a log reader that hangs does not keep the process from exiting after a second SIGTERM', async () => {
  await hang(400, process.execPath, [MAIN, 'serve']);
  await terminateTwice();
});

it('a log reader that closes the pipe does not end the service, also if its packages are symbolic links, as pnpm installs them', async () => {
  const app = join(folder, `app-${Date.now()}`);
  await copyCheckout(app);
  cpSync(join(packageFolder, 'dist'), join(app, 'dist'), { recursive: true });
  mkdirSync(join(app, 'node_modules'));
  for (const name of readdirSync(join(packageFolder, 'node_modules'))) {
    symlinkSync(join(packageFolder, 'node_modules', name), join(app, 'node_modules', name));
  }
  const url = await listening(start(process.execPath, [join(app, 'dist/src/main.js'), 'serve']));
  expect((await fetch(`${url}/v1/brandedPhoneNumbers`)).status).toBe(200);
  child.stdout?.destroy();
  await flood(url, 400);
  expect((await fetch(`${url}/healthz`)).status).toBe(200);
  child.kill('SIGINT');
  expect(await once(child, 'exit')).toEqual([0, null]);
});

describe('a log in a file that cannot be written', () => {
  it.skipIf(process.platform !== 'linux')('does not keep the service from exiting after SIGTERM', async () => {
    const url = await serveInto('/dev/full', { DRAIN_SECONDS: '0' });
    await flood(url, 100);
    child.kill('SIGTERM');
    expect(await once(child, 'exit')).toEqual([0, null]);
  });

  it.skipIf(process.platform !== 'linux')('does not keep the service from exiting after a second SIGTERM', async () => {
    const url = await serveInto('/dev/full', { DRAIN_SECONDS: '60' });
    await flood(url, 100);
    await terminateTwice();
  });

  it.runIf(isInstalled('prlimit'))(
    'counts the lost lines even if only a byte of the space was missing before them',
    async () => {
      const file = join(folder, 'counted');
      // The first line exceeds the limit of 16 KB by a byte, so that the buffer is still full once that byte is written.
      const script = `
      import { openLog } from '${LOG}';
      import { execFileSync } from 'node:child_process';
      import { readFileSync } from 'node:fs';
      import { hostname } from 'node:os';
      import { setTimeout as sleep } from 'node:timers/promises';
      const log = openLog({ LOG_LEVEL: 'info' });
      const empty = JSON.stringify({ level: 30, time: Date.now(), pid: process.pid, hostname: hostname(), msg: '' }) + '\\n';
      log.info('x'.repeat(16 * 1024 + 1 - empty.length));
      await sleep(300);
      for (let i = 1; i < 6000; i++) log.info('x'.repeat(900));
      execFileSync('prlimit', ['--pid', String(process.pid), '--fsize=unlimited:unlimited']);
      while (!readFileSync(process.argv[1], 'utf8').includes('lostLines')) await sleep(100);`;
      await logInto(file, 'bash', ['-c', LIMITED, process.execPath, '--input-type=module', '--eval', script, file]);
      expect((await once(child, 'exit'))[0]).toBe(0);
      const events = eventsIn(readFileSync(file, 'utf8'));
      const lost = events.filter(({ lostLines }) => lostLines).map(({ lostLines }) => lostLines);
      expect(lost).toHaveLength(1);
      expect(events.length - 1 + lost[0]).toBe(6000);
    },
  );
});
