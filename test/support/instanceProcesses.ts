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

export interface Outcome {
  /** When the request was sent and when the response ended, in milliseconds. */
  sent: number;
  came: number;
  /** Undefined if the connection was refused, or ended before the response began. */
  status: number | undefined;
}

/** A client: one address, on connections that it keeps. */
export class Client {
  readonly address: string;
  readonly #agent = new Agent({ keepAlive: true });

  constructor(address: string) {
    this.address = address;
  }

  /** Never rejects: what goes wrong is part of the response. */
  ask(instance: Instance): Promise<Outcome> {
    const outcome: Outcome = { sent: performance.now(), came: 0, status: undefined };
    return new Promise((resolve) => {
      const finish = () => resolve(Object.assign(outcome, { came: performance.now() }));
      const options = { agent: this.#agent, headers: { 'X-Forwarded-For': this.address } };
      get(`${instance.url}${PATH}`, options, (response: IncomingMessage) => {
        outcome.status = response.statusCode;
        response.resume().once('close', finish);
      }).once('error', finish);
    });
  }

  /** Asks the instances that `choose` names, at a pace that does not depend on the responses, for `seconds`. */
  async askFor(seconds: number, rate: number, choose: (i: number) => Instance | undefined): Promise<Outcome[]> {
    const outcomes: Promise<Outcome>[] = [];
    const begin = performance.now();
    for (let i = 0; performance.now() < begin + seconds * 1000; i++) {
      const instance = choose(i);
      if (instance) outcomes.push(this.ask(instance));
      await sleep(Math.max(0, begin + ((i + 1) * 1000) / rate - performance.now()));
    }
    return Promise.all(outcomes);
  }

  close(): void {
    this.#agent.destroy();
  }
}

/** How many of the responses have each status; those that never began count as `none`. */
export function countByStatus(outcomes: readonly Outcome[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { status = 'none' } of outcomes) counts[status] = (counts[status] ?? 0) + 1;
  return counts;
}
