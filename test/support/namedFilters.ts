/** Requests of each shape, whose plans a test guards. */
import type { ListBrandedPhoneNumbersRequest } from '../../generated/types/apis/index.js';
import { DetailedStatus } from '../../generated/types/models/index.js';
import { profileId } from './generatedNumbers.js';

const fifty = (prefix: string, step: number) =>
  Array.from({ length: 50 }, (_, index) => `${prefix} ${index * step + 1}`);
const groups = fifty('Group', 9);
const names = fifty('Line', 90);
const carriers = [...fifty('Carrier', 1).slice(0, 46), 'AT&T', 'T-Mobile', 'Verizon', 'Rare Mobile'];
const specified = { carrier: ['AT&T'], feature: ['brandedCallerId' as const], status: ['approved.optIn' as const] };

/** The profile with the most numbers, and one with few. */
const large = { businessProfileId: profileId(1) };
const rare = { businessProfileId: profileId(990) };

/** All requests, by their names. */
export const namedRequests: Record<string, ListBrandedPhoneNumbersRequest> = {
  // One value for one or two filters.
  'no filter': {},
  'a page of 100': { size: 100 },
  'a phone number': { phoneNumber: '+12000350000' },
  status: { status: ['submitted for review'] },
  'rare status': { status: ['unregistered'] },
  'dotted status': { status: ['rejected.optOut'] },
  'detailed status': { detailedStatus: ['approved.optIn'] },
  'rare detailed status': { detailedStatus: ['rejected.optOut'] },
  carrier: { carrier: ['AT&T'] },
  'rare carrier': { carrier: ['Rare Mobile'] },
  'unknown carrier': { carrier: ['Nobody'] },
  feature: { feature: ['spamRemediation'] },
  'large profile': large,
  'rare profile': rare,
  'large group': { reportingGroup: ['Group 1'] },
  'rare group': { reportingGroup: ['Group 499'] },
  'large name': { internalName: ['Line 1'] },
  'rare name': { internalName: ['Line 4990'] },
  'unknown name': { internalName: ['Nobody'] },
  'feature, dotted status (specification)': { feature: ['spamRemediation'], status: ['approved.optIn'] },
  'carrier, feature': { carrier: ['AT&T'], feature: ['spamRemediation'] },
  'carrier, status': { carrier: ['Verizon'], status: ['rejected'] },
  'rare carrier, rare status': { carrier: ['Rare Mobile'], detailedStatus: ['rejected.optOut'] },
  'feature, detailed status': { feature: ['spamRemediation'], detailedStatus: ['rejected.optIn'] },
  'large profile, status': { ...large, status: ['rejected'] },
  'large profile, carrier': { ...large, carrier: ['AT&T'] },
  'large profile, rare carrier': { ...large, carrier: ['Rare Mobile'] },
  'large profile, feature': { ...large, feature: ['spamRemediation'] },
  'large profile, rare detailed status': { ...large, detailedStatus: ['rejected.optOut'] },
  'rare profile, carrier': { ...rare, carrier: ['AT&T'] },
  'large group, carrier': { reportingGroup: ['Group 1'], carrier: ['AT&T'] },
  'large group, dotted status': { reportingGroup: ['Group 1'], status: ['pending.optOut'] },
  'large name, feature': { internalName: ['Line 1'], feature: ['brandedCallerId'] },
  // Several values.
  'carrier, feature, dotted status (specification)': specified,
  'two statuses': { status: ['approved', 'rejected'] },
  'status or dotted status': { status: ['unregistered', 'rejected.optOut'] },
  'three rare detailed statuses': { detailedStatus: ['rejected.optOut', 'rejected.optIn', 'pending.optOut'] },
  'all detailed statuses': { detailedStatus: Object.values(DetailedStatus) },
  '50 carriers': { carrier: carriers },
  '50 carriers, rare status': { carrier: carriers, status: ['rejected.optOut'] },
  'large profile, 50 carriers': { ...large, carrier: carriers },
  'large profile, specification': { ...large, ...specified },
  '50 groups': { reportingGroup: groups },
  '50 groups, two statuses': { reportingGroup: groups, status: ['approved', 'unregistered'] },
  '50 groups, status or dotted status': { reportingGroup: groups, status: ['unregistered', 'rejected.optOut'] },
  '50 groups, carrier': { reportingGroup: groups, carrier: ['AT&T'] },
  '50 groups, rare carrier': { reportingGroup: groups, carrier: ['Rare Mobile'] },
  '50 groups, feature': { reportingGroup: groups, feature: ['spamRemediation'] },
  '50 groups, carrier, feature': { reportingGroup: groups, carrier: ['AT&T'], feature: ['spamRemediation'] },
  '50 groups, rare detailed status': { reportingGroup: groups, detailedStatus: ['rejected.optOut'] },
  '50 names': { internalName: names },
  '50 names, specification': { internalName: names, ...specified },
  // Several attributes at once.
  'large profile, large group': { ...large, reportingGroup: ['Group 1'] },
  'large profile, rare group': { ...large, reportingGroup: ['Group 499'] },
  'rare profile, large group': { ...rare, reportingGroup: ['Group 1'] },
  'large profile, rare group, carrier': { ...large, reportingGroup: ['Group 499'], carrier: ['AT&T'] },
  'large profile, large group, rare detailed status': {
    ...large,
    reportingGroup: ['Group 1'],
    detailedStatus: ['rejected.optOut'],
  },
  'large profile, 50 groups, two names, specification': {
    ...large,
    reportingGroup: groups,
    internalName: ['Line 1', 'Line 2'],
    ...specified,
  },
  'large profile, 50 groups, two names, carrier, rare statuses': {
    ...large,
    reportingGroup: groups,
    internalName: ['Line 1', 'Line 2'],
    carrier: ['AT&T'],
    status: ['rejected', 'approved.optOut'],
  },
  '50 groups, 50 names, feature': { reportingGroup: groups, internalName: names, feature: ['spamRemediation'] },
};
