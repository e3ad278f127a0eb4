/**
 * The demo data: a few hundred fictitious numbers; every status and every feature fills more than a page, and no filter
 * matches all of them. `npm run demo:numbers` writes the file, the same one on every machine; with `--check` it writes
 * nothing and fails if the file differs.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { BrandedPhoneNumber, CarrierStatus, DetailedStatus, Feature } from '../generated/types/models/index.js';
import { packageFolder } from '../src/packageFolder.js';
import { dice } from '../test/support/generatedNumbers.js';

const random = dice(20_260_203);

const below = (end: number) => Math.floor(random() * end);

/** One of the choices, each as likely as its share of the sum. */
function pick<T>(choices: readonly (readonly [share: number, choice: T])[]): T {
  let left = random() * choices.reduce((sum, [share]) => sum + share, 0);
  for (const [share, choice] of choices) {
    left -= share;
    if (left < 0) return choice;
  }
  throw new Error('there is nothing to pick from');
}

function shuffled<T>(list: readonly T[]): T[] {
  return list
    .map((each) => [random(), each] as const)
    .sort(([a], [b]) => a - b)
    .map(([, each]) => each);
}

interface Company {
  id: string;
  businessName: string;
  status: string;
  /** At most 15 characters. */
  short: string;
  /** At most 32 characters. */
  long: string;
  /** What it calls its numbers. */
  names: readonly (readonly [share: number, name: string | null])[];
}

const companies: [share: number, company: Company][] = [
  [
    34,
    {
      id: '6513270e-269e-4d37-b2a7-4de452e6b438',
      businessName: 'Circle Bank',
      status: 'approved',
      short: 'Circle Bank',
      long: 'Circle Bank Financial',
      names: [
        [40, 'Mortgage Sales Line'],
        [25, 'Main Line'],
        [20, 'Billing & Payments'],
        [15, 'After-hours'],
      ],
    },
  ],
  [
    16,
    {
      id: '5d9dc9f8-1818-4811-892f-902bd23f0824',
      businessName: 'Quote "Q" Inc',
      status: 'approved',
      short: 'Quote "Q"',
      long: 'Quote "Q" Incorporated',
      names: [
        [45, 'Main Line'],
        [35, 'Support'],
        [20, null],
      ],
    },
  ],
  [
    15,
    {
      id: '099950d8-36f6-45cc-81e7-4ef5e8e25d94',
      businessName: 'Northwind Health',
      status: 'submitted for review',
      short: 'Northwind',
      long: 'Northwind Health',
      names: [
        [40, 'Appointments'],
        [30, 'Claims (US)'],
        [30, 'After-hours'],
      ],
    },
  ],
  [
    12,
    {
      id: 'a38fd547-923a-4369-94e3-bf911a61dbe2',
      businessName: "O'Neil & Sons",
      status: 'approved',
      short: "O'Neil & Sons",
      long: "O'Neil & Sons Plumbing",
      names: [
        [50, 'Main Line'],
        [50, 'Billing & Payments'],
      ],
    },
  ],
  [
    10,
    {
      id: '4a23d596-2217-4ead-9bc4-96cb8e81973e',
      businessName: 'Fjord Travel',
      status: 'approved',
      short: 'Fjord Travel',
      long: 'Fjord Travel and Tours',
      names: [
        [60, 'Bookings'],
        [40, 'After-hours'],
      ],
    },
  ],
  [
    8,
    {
      id: '1738f7d9-3d9c-4724-91e2-0b8f6b0d549b',
      businessName: '東京 Support',
      status: 'submitted for review',
      short: '東京 Support',
      long: '東京 Support US',
      names: [
        [70, 'Support'],
        [30, null],
      ],
    },
  ],
  [
    5,
    {
      id: '95e761d1-7731-4f10-906b-f2efc6f87718',
      businessName: 'Müller Versicherung',
      status: 'rejected',
      short: 'Müller',
      long: 'Müller Versicherung',
      names: [[100, 'Claims (US)']],
    },
  ],
];

const groups: [share: number, group: string | null][] = [
  [26, 'Control'],
  [16, 'Test A'],
  [13, 'Test B'],
  [12, 'Sales + Service'],
  [8, 'Care'],
  [7, 'NE Region'],
  [5, 'Collections'],
  [3, 'A/B, mixed'],
  [3, 'Été'],
  [2, '100%'],
  [5, null],
];

/** The percentage of numbers that have entries at a carrier; a number that would have none gets one carrier by these shares. */
const carriers: [share: number, carrier: string][] = [
  [58, 'AT&T'],
  [60, 'T-Mobile'],
  [20, 'US Cellular'],
  [64, 'Verizon'],
];

const features: [share: number, features: Feature[]][] = [
  [45, ['brandedCallerId']],
  [20, ['spamRemediation']],
  [35, ['brandedCallerId', 'spamRemediation']],
];

interface Stage {
  /** How many numbers are there. */
  count: number;
  /** What at least one entry is in. */
  sure: readonly DetailedStatus[];
  /** What the others are in. */
  others: readonly DetailedStatus[];
}

/** Where the numbers are on their way into the carriers' lists and out again. */
const stages: Stage[] = [
  // Accepted everywhere; the second, after some carriers let it go.
  { count: 102, sure: ['approved.optIn'], others: ['approved.optIn'] },
  { count: 12, sure: ['approved.optIn'], others: ['approved.optOut'] },
  // New, and changed since.
  {
    count: 31,
    sure: ['pending.initialOptIn', 'pending.initialOptIn', 'submitted.optIn'],
    others: ['pending.initialOptIn', 'submitted.optIn', 'submitted.optIn'],
  },
  {
    count: 29,
    sure: ['pending.optIn', 'pending.optIn', 'submitted.optIn'],
    others: ['pending.optIn', 'pending.optIn', 'approved.optIn'],
  },
  // Refused.
  { count: 30, sure: ['rejected.optIn'], others: ['approved.optIn', 'approved.optIn', 'rejected.optIn'] },
  { count: 28, sure: ['rejected.optOut'], others: ['approved.optOut'] },
  // Leaving, and gone.
  { count: 39, sure: ['pending.optOut', 'submitted.optOut'], others: ['pending.optOut', 'submitted.optOut'] },
  { count: 28, sure: ['approved.optOut'], others: ['approved.optOut'] },
];

const one = <T>(list: readonly T[]): T => list[below(list.length)] as T;

/** Entries at one carrier or more, in the order of an item's. */
function entriesIn({ sure, others }: Stage, since: number): CarrierStatus[] {
  const chosen = pick(features);
  const some = carriers.filter(([share]) => random() * 100 < share).map(([, carrier]) => carrier);
  const at = some.length > 0 ? some : [pick(carriers)];
  const pairs = at.flatMap((carrier) => chosen.map((feature) => ({ carrier, feature })));
  const certain = below(pairs.length);
  return pairs.map((pair, index) => ({
    ...pair,
    detailedStatus: one(index === certain ? sure : others),
    createdAt: time(since + 200 + below(800)),
  }));
}

const DAY_MS = 86_400_000;
const FIRST_DAY = Date.parse('2025-01-06T00:00:00Z');

/** Business hours of a day in the year and a half from `FIRST_DAY`, in milliseconds. */
const someTime = () => FIRST_DAY + below(540) * DAY_MS + DAY_MS / 2 + below(DAY_MS / 3);

const time = (milliseconds: number) => new Date(milliseconds).toISOString();

/** A UUID of version 7 (RFC 9562): made at this time, the rest at random. */
function idOf(milliseconds: number): string {
  const hex = (digits: number) =>
    below(16 ** digits)
      .toString(16)
      .padStart(digits, '0');
  const made = milliseconds.toString(16).padStart(12, '0');
  return `${made.slice(0, 8)}-${made.slice(8)}-7${hex(3)}-${one(['8', '9', 'a', 'b'])}${hex(3)}-${hex(6)}${hex(6)}`;
}

/** A line of an import: the status is derived. */
type Line = Omit<BrandedPhoneNumber, 'status'>;

/** The number of the contract's examples. It comes first in page order, so the examples show what `size=1` answers. */
const shown: Line = {
  id: '0192f1c0-5b7e-7c3a-9d52-3f1f8a6e0b11',
  phoneNumber: '+14155550123',
  businessProfile: { id: '6513270e-269e-4d37-b2a7-4de452e6b438', businessName: 'Circle Bank', status: 'approved' },
  internalName: 'Mortgage Sales Line',
  brandingNameShort: 'Circle Bank',
  brandingNameLong: 'Circle Bank Financial',
  reportingGroup: 'Control',
  carrierStatuses: [
    {
      carrier: 'AT&T',
      feature: 'brandedCallerId',
      detailedStatus: 'pending.initialOptIn',
      createdAt: '2026-02-03T16:49:03.043Z',
    },
  ],
  createdAt: '2026-02-03T16:49:02.748Z',
  updatedAt: '2026-02-03T16:49:02.748Z',
};

/** Area codes of the numbers. In each, 555-0100 to 555-0199 are reserved for fiction. */
const areaCodes = [415, 425, 469, 503, 512, 602, 617, 646, 702, 713, 718, 773, 813, 832, 904, 917, 972];

const possible = areaCodes
  .flatMap((areaCode) => Array.from({ length: 100 }, (_, line) => `+1${areaCode}55501${String(line).padStart(2, '0')}`))
  .filter((phoneNumber) => phoneNumber > shown.phoneNumber);

function lineOf(phoneNumber: string, stage: Stage): Line {
  const { id, businessName, status, short, long, names } = pick(companies);
  const created = someTime();
  const carrierStatuses = entriesIn(stage, created);
  return {
    id: idOf(created),
    phoneNumber,
    businessProfile: { id, businessName, status },
    internalName: pick(names),
    brandingNameShort: short,
    brandingNameLong: long,
    reportingGroup: pick(groups),
    carrierStatuses,
    createdAt: time(created),
    updatedAt: time(created + DAY_MS + below(60 * DAY_MS)),
  };
}

const places = shuffled(stages.flatMap((stage) => Array.from({ length: stage.count }, () => stage)));
const phoneNumbers = shuffled(possible).slice(0, places.length).sort();
const lines = [shown, ...places.map((stage, index) => lineOf(phoneNumbers[index] as string, stage))];

const file = join(packageFolder, 'demo', 'numbers.ndjson');
const right = lines.map((line) => `${JSON.stringify(line)}\n`).join('');
if (right === readFileSync(file, 'utf8')) console.log('The demo data are what the script makes.');
else if (process.argv.includes('--check')) {
  console.error('The demo data are not what the script makes: run `npm run demo:numbers`.');
  process.exitCode = 1;
} else {
  writeFileSync(file, right);
  console.log(`Wrote ${lines.length} numbers into ${file}.`);
}
