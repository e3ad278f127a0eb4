/** The log: readable lines on a terminal, JSON otherwise; on outputs that hang or are full. log.soak.test.ts has further ends. */
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { stripVTControlCharacters } from 'node:util';
import { describe, expect, it } from 'vitest';
import { contract } from '../src/contract.js';
import {
  child,
  databaseUrl,
  eventsIn,
  flood,
  folder,
  hang,
  LIMITED,
  LOG,
  listening,
  logging,
  logInto,
  serveInto,
  start,
  usePrograms,
} from './logging.js';
import { runServe } from './support/command.js';
import { isInstalled } from './support/programs.js';
import { MAIN } from './support/serverProcess.js';
import { until } from './support/until.js';

const CTRL_C = '\x03';

usePrograms();

/**
 * Returns the arguments of `script` that run Node in a terminal, as its only process: `script` passes signals on to
 * nothing else, and without exec, some shells keep running and receive the Ctrl-C, too.
 */
function terminal(...args: string[]): string[] {
  const command = [process.execPath, ...args].map((arg) => `'${arg}'`).join(' ');
  return ['--quiet', '--return', '--command', `exec ${command}`, '/dev/null'];
}

it('the log is readable on a terminal, with one line per event', async () => {
  const output = start('script', terminal(MAIN, 'serve'));
  const url = await listening(output);
  expect((await fetch(`${url}/v1/brandedPhoneNumbers`)).status).toBe(200);
  await until(() => output().includes('"status":200'), 'the request is logged');
  child.stdin?.write(CTRL_C);
  expect(await once(child, 'close')).toEqual([0, null]);

  const lines = stripVTControlCharacters(output())
    .replace('^C', '') // the terminal echoes it before the next line
    .split('\r\n')
    .filter((line) => /\b(INFO|WARN|ERROR)\b/.test(line));
  expect(lines.filter((line) => !/^\[\d\d:\d\d:\d\d\.\d{3}\] (INFO|WARN): /.test(line))).toEqual([]);
  expect(lines).toEqual(
    expect.arrayContaining([
      expect.stringMatching(/INFO: listening on http:/),
      expect.stringMatching(/INFO: \{.*"route":"\/v1\/brandedPhoneNumbers","status":200.*\}$/),
      expect.stringMatching(/INFO: SIGINT: closing$/),
    ]),
  );
});

it('the log is JSON without a terminal, and omits successful health checks', async () => {
  const service = await runServe([], { DATABASE_URL: databaseUrl });
  await service.untilAlive();
  await service.untilReady();
  expect((await service.get('/v1/brandedPhoneNumbers'))?.status).toBe(200);
  service.stop('SIGINT');
  expect(await service.end()).toBe(0);
  const events = eventsIn(service.out.stdout);
  expect(events[0]).toMatchObject({ level: 30, version: contract.info.version, msg: 'starting' });
  expect(events).toEqual(
    expect.arrayContaining([
      expect.objectContaining({ level: 30, msg: expect.stringMatching(/^listening on /) }),
      expect.objectContaining({ level: 30, route: '/v1/brandedPhoneNumbers', status: 200 }),
      expect.objectContaining({ level: 30, msg: 'SIGINT: closing' }),
    ]),
  );
  expect(events.filter(({ route = '', status }) => /z$/.test(route) && status === 200)).toEqual([]);
});

describe('a log reader that hangs', () => {
  it('loses the lines beyond the buffer, and their number is logged once it reads again', async () => {
    const { url, output } = await hang(2000, process.execPath, [logging()]);
    expect((await fetch(url)).status).toBe(404);
    child.stdout?.resume();
    await until(() => /"lostLines":\d+/.test(output()), 'the number of lost lines is logged');
    const lost = Number(/"lostLines":(\d+)/.exec(output())?.[1]);
    const kept = () => output().split('"status":404').length - 1;
    await until(() => kept() + lost >= 2001, 'all other lines are read');
    expect(kept() + lost).toBe(2001);
    expect(output().length).toBeLessThan(6_000_000);
  });

  it('does not keep the process from exiting with 0 after SIGTERM', async () => {
    await hang(400, process.execPath, [MAIN, 'serve']);
    child.kill('SIGTERM');
    expect(await once(child, 'exit')).toEqual([0, null]);
  });
});

it('a log on a terminal that is paused keeps a program neither from responding nor from exiting', async () => {
  const { url } = await hang(300, 'script', terminal(logging()));
  expect((await fetch(url)).status).toBe(404);
  const program = Number(readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, 'utf8'));
  process.kill(program, 'SIGTERM');
  // Its command line is empty once it has ended, and gone once `script` has waited for it.
  const commandLine = () => readFile(`/proc/${program}/cmdline`, 'utf8').catch(() => '');
  await until(async () => (await commandLine()) === '', 'it ends');
});

it('the log has all lines of a program that flushes it and exits, also those logged during a write', async () => {
  const script = `
    import { flushLog, openLog } from '${LOG}';
    const log = openLog({ LOG_LEVEL: 'info' });
    log.info('x'.repeat(17_000));
    log.info('last');
    await flushLog(log);
    process.exit();`;
  const output = start(process.execPath, ['--input-type=module', '--eval', script]);
  expect(await once(child, 'close')).toEqual([0, null]);
  expect(eventsIn(output()).map(({ msg }) => msg.slice(-4))).toEqual(['xxxx', 'last']);
});

describe('a log in a file that cannot be written', () => {
  it.skipIf(process.platform !== 'linux')(
    'does not keep the reason for a failed start from standard error',
    async () => {
      const settings = { DATABASE_URL: databaseUrl, PORT: '0', METRICS_PORT: '1', METRICS_HOST: '192.0.2.1' };
      await logInto('/dev/full', process.execPath, [MAIN, 'serve'], settings);
      let reason = '';
      child.stderr?.on('data', (data) => (reason += data));
      expect(await once(child, 'close')).toEqual([1, null]);
      expect(reason).toMatch(/address not available 192\.0\.2\.1.*; choose another METRICS_PORT or METRICS_HOST\n$/);
    },
  );

  it.runIf(isInstalled('prlimit'))(
    'loses only lines beyond the buffer, and continues once there is space',
    async () => {
      const file = join(folder, 'log');
      const url = await serveInto(file, {}, 'bash', ['-c', LIMITED, process.execPath, logging()]);
      await flood(url, 2000);
      execFileSync('prlimit', ['--pid', String(child.pid), '--fsize=unlimited:unlimited']);
      await until(() => readFileSync(file, 'utf8').includes('"lostLines"'), 'the number of lost lines is logged');
      child.kill('SIGTERM');
      expect((await once(child, 'exit'))[0]).toBe(0);
      const events = eventsIn(readFileSync(file, 'utf8'));
      // On a busy machine, lines are lost more than once.
      const lost = events.reduce((sum, { lostLines = 0 }) => sum + lostLines, 0);
      // With the request of `serveInto`.
      expect(events.filter(({ status }) => status === 404).length + lost).toBe(2001);
      expect(events.at(-1)).toMatchObject({ msg: 'SIGTERM: closing' });
    },
  );
});
