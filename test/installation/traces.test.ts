/** The commands of "Traces" in docs/operations.md, word for word except for the collectors' addresses. */
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { packageFolder } from '../../src/packageFolder.js';
import { run } from '../support/programs.js';
import { startServer } from '../support/serverProcess.js';
import { useTemporaryFolder } from '../support/temporaryFolder.js';
import { until } from '../support/until.js';
import { copyCheckout } from './checkout.js';

const TRACE_ID = '0af7651916cd43dd8448eb211c80319c';
const TRACEPARENT = `00-${TRACE_ID}-b7ad6b7169203331-01`;

/** The bytes that an agent has sent; in every format, a span contains its request in plain text. */
let traces = '';
const collector = createServer(async (request, response) => {
  const sent = Buffer.concat(await request.toArray()).toString('latin1');
  if (request.url?.endsWith('/traces')) traces += sent;
  response.setHeader('Content-Type', 'application/json').end('{}');
});

const folder = useTemporaryFolder('branded phone numbers traced-');
let blocks: string[];
beforeAll(async () => {
  await new Promise<void>((resolve) => collector.listen(0, '127.0.0.1', resolve));
  const { port } = collector.address() as AddressInfo;
  const manual = await readFile(join(packageFolder, 'docs', 'operations.md'), 'utf8');
  const [, section = ''] = /\n\*\*Traces\.\*\*(.*?)(?:\n## |$)/s.exec(manual) ?? [];
  blocks = [...section.matchAll(/```sh\n(.*?)```/gs)].map(([, block = '']) =>
    block.replace(/http:\/\/(collector|agent):\d+/, `http://127.0.0.1:${port}`),
  );
  await copyCheckout(folder.path);
  await run('cp', ['-a', 'node_modules', 'dist', folder.path], { cwd: packageFolder });
});
afterAll(() => void collector.close());

const OPENTELEMETRY = { trace_id: TRACE_ID, span_id: expect.stringMatching(/^[\da-f]{16}$/) };
const DATADOG = { dd: expect.objectContaining({ trace_id: TRACE_ID, span_id: expect.stringMatching(/^\d+$/) }) };

/** The commands for OpenTelemetry without some; the first test has installed it. */
const installed = (...left: RegExp[]) =>
  [/^npm .*\n/m, ...left].reduce((text, line) => text.replace(line, ''), blocks[0] ?? '');

it.each([
  ['OpenTelemetry with some instrumentations', () => blocks[0], OPENTELEMETRY],
  ['OpenTelemetry with all instrumentations', () => installed(/^export OTEL_NODE_.*\n/m), OPENTELEMETRY],
  ['OpenTelemetry loaded by NODE_OPTIONS', () => `${installed(/^node .*/ms)}${blocks[1]}`, OPENTELEMETRY],
  ['Datadog', () => blocks[2], DATADOG],
])('%s: requests are traced, and their log lines name the trace', async (_name, script, ids) => {
  traces = '';
  const service = await startServer(['bash', '-ec', script() ?? ''], {}, { folder: folder.path });
  try {
    // A new query, because the service remembers those that it has validated.
    const url = `${service.url}/v1/brandedPhoneNumbers?status=approved`;
    const response = await fetch(url, { headers: { traceparent: TRACEPARENT, connection: 'close' } });
    expect([response.status, await response.json()]).toEqual([200, { items: [], nextCursor: null }]);
    const lines = () =>
      service
        .output()
        .split('\n')
        .filter((line) => line.includes('"route":"/v1/brandedPhoneNumbers"'));
    await until(() => lines().length > 0, 'the request is logged');
    expect(JSON.parse(lines()[0] ?? '')).toMatchObject({ status: 200, ...ids });
  } finally {
    await service.stop();
  }
  expect(traces).toContain('GET /v1/brandedPhoneNumbers');
});
