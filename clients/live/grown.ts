/**
 * A proxy that simulates a later version of the service: it adds to each response what the deprecation policy allows
 * without notice. Current clients must not fail.
 */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { BrandedPhoneNumber, BrandedPhoneNumberPage } from '../../generated/types/models/index.js';

export async function startGrown(serviceUrl: string): Promise<{ url: string; close(): void }> {
  const server = createServer(async (request, response) => {
    const forwarded = await fetch(serviceUrl + request.url);
    const body = (await forwarded.json()) as BrandedPhoneNumberPage;
    response.writeHead(forwarded.status, {
      'Content-Type': forwarded.headers.get('Content-Type') ?? '',
      'X-Region': 'us-1',
    });
    response.end(
      JSON.stringify(forwarded.ok ? { ...body, total: 240, items: body.items.map(grow) } : { ...body, region: 'us-1' }),
    );
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () => server.close(),
  };
}

/** Adds new members at every level, and a new value to each list of values. */
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
