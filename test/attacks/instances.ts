/** Instances as processes of the built command, clients that ask them, and checks of their answers. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { Agent, get, type IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'vitest';
import { closeDatabase, openDatabase } from '../../src/database/connect.js';
import { packageFolder } from '../../src/packageFolder.js';
import { listeningUrl } from '../listeningUrl.js';
import { numberWith, write } from '../numbers.js';

const PATH = '/v1/brandedPhoneNumbers';

export interface Instance {
  url: string;
  child: ChildProcess;
  /** When SIGTERM was sent to it, in milliseconds. */
  stopSentAt: number | undefined;
  /** Whether the limit's store was late for it, as its log says. Then it counted on its own for a moment. */
  countedAlone: boolean;
  /** Sends SIGTERM; resolves to the exit status. */
  stop(): Promise<number | null>;
}

/** Starts an instance in `folder`, and waits until it listens. */
export async function startInstance(
  environment: Record<string, string>,
  folder: string = packageFolder,
): Promise<Instance> {
  const child = spawn(process.execPath, [join(packageFolder, 'dist/src/main.js'), 'serve'], {
    cwd: folder,
    env: { PATH: process.env.PATH ?? '', HOME: folder, PORT: '0', TRUST_PROXY: '1', ...environment },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const end = () => void child.kill('SIGKILL');
  process.once('exit', end);
  const exited = once(child, 'exit').finally(() => process.off('exit', end));
  const instance: Instance = {
    url: '',
    child,
    stopSentAt: undefined,
    countedAlone: false,
    async stop() {
      instance.stopSentAt = performance.now();
      child.kill('SIGTERM');
      const [code] = await exited;
      return code;
    },
  };
  child.stdout.on('data', (text) => {
    instance.countedAlone ||= String(text).includes('the rate limit store failed');
  });
  instance.url = await listeningUrl(child.stdout);
  return instance;
}

/** Writes 30 numbers into a migrated database. */
export async function writeNumbers(url: string): Promise<void> {
  const database = openDatabase(url);
  await write(
    database,
    Array.from({ length: 30 }, (_, i) => numberWith({ phoneNumber: `+141555501${10 + i}` })),
  );
  await closeDatabase(database);
}

export interface Answer {
  instance: Instance;
  /** When the request was sent and when the answer ended, in milliseconds. */
  sent: number;
  came: number;
  /** Undefined if the connection was refused, or ended before the answer began. */
  status: number | undefined;
  /** Whether the answer was complete. */
  isWhole: boolean;
  retryAfter: string | undefined;
  body: string;
}

/** A client: one address, on connections that it keeps. */
export class Client {
  readonly address: string;
  readonly #agent = new Agent({ keepAlive: true });

  constructor(address: string) {
    this.address = address;
  }

  /** Never rejects: what goes wrong is part of the answer. */
  ask(instance: Instance, search = ''): Promise<Answer> {
    const answer: Answer = {
      ...{ instance, sent: performance.now(), came: 0, status: undefined },
      ...{ isWhole: false, retryAfter: undefined, body: '' },
    };
    return new Promise((resolve) => {
      const finish = () => resolve(Object.assign(answer, { came: performance.now() }));
      const options = { agent: this.#agent, headers: { 'X-Forwarded-For': this.address } };
      get(`${instance.url}${PATH}${search}`, options, (response: IncomingMessage) => {
        answer.status = response.statusCode;
        answer.retryAfter = response.headers['retry-after'];
        response.setEncoding('utf8').on('data', (chunk) => {
          answer.body += chunk;
        });
        response.once('close', () => {
          answer.isWhole = response.complete;
          finish();
        });
      }).once('error', finish);
    });
  }

  /** Asks the instances that `choose` names, at a pace that does not depend on the answers, for `seconds`. */
  async askFor(seconds: number, rate: number, choose: (i: number) => Instance | undefined): Promise<Answer[]> {
    const answers: Promise<Answer>[] = [];
    const begin = performance.now();
    for (let i = 0; performance.now() < begin + seconds * 1000; i++) {
      const instance = choose(i);
      if (instance) answers.push(this.ask(instance));
      await sleep(Math.max(0, begin + ((i + 1) * 1000) / rate - performance.now()));
    }
    return Promise.all(answers);
  }

  close(): void {
    this.#agent.destroy();
  }
}

/** How many of the answers have each status; those that never began count as `none`. */
export function countByStatus(answers: readonly Answer[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { status = 'none' } of answers) counts[status] = (counts[status] ?? 0) + 1;
  return counts;
}

/** Fails unless the answers of a client within its limit are pages; on a busy machine some may come too close together. */
export function expectServed(answers: readonly Answer[]): void {
  const counts = countByStatus(answers);
  expect(Object.keys(counts).filter((status) => status !== '200' && status !== '429')).toEqual([]);
  expect(counts[200]).toBeGreaterThanOrEqual(0.7 * answers.length);
}
