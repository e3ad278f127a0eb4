/** Instances as processes of the built command, and clients that ask them. */
import { type ChildProcess, spawn } from 'node:child_process';
import { Agent, get, type IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { closeDatabase, openDatabase } from '../../src/database/connect.js';
import { packageFolder } from '../../src/packageFolder.js';
import { listeningUrl } from './listeningUrl.js';
import { numberWith, write } from './numbers.js';

const PATH = '/v1/brandedPhoneNumbers';

export interface Instance {
  url: string;
  child: ChildProcess;
}

/** Starts an instance, and waits until it listens. */
export async function startInstance(environment: Record<string, string>): Promise<Instance> {
  const child = spawn(process.execPath, [join(packageFolder, 'dist/src/main.js'), 'serve'], {
    env: { PATH: process.env.PATH ?? '', PORT: '0', TRUST_PROXY: '1', ...environment },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const end = () => void child.kill('SIGKILL');
  process.once('exit', end);
  child.once('exit', () => process.off('exit', end));
  return { url: await listeningUrl(child.stdout), child };
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
  /** When the request was sent and when the answer ended, in milliseconds. */
  sent: number;
  came: number;
  /** Undefined if the connection was refused, or ended before the answer began. */
  status: number | undefined;
}

/** A client: one address, on connections that it keeps. */
export class Client {
  readonly address: string;
  readonly #agent = new Agent({ keepAlive: true });

  constructor(address: string) {
    this.address = address;
  }

  /** Never rejects: what goes wrong is part of the answer. */
  ask(instance: Instance): Promise<Answer> {
    const answer: Answer = { sent: performance.now(), came: 0, status: undefined };
    return new Promise((resolve) => {
      const finish = () => resolve(Object.assign(answer, { came: performance.now() }));
      const options = { agent: this.#agent, headers: { 'X-Forwarded-For': this.address } };
      get(`${instance.url}${PATH}`, options, (response: IncomingMessage) => {
        answer.status = response.statusCode;
        response.resume().once('close', finish);
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
