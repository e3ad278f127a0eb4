/** Instances as processes of the built command, and their clients. */
import { type ChildProcess, spawn } from 'node:child_process';
import { Agent, get, type IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { closeDatabase, openDatabase } from '../../src/database/connect.js';
import { packageFolder } from '../../src/packageFolder.js';
import { listeningUrl } from './listeningUrl.js';
import { numberWith, write } from './numbers.js';
import { endWithThisProcess } from './process.js';

const PATH = '/v1/brandedPhoneNumbers';

export interface Instance {
  url: string;
  child: ChildProcess;
}

/** Starts an instance, and returns it once it listens. */
export async function startInstance(environment: Record<string, string>): Promise<Instance> {
  const child = spawn(process.execPath, [join(packageFolder, 'dist/src/main.js'), 'serve'], {
    env: { PATH: process.env.PATH ?? '', PORT: '0', TRUST_PROXY: '1', ...environment },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  endWithThisProcess(child);
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

/** A client with one address and persistent connections. */
export class Client {
  readonly address: string;
  readonly #agent = new Agent({ keepAlive: true });

  constructor(address: string) {
    this.address = address;
  }

  /** Sends a request; an error is an outcome without a status, not a rejection. */
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

  /** Sends `rate` requests a second for `seconds`, without waiting for responses, each to the instance that `choose` returns. */
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

/** Counts the outcomes by status; those without a status count as `none`. */
export function countByStatus(outcomes: readonly Outcome[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { status = 'none' } of outcomes) counts[status] = (counts[status] ?? 0) + 1;
  return counts;
}
