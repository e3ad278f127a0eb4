/** HAProxy with the file of deploy/, and clients of it or of another proxy. */
import { spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import { text } from 'node:stream/consumers';
import { makeAuthority } from './certificates.js';
import { place } from './placed.js';
import { endProcess, endWithThisProcess } from './process.js';
import type { TimedResponse } from './timedResponses.js';

const HOST = 'numbers.example.com';

export interface PageResponse extends TimedResponse {
  /** 0 if the connection failed. */
  status: number;
  headers: http.IncomingHttpHeaders;
  /** The reason if the connection failed. */
  body: string;
}

/** Sends a request of a client, 0 to 249, each of which has its own address and so its own limit. */
export function requestFrom(
  client: number,
  url: string,
  options: https.RequestOptions = {},
  sent?: Buffer,
): Promise<PageResponse> {
  const sentAt = performance.now();
  const { request } = url.startsWith('https:') ? https : http;
  return new Promise((resolve) => {
    const end = (status: number, body: string, headers: http.IncomingHttpHeaders = {}) =>
      resolve({ status, headers, body, sentAt, endedAt: performance.now() });
    const fail = (error: unknown) => end(0, String(error));
    request(url, { ...options, localAddress: `127.0.0.${client + 2}` })
      .on('response', (response) => {
        const { statusCode = 0, headers } = response;
        text(response).then((body) => end(statusCode, body, headers), fail);
      })
      .on('error', fail)
      .end(sent);
  });
}

/** Starts HAProxy in a loopback network, such as `127.7`, which replaces 10.0 and 127.0 in its file. */
export async function startHaproxy(network: string, folder: string) {
  const { file, issue } = makeAuthority(folder);
  issue('instances', HOST, `DNS:${HOST}`);
  const pair = ['instances.pem', 'instances.key'].map((name) => readFileSync(file(name), 'utf8'));
  writeFileSync(file('numbers.pem'), pair.join(''));
  const args = ['-f', await place('haproxy/haproxy.cfg', network, folder), '-db', '-q', '-dW'];
  const child = spawn('haproxy', args, { stdio: ['ignore', 'ignore', 'inherit'] });
  endWithThisProcess(child);
  const agent = new https.Agent({ keepAlive: true, ca: readFileSync(file('ca.pem')), servername: HOST });
  const url = `https://${network}.0.1:8443`;
  return {
    url,
    /** Requests a page. */
    get: (search = '', client = 0, headers = {}) =>
      requestFrom(client, `${url}/v1/brandedPhoneNumbers${search}`, { agent, headers }),
    async stop() {
      agent.destroy();
      await endProcess(child);
    },
  };
}
