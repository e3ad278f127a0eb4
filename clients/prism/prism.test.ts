/** Tests Prism's mock server for the contract with random responses: `prism mock --dynamic`. */
import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { freePort } from '../../test/support/port.js';

const root = join(import.meta.dirname, '..', '..');
/** Without examples in the contract, the bounds of its schemas would allow pages of 19 MB. */
const MAX_BYTES = 50_000;
const MAX_ITEMS = 3;

let mock: ChildProcess;
let url: string;

beforeAll(async () => {
  const port = await freePort();
  url = `http://127.0.0.1:${port}/v1/brandedPhoneNumbers`;
  const program = join(String(process.env.CACHE), 'prism', 'node_modules', '.bin', 'prism');
  const options = ['mock', '--dynamic', '--host', '127.0.0.1', '--port', String(port)];
  mock = spawn(program, [...options, join(root, 'openapi', 'openapi.yaml')], { stdio: ['ignore', 'pipe', 'inherit'] });
  for await (const line of createInterface(mock.stdout as NodeJS.ReadableStream)) {
    if (!line.includes('is listening')) continue;
    mock.stdout?.resume();
    return;
  }
  throw new Error('the mock did not start');
});
afterAll(() => mock.kill());

it('the mock responds with pages of a realistic size', async () => {
  for (let i = 0; i < 20; i++) {
    const response = await fetch(`${url}?carrier=Verizon&size=100`);
    const body = await response.text();
    expect(response.status).toBe(200);
    expect(body.length).toBeLessThan(MAX_BYTES);
    const { items } = JSON.parse(body) as { items: { phoneNumber: string; carrierStatuses: object[] }[] };
    for (const list of [items, ...items.map(({ carrierStatuses }) => carrierStatuses)]) {
      expect(list.length).toBeGreaterThan(0);
      expect(list.length).toBeLessThanOrEqual(MAX_ITEMS);
    }
    for (const { phoneNumber } of items) expect(phoneNumber).toMatch(/^\+[1-9]\d{1,14}$/);
  }
});

it('the mock rejects a request that the contract does not allow', async () => {
  expect((await fetch(`${url}?size=101`)).status).toBe(400);
});
