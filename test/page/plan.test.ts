import { describe, expect, it } from 'vitest';
import type { ListBrandedPhoneNumbersRequest } from '../../generated/types/apis/index.js';
import { DetailedStatus } from '../../generated/types/models/index.js';
import { maxTerms, nextStep } from '../../src/page/plan.js';
import { filterOf, limitToProfiles } from '../../src/request/filter.js';

const BUDGET = 832;
/** The detailed statuses with which a number is in review. */
const REVIEWS = Object.values(DetailedStatus).filter((status) => /^(pending|submitted)/.test(status)).length;
const ids = (count: number) => Array.from({ length: count }, (_, index) => `${index}`);

function stepFor(request: ListBrandedPhoneNumbersRequest, budget = BUDGET, visibleProfiles: string[] | null = null) {
  const filter = limitToProfiles(filterOf(request), visibleProfiles);
  return nextStep(filter, maxTerms(filter), budget);
}

describe('what a page is read from', () => {
  it('is all numbers, or the given one, whatever else is asked', () => {
    expect(stepFor({})).toEqual({ read: 'all' });
    expect(stepFor({ phoneNumber: '+1', reportingGroup: ['A'], carrier: ['B'] })).toEqual({ read: 'number' });
  });

  it('is the ranges of one attribute, no matter how many values it has', () => {
    const scan = { table: 'items', attribute: 'internalName' };
    expect(stepFor({ internalName: ids(50) })).toEqual({ read: 'ranges', scan });
    expect(stepFor({}, BUDGET, ids(2000))).toMatchObject({ scan: { table: 'items', attribute: 'businessProfileId' } });
  });

  it('is the ranges of the terms, within an attribute or without', () => {
    expect(stepFor({ status: ['approved'] })).toEqual({ read: 'ranges', scan: { table: 'postings', attribute: null } });
    const scan = { table: 'postings', attribute: 'reportingGroup' };
    expect(stepFor({ reportingGroup: ids(5), detailedStatus: Object.values(DetailedStatus) })).toEqual({
      read: 'ranges',
      scan,
    });
  });

  it('is candidates if there are many ranges, until a batch of candidates costs as much', () => {
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

  it('is candidates where several attributes are combined, also those of the terms within the one of fewest values', () => {
    const scans = (request: ListBrandedPhoneNumbersRequest) => {
      const step = stepFor(request);
      return step.read === 'candidates' ? step.scans.map(({ scan }) => `${scan.table} ${scan.attribute}`) : step.read;
    };
    const ofItems = ['items reportingGroup', 'items internalName'];
    expect(scans({ reportingGroup: ids(2), internalName: ids(50) })).toEqual(ofItems);
    expect(scans({ reportingGroup: ids(2), internalName: ids(50), carrier: ['A'] })).toEqual([
      ...ofItems,
      'postings reportingGroup',
    ]);
    expect(scans({ reportingGroup: ids(50), internalName: ids(50), carrier: ['A'] })).toEqual([
      ...ofItems,
      'postings null',
    ]);
  });
});

it.each<[ListBrandedPhoneNumbersRequest, number | null]>([
  [{ reportingGroup: ['A'] }, null],
  // A number in review may have any entry, one that is rejected no pending one, and so on; and one may have none.
  [{ status: ['submitted for review', 'rejected', 'approved', 'unregistered'] }, 2 * (REVIEWS + 4 + 3 + 4) + 1],
  [{ status: ['approved'] }, 2 * 2],
  [{ status: ['unregistered'] }, 2 + 1],
  [{ feature: ['spamRemediation'] }, REVIEWS + 4 + 3 + 4],
  [{ carrier: ids(3), feature: ['spamRemediation'], status: ['approved.optIn'] }, 3 * 3],
  [{ detailedStatus: ['approved.optOut'], status: ['rejected'] }, 2],
])('%j asks for at most %s terms', (request, most) => {
  expect(maxTerms(filterOf(request))).toBe(most);
});
