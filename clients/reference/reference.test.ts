/** Tests a client that is generated for the public reference, since such clients must keep working with this service. */
import { Configuration, ReferenceApi, type ResponseError } from 'reference-client';
import { describe, expect, it } from 'vitest';

const { SERVICE_URL = '', LIMITED_URL = '' } = process.env;
const api = new ReferenceApi(new Configuration({ basePath: SERVICE_URL }));

describe('A client of the public reference', () => {
  it('reads all pages by nextCursor, with a size that it sends as a string', async () => {
    const seen: string[] = [];
    let nextCursor: string | null | undefined;
    do {
      const page = await api.listBrandedPhoneNumbers({ size: '50', ...(nextCursor && { nextCursor }) });
      seen.push(...page.items.map((item) => item.phoneNumber));
      nextCursor = page.nextCursor;
    } while (nextCursor);
    expect(seen).toEqual(Array.from({ length: 240 }, (_, i) => `+1415555${String(i).padStart(4, '0')}`));
  });

  it('filters by every parameter at once', async () => {
    const { items } = await api.listBrandedPhoneNumbers({
      phoneNumber: '+14155550010',
      businessProfileId: '6513270e-269e-4d37-b2a7-4de452e6b438',
      reportingGroup: ['Control', 'Sales + Service'],
      internalName: ['A+B, 100%'],
      detailedStatus: ['approved.optIn'],
      status: ['approved', 'approved.optIn'],
      feature: ['brandedCallerId'],
      carrier: ['AT&T'],
    });
    expect(items.map((item) => item.phoneNumber)).toEqual(['+14155550010']);
  });

  it('reads every member that it knows', async () => {
    const { items } = await api.listBrandedPhoneNumbers({ phoneNumber: '+14155550001' });
    expect(items).toEqual([
      {
        id: expect.stringMatching(/^[0-9a-f-]{36}$/),
        phoneNumber: '+14155550001',
        businessProfile: {
          id: '5d9dc9f8-1818-4811-892f-902bd23f0824',
          businessName: 'Fjord "Travel"',
          status: 'submitted for review',
        },
        internalName: 'Billing & Payments',
        brandingNameShort: 'Café & Co',
        brandingNameLong: null,
        reportingGroup: 'Sales + Service',
        status: 'rejected',
        carrierStatuses: [
          {
            carrier: 'AT&T',
            feature: 'brandedCallerId',
            detailedStatus: 'rejected.optIn',
            createdAt: new Date('2026-02-03T16:49:02.748Z'),
          },
          {
            carrier: 'T-Mobile',
            feature: 'spamRemediation',
            detailedStatus: 'approved.optIn',
            createdAt: new Date('2026-02-03T16:49:02.748Z'),
          },
        ],
        createdAt: new Date('2026-02-03T16:49:02.748Z'),
        updatedAt: expect.any(Date),
      },
    ]);
  });

  it('reads the message of an error', async () => {
    const error: ResponseError = await api.listBrandedPhoneNumbers({ size: '0x10' }).catch((thrown) => thrown);
    expect(error.response.status).toBe(400);
    expect(await error.response.json()).toMatchObject({ message: 'Invalid Request' });
  });

  it('reads "Rate Limit Exceeded" in a 429', async () => {
    const limited = new ReferenceApi(new Configuration({ basePath: LIMITED_URL }));
    let refused: PromiseRejectedResult | undefined;
    // A busy machine may take longer than a second for thirty requests.
    while (!refused) {
      const answers = await Promise.allSettled(Array.from({ length: 30 }, () => limited.listBrandedPhoneNumbers()));
      refused = answers.find((answer) => answer.status === 'rejected');
    }
    expect(await refused.reason.response.json()).toMatchObject({ message: 'Rate Limit Exceeded' });
  });
});
