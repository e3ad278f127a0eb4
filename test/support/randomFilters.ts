/** Random filters over the data of the bench and of the plan test; the same seed gives the same filters. */
import type { ListBrandedPhoneNumbersRequest } from '../../generated/types/apis/index.js';
import { DetailedStatus, Feature, StatusFilter } from '../../generated/types/models/index.js';
import { dice } from '../../scripts/dice.js';
import { profileId } from './generatedNumbers.js';

const CARRIERS = ['AT&T', 'T-Mobile', 'Verizon', 'US Cellular', 'Rare Mobile'];
const COUNTS = [1, 1, 1, 2, 5, 50];

/**
 * Returns `count` requests with at most one attribute, or with two or three, and with random filters on status and
 * entries.
 */
export function randomFilters(
  kind: 'one attribute' | 'several attributes',
  count: number,
  seed: number,
): ListBrandedPhoneNumbersRequest[] {
  const random = dice(seed);
  const below = (limit: number) => Math.floor(random() * limit);
  const oneOf = <T>(values: readonly T[]) => values[below(values.length)] as T;
  const some = <T>(values: readonly T[], maxCount: number) => {
    const shuffled = [...values].sort(() => random() - 0.5);
    return shuffled.slice(0, Math.min(1 + below(maxCount), values.length));
  };
  /** Returns ranks below `limit`: half of the time skewed towards the common values, otherwise uniform. */
  const ranks = (limit: number) => {
    const rank = random() < 0.5 ? () => Math.floor(limit ** random()) : () => 1 + below(limit - 1);
    return [...new Set(Array.from({ length: oneOf(COUNTS) }, rank))];
  };
  const attributes: (() => ListBrandedPhoneNumbersRequest)[] = [
    () => ({ businessProfileId: profileId(ranks(1000)[0] as number) }),
    () => ({ reportingGroup: ranks(500).map((rank) => `Group ${rank}`) }),
    () => ({ internalName: ranks(5000).map((rank) => `Line ${rank}`) }),
  ];
  const entries: (() => ListBrandedPhoneNumbersRequest)[] = [
    () => ({
      carrier: random() < 0.2 ? [...CARRIERS, ...ranks(45).map((rank) => `Carrier ${rank}`)] : some(CARRIERS, 3),
    }),
    () => ({ feature: some(Object.values(Feature), 2) }),
    () => ({ detailedStatus: some(Object.values(DetailedStatus), random() < 0.3 ? 9 : 2) }),
    () => ({ status: some(Object.values(StatusFilter), 3) }),
  ];
  return Array.from({ length: count }, () => {
    const named = kind === 'one attribute' ? some(attributes, 1).slice(below(4) === 0 ? 1 : 0) : some(attributes, 3);
    while (kind === 'several attributes' && named.length < 2) named.splice(0, 1, ...some(attributes, 3));
    const filters = [...named, ...entries.filter(() => random() < 0.4)];
    return Object.assign({ size: random() < 0.7 ? 25 : 100 }, ...filters.map((filter) => filter()));
  });
}
