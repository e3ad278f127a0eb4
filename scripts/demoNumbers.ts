/**
 * Part of `npm run build`: generates the demo data in demo/: 300 fictitious numbers, the same on every machine. Every status and
 * every feature matches more than one page of numbers, and no filter matches all numbers.
 */

import { mkdirSync, writeFileSync } from 'node:fs';
import type { BrandedPhoneNumber, CarrierStatus, DetailedStatus, Feature } from '../generated/types/models/index.js';
import { dice } from './dice.js';

const random = dice(20_260_203);

/** Returns a whole number from 0 to `end` - 1. */
const below = (end: number) => Math.floor(random() * end);

/** Returns one of the choices, with a probability in proportion to its share. */
function pick<T>(choices: readonly (readonly [choice: T, share: number])[]): T {
  let left = random() * choices.reduce((sum, [, share]) => sum + share, 0);
  for (const [choice, share] of choices) {
    left -= share;
    if (left < 0) return choice;
  }
  throw new Error('no choices');
}

function shuffle<T>(list: readonly T[]): T[] {
  return list
    .map((element) => [random(), element] as const)
    .sort(([a], [b]) => a - b)
    .map(([, element]) => element);
}

/** The relative frequency of each value; '' stands for null. */
type Weights = Record<string, number>;

interface Company {
  share: number;
  id: string;
  businessName: string;
  status: string;
  /** The branding name of at most 15 characters. */
  short: string;
  /** The branding name of at most 32 characters. */
  long: string;
  /** The internal names of its numbers. */
  names: Weights;
}

const companies: Company[] = [
  {
    share: 34,
    id: '6513270e-269e-4d37-b2a7-4de452e6b438',
    businessName: 'Circle Bank',
    status: 'approved',
    short: 'Circle Bank',
    long: 'Circle Bank Financial',
    names: { 'Mortgage Sales Line': 40, 'Main Line': 25, 'Billing & Payments': 20, 'After-hours': 15 },
  },
  {
    share: 16,
    id: '5d9dc9f8-1818-4811-892f-902bd23f0824',
    businessName: 'Quote "Q" Inc',
    status: 'approved',
    short: 'Quote "Q"',
    long: 'Quote "Q" Incorporated',
    names: { 'Main Line': 45, Support: 35, '': 20 },
  },
  {
    share: 15,
    id: '099950d8-36f6-45cc-81e7-4ef5e8e25d94',
    businessName: 'Northwind Health',
    status: 'submitted for review',
    short: 'Northwind',
    long: 'Northwind Health',
    names: { Appointments: 40, 'Claims (US)': 30, 'After-hours': 30 },
  },
  {
    share: 12,
    id: 'a38fd547-923a-4369-94e3-bf911a61dbe2',
    businessName: "O'Neil & Sons",
    status: 'approved',
    short: "O'Neil & Sons",
    long: "O'Neil & Sons Plumbing",
    names: { 'Main Line': 50, 'Billing & Payments': 50 },
  },
  {
    share: 10,
    id: '4a23d596-2217-4ead-9bc4-96cb8e81973e',
    businessName: 'Fjord Travel',
    status: 'approved',
    short: 'Fjord Travel',
    long: 'Fjord Travel and Tours',
    names: { Bookings: 60, 'After-hours': 40 },
  },
  {
    share: 8,
    id: '1738f7d9-3d9c-4724-91e2-0b8f6b0d549b',
    businessName: '東京 Support',
    status: 'submitted for review',
    short: '東京 Support',
    long: '東京 Support US',
    names: { Support: 70, '': 30 },
  },
  {
    share: 5,
    id: '95e761d1-7731-4f10-906b-f2efc6f87718',
    businessName: 'Müller Versicherung',
    status: 'rejected',
    short: 'Müller',
    long: 'Müller Versicherung',
    names: { 'Claims (US)': 100 },
  },
];

const groups: Weights = {
  Control: 26,
  'Test A': 16,
  'Test B': 13,
  'Sales + Service': 12,
  Care: 8,
  'NE Region': 7,
  Collections: 5,
  'A/B, mixed': 3,
  Été: 3,
  '100%': 2,
  '': 5,
};

/**
 * The percentage of numbers with entries at each carrier. A number that would have none gets one carrier by these
 * weights.
 */
const carriers: Weights = { 'AT&T': 58, 'T-Mobile': 60, 'US Cellular': 20, Verizon: 64 };

const features: [features: Feature[], share: number][] = [
  [['brandedCallerId'], 45],
  [['spamRemediation'], 20],
  [['brandedCallerId', 'spamRemediation'], 35],
];

interface Stage {
  /** The number of phone numbers in this stage. */
  count: number;
  /** The choices for the entry that decides the number's status. */
  decisive: readonly DetailedStatus[];
  /** The choices for its other entries. */
  rest: readonly DetailedStatus[];
}

/** The stages that a number goes through, from its registration to its removal. */
const stages: Stage[] = [
  // Approved at all carriers, or opted out at some of them.
  { count: 102, decisive: ['approved.optIn'], rest: ['approved.optIn'] },
  { count: 12, decisive: ['approved.optIn'], rest: ['approved.optOut'] },
  // Newly registered, or registered again.
  {
    count: 31,
    decisive: ['pending.initialOptIn', 'pending.initialOptIn', 'submitted.optIn'],
    rest: ['pending.initialOptIn', 'submitted.optIn', 'submitted.optIn'],
  },
  {
    count: 29,
    decisive: ['pending.optIn', 'pending.optIn', 'submitted.optIn'],
    rest: ['pending.optIn', 'pending.optIn', 'approved.optIn'],
  },
  // Rejected.
  { count: 30, decisive: ['rejected.optIn'], rest: ['approved.optIn', 'approved.optIn', 'rejected.optIn'] },
  { count: 28, decisive: ['rejected.optOut'], rest: ['approved.optOut'] },
  // Opting out, or opted out.
  { count: 39, decisive: ['pending.optOut', 'submitted.optOut'], rest: ['pending.optOut', 'submitted.optOut'] },
  { count: 28, decisive: ['approved.optOut'], rest: ['approved.optOut'] },
];

/** Returns one element, each with the same probability. */
const anyOf = <T>(list: readonly T[]): T => list[below(list.length)] as T;

/** Returns entries at one or more carriers, ordered as in an item; `createdAt` is in milliseconds. */
function entriesIn({ decisive, rest }: Stage, createdAt: number): CarrierStatus[] {
  const numberFeatures = pick(features);
  const drawn = Object.keys(carriers).filter((carrier) => random() * 100 < (carriers[carrier] ?? 0));
  const numberCarriers = drawn.length > 0 ? drawn : [pick(Object.entries(carriers))];
  const pairs = numberCarriers.flatMap((carrier) => numberFeatures.map((feature) => ({ carrier, feature })));
  const decisiveIndex = below(pairs.length);
  return pairs.map((pair, index) => ({
    ...pair,
    detailedStatus: anyOf(index === decisiveIndex ? decisive : rest),
    createdAt: time(createdAt + 200 + below(800)),
  }));
}

const DAY_MS = 86_400_000;
const FIRST_DAY = Date.parse('2025-01-06T00:00:00Z');

/** Returns a time in business hours within a year and a half from `FIRST_DAY`, in milliseconds. */
const randomTime = () => FIRST_DAY + below(540) * DAY_MS + DAY_MS / 2 + below(DAY_MS / 3);

const time = (milliseconds: number) => new Date(milliseconds).toISOString();

/** Returns a UUID of version 7 (RFC 9562) for this time; the rest is random. */
function idOf(milliseconds: number): string {
  const hex = (digits: number) =>
    below(16 ** digits)
      .toString(16)
      .padStart(digits, '0');
  const timestamp = milliseconds.toString(16).padStart(12, '0');
  return `${timestamp.slice(0, 8)}-${timestamp.slice(8)}-7${hex(3)}-${anyOf(['8', '9', 'a', 'b'])}${hex(3)}-${hex(6)}${hex(6)}`;
}

/** A line of an import; it has no status, which is derived. */
type Line = Omit<BrandedPhoneNumber, 'status'>;

/** The number in the contract's examples. It sorts first, so the examples match the response to `size=1`. */
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

/** The area codes of the numbers. In each, 555-0100 to 555-0199 are reserved for fiction. */
const areaCodes = [415, 425, 469, 503, 512, 602, 617, 646, 702, 713, 718, 773, 813, 832, 904, 917, 972];

const possible = areaCodes
  .flatMap((areaCode) => Array.from({ length: 100 }, (_, line) => `+1${areaCode}55501${String(line).padStart(2, '0')}`))
  .filter((phoneNumber) => phoneNumber > shown.phoneNumber);

function lineOf(phoneNumber: string, stage: Stage): Line {
  const { id, businessName, status, short, long, names } = pick(companies.map((company) => [company, company.share]));
  const created = randomTime();
  const carrierStatuses = entriesIn(stage, created);
  return {
    id: idOf(created),
    phoneNumber,
    businessProfile: { id, businessName, status },
    internalName: pick(Object.entries(names)) || null,
    brandingNameShort: short,
    brandingNameLong: long,
    reportingGroup: pick(Object.entries(groups)) || null,
    carrierStatuses,
    createdAt: time(created),
    updatedAt: time(created + DAY_MS + below(60 * DAY_MS)),
  };
}

const numberStages = shuffle(stages.flatMap((stage) => Array.from({ length: stage.count }, () => stage)));
const phoneNumbers = shuffle(possible).slice(0, numberStages.length).sort();
const lines = [shown, ...numberStages.map((stage, index) => lineOf(phoneNumbers[index] as string, stage))];

mkdirSync('demo', { recursive: true });
writeFileSync('demo/numbers.ndjson', lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
