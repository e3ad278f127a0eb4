/** A client with one address and persistent connections. */
import { Agent, get, type IncomingMessage } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import type { TimedResponse } from '../support/timedResponses.js';

const PATH = '/v1/brandedPhoneNumbers';

export class Client {
  readonly address: string;
  readonly #agent = new Agent({ keepAlive: true });

  constructor(address: string) {
    this.address = address;
  }

  /** Sends a request; an error is a response without a status, not a rejection. */
  request(url: string): Promise<TimedResponse> {
    const timed: TimedResponse = { sentAt: performance.now(), endedAt: 0, status: undefined };
    return new Promise((resolve) => {
      const finish = () => resolve(Object.assign(timed, { endedAt: performance.now() }));
      const options = { agent: this.#agent, headers: { 'X-Forwarded-For': this.address } };
      get(`${url}${PATH}`, options, (response: IncomingMessage) => {
        timed.status = response.statusCode;
        response.resume().once('close', finish);
      }).once('error', finish);
    });
  }

  /** Sends `rate` requests a second for `seconds`, without waiting for responses. */
  async requestFor(url: string, seconds: number, rate: number): Promise<TimedResponse[]> {
    const responses: Promise<TimedResponse>[] = [];
    const begin = performance.now();
    for (let i = 0; performance.now() < begin + seconds * 1000; i++) {
      responses.push(this.request(url));
      await sleep(Math.max(0, begin + ((i + 1) * 1000) / rate - performance.now()));
    }
    return Promise.all(responses);
  }

  close(): void {
    this.#agent.destroy();
  }
}
