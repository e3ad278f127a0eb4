/** Random queries. */
import fc from 'fast-check';
import type { BrandedPhoneNumber } from '../../generated/types/models/index.js';
import { CARRIERS, DETAILED_STATUSES, FEATURES, GROUPS, NAMES, PROFILES } from './numbers.js';
import type { Query } from './reference.js';

const STATUSES = ['submitted for review', 'rejected', 'approved', 'unregistered', ...DETAILED_STATUSES] as const;

const someOf = <T>(...values: T[]) => fc.array(fc.constantFrom(...values), { minLength: 1, maxLength: 4 });

/** Returns arbitrary queries over a list of numbers. They have up to four parameters; with more, hardly any number matches. */
export const queryOver = (list: BrandedPhoneNumber[]): fc.Arbitrary<Query> => {
  const all: { [Name in keyof Query]-?: fc.Arbitrary<Query[Name]> } = {
    phoneNumber: fc.constantFrom(...list.map(({ phoneNumber }) => phoneNumber), '+19999'),
    businessProfileId: fc.constantFrom(...PROFILES.map(({ id }) => id), PROFILES[0]?.id.toUpperCase() ?? ''),
    reportingGroup: someOf(...GROUPS, 'Nobody'),
    internalName: someOf(...NAMES, 'Nothing'),
    carrier: someOf(...CARRIERS, 'Nobody'),
    feature: someOf(...FEATURES),
    status: someOf(...STATUSES),
    detailedStatus: someOf(...DETAILED_STATUSES),
  };
  return fc
    .subarray(Object.keys(all) as (keyof Query)[], { maxLength: 4 })
    .chain((names) => fc.record(Object.fromEntries(names.map((name) => [name, all[name]]))) as fc.Arbitrary<Query>);
};
