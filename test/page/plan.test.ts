import { describe, expect, it } from 'vitest';
import type { ListBrandedPhoneNumbersRequest } from '../../generated/types/apis/index.js';
import { DetailedStatus } from '../../generated/types/models/index.js';
import { filterOf, limitToProfiles } from '../../src/page/filter.js';
import { maxTerms, nextStep } from '../../src/page/plan.js';

/** The budget for the first step of a page of 25, in candidates to test. */
const BUDGET = 32 * 26;
/** The number of detailed statuses that put a number in review. */
const IN_REVIEW = Object.values(DetailedStatus).filter((status) => /^(pending|submitted)/.test(status)).length;
const ids = (count: number) => Array.from({ length: count }, (_, index) => `${index}`);

function stepFor(request: ListBrandedPhoneNumbersRequest, budget = BUDGET, visibleProfiles: string[] | null = null) {
  const filter = limitToProfiles(filterOf(request), visibleProfiles);
  return nextStep(filter, maxTerms(filter), budget);
}

describe('nextStep', () => {
  it('reads all numbers without a filter, and a single number if the filter has a phone number', () => {
    expect(stepFor({})).toEqual({ read: 'all' });
    expect(stepFor({ phoneNumber: '+1', reportingGroup: ['A'], carrier: ['B'] })).toEqual({ read: 'number' });
  });

  it('reads the ranges of a single attribute, no matter how many values it has', () => {
    const scan = { table: 'items', attribute: 'internalName' };
    expect(stepFor({ internalName: ids(50) })).toEqual({ read: 'ranges', scan });
    expect(stepFor({}, BUDGET, ids(2000))).toMatchObject({ scan: { table: 'items', attribute: 'businessProfileId' } });
  });

  it('reads the ranges of terms, also within the values of a single attribute', () => {
    expect(stepFor({ status: ['approved'] })).toEqual({ read: 'ranges', scan: { table: 'postings', attribute: null } });
    const scan = { table: 'postings', attribute: 'reportingGroup' };
    expect(stepFor({ reportingGroup: ids(5), detailedStatus: Object.values(DetailedStatus) })).toEqual({
      read: 'ranges',
      scan,
    });
  });

  it('reads candidates while exact ranges would exceed the budget', () => {
    const request = { reportingGroup: ids(45), feature: ['spamRemediation' as const] };
    expect(stepFor(request)).toEqual({
      read: 'candidates',
      scans: [
        { scan: { table: 'items', attribute: 'reportingGroup' }, cost: 4 },
        { scan: { table: 'postings', attribute: null }, cost: 4 },
      ],
    });
    expect(stepFor(request, 4 * BUDGET)).toMatchObject({ read: 'ranges', scan: { attribute: 'reportingGroup' } });
  });

  it('reads candidates of each attribute and of the terms if the filter has several attributes', () => {
    const scans = (request: ListBrandedPhoneNumbersRequest) => {
      const step = stepFor(request);
      return step.read === 'candidates'
        ? step.scans.map(({ scan, cost }) => `${scan.table} ${scan.attribute} ${cost}`)
        : step.read;
    };
    const scansOfItems = ['items reportingGroup 1', 'items internalName 1'];
    expect(scans({ reportingGroup: ids(2), internalName: ids(50) })).toEqual(scansOfItems);
    expect(scans({ reportingGroup: ids(2), internalName: ids(50), carrier: ['A'] })).toEqual([
      ...scansOfItems,
      'postings reportingGroup 4',
    ]);
    expect(scans({ reportingGroup: ids(50), internalName: ids(50), carrier: ['A'] })).toEqual([
      ...scansOfItems,
      'postings null 4',
    ]);
    expect(scans({ reportingGroup: ids(2), internalName: ids(50), carrier: ids(3) })).toHaveLength(3);
    expect(scans({ reportingGroup: ids(2), internalName: ids(50), carrier: ids(4) })).toEqual(scansOfItems);
  });
});

it.each<[ListBrandedPhoneNumbersRequest, number | null]>([
  [{ reportingGroup: ['A'] }, null],
  // A number in review may have entries of any detailed status, a rejected one none in review, and so on.
  [{ status: ['submitted for review', 'rejected', 'approved', 'unregistered'] }, 2 * (IN_REVIEW + 4 + 3 + 4) + 1],
  [{ status: ['approved'] }, 2 * 2],
  [{ status: ['unregistered'] }, 2 + 1],
  [{ feature: ['spamRemediation'] }, IN_REVIEW + 4 + 3 + 4],
  [{ carrier: ids(3), feature: ['spamRemediation'], status: ['approved.optIn'] }, 3 * 3],
  [{ detailedStatus: ['approved.optOut'], status: ['rejected'] }, 2],
])('maxTerms of %j is %s', (request, terms) => {
  expect(maxTerms(filterOf(request))).toBe(terms);
});
