/**
 * The service as it may be in a few years: passes every request to the real one and adds to its answers what the
 * deprecation policy allows without notice. It must not break today's clients.
 */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { BrandedPhoneNumber, BrandedPhoneNumberPage } from '../../generated/types/models/index.js';

export async function startGrown(serviceUrl: string): Promise<{ url: string; close(): void }> {
  const server = createServer(async (request, response) => {
    const answer = await fetch(serviceUrl + request.url);
    const body = (await answer.json()) as BrandedPhoneNumberPage;
    response.writeHead(answer.status, { 'Content-Type': answer.headers.get('Content-Type') ?? '', 'X-Region': 'us-1' });
    response.end(
      JSON.stringify(answer.ok ? { ...body, total: 240, items: body.items.map(grow) } : { ...body, region: 'us-1' }),
    );
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () => server.close(),
  };
}

/** New members at every level, and a new value in each list of values. */
const grow = (number: BrandedPhoneNumber) => ({
  ...number,
  status: 'on hold',
  region: { code: 'us-1', zones: [1, 2] },
  businessProfile: { ...number.businessProfile, industry: null },
  carrierStatuses: number.carrierStatuses.map((entry) => ({
    ...entry,
    feature: 'voicemailGreeting',
    detailedStatus: 'expired.optIn',
    reason: 'unpaid',
  })),
});
