/** The numbers that the clients are tested with: several pages, with values that are hard to encode or decode. */
import type { CarrierStatus } from '../../generated/types/models/index.js';

const PROFILES = [
  { id: '6513270e-269e-4d37-b2a7-4de452e6b438', businessName: 'Circle Bank', status: 'approved' },
  { id: '5d9dc9f8-1818-4811-892f-902bd23f0824', businessName: 'Fjord "Travel"', status: 'submitted for review' },
];
const NAMES = ['Main Line', 'Billing & Payments', 'A+B, 100%', null];
/** A name that a program has to escape. One number has it: +14155550187. */
export const ESCAPED_NAME = `Zoë's "$& $1" \\u0041 電話 📞\\`;
const GROUPS = ['Control', 'Sales + Service', null];
const STATUSES = [
  'approved.optIn',
  'rejected.optIn',
  'pending.initialOptIn',
  'approved.optOut',
  'submitted.optOut',
] as const;

const createdAt = '2026-02-03T16:49:02.748Z';
/** Times whose last digits are zeros, which some languages do not write by default. */
const ROUND_TIMES = ['2026-02-03T16:49:02.800Z', '2026-02-03T16:49:02.000Z'];

/** The 240 lines of an import. The phone number of line i is +1415555 and i in four digits. */
export const lines = Array.from({ length: 240 }, (_, i) =>
  JSON.stringify({
    phoneNumber: `+1415555${String(i).padStart(4, '0')}`,
    businessProfile: PROFILES[i % 2],
    internalName: i === 187 ? ESCAPED_NAME : NAMES[i % 4],
    brandingNameShort: i % 2 ? 'Café & Co' : null,
    brandingNameLong: null,
    reportingGroup: GROUPS[i % 3],
    carrierStatuses: entries(i),
    createdAt,
  }),
);

/** Returns the carrier statuses of line i; every sixth line has none. */
function entries(i: number): CarrierStatus[] {
  if (i % 6 === 5) return [];
  const branded: CarrierStatus = {
    carrier: 'AT&T',
    feature: 'brandedCallerId',
    detailedStatus: STATUSES[i % 5] ?? 'approved.optIn',
    createdAt,
  };
  const remedied: CarrierStatus = {
    carrier: 'T-Mobile',
    feature: 'spamRemediation',
    detailedStatus: 'approved.optIn',
    createdAt: ROUND_TIMES[(i - 13) / 2] ?? createdAt,
  };
  return i % 2 ? [branded, remedied] : [branded];
}
