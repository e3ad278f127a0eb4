/** The numbers that the bench imports: skewed as real ones are, and the same in each run. */

import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { finished } from 'node:stream/promises';
import { fileURLToPath } from 'node:url';
import { dice } from '../../scripts/dice.js';

const CARRIERS = ['AT&T', 'T-Mobile', 'Verizon', 'US Cellular', 'Rare Mobile'];
const FEATURES = ['brandedCallerId', 'spamRemediation'];
/** The percentage of each status among the entries of numbers that are not entirely approved. */
const STATUSES: [string, number][] = [
  ['approved.optIn', 60],
  ['approved.optOut', 10],
  ['pending.initialOptIn', 6],
  ['pending.optIn', 6],
  ['submitted.optIn', 4],
  ['submitted.optOut', 4],
  ['pending.optOut', 4],
  ['rejected.optIn', 4],
  ['rejected.optOut', 2],
];

/** Returns the id of a profile by its rank; the first has a tenth of the numbers. */
export const profileId = (rank: number) => `00000000-0000-4000-8000-${String(rank).padStart(12, '0')}`;

/**
 * Returns the name of a company by the rank of its profile. As with partners' numbers, a seventh of the names has characters
 * beyond Latin-1: a page that has one takes JavaScript longer to decode and encode.
 */
const companyName = (rank: number) => (rank % 7 === 0 ? `東京 Support ${rank}` : `Company ${rank}`);

/** Returns a phone number by its index, from 1. */
export const phoneNumberAt = (index: number) => `+1${2_000_000_000 + index * 7}`;

/** Writes the first `count` numbers as NDJSON; another `seed` gives the same numbers with other contents. */
export async function writeNumbers(file: string, count: number, seed = 20_240_601): Promise<void> {
  const random = dice(seed);
  const skewed = (most: number) => Math.floor(most ** random());
  const output = createWriteStream(file);
  let block = '';
  for (let index = 1; index <= count; index++) {
    const profile = skewed(1000);
    const company = companyName(profile);
    const isApproved = random() < 0.8;
    const breadth = random();
    const entries: string[] = [];
    for (const carrier of CARRIERS) {
      if (carrier === 'US Cellular' && breadth >= 0.3) continue;
      if (carrier === 'Rare Mobile' && random() >= 0.0003) continue;
      for (const feature of FEATURES) {
        if (feature === 'spamRemediation' && breadth >= 0.25) continue;
        const detailedStatus = isApproved ? 'approved.optIn' : statusOf(random() * 100);
        entries.push(
          `{"carrier":"${carrier}","feature":"${feature}","detailedStatus":"${detailedStatus}","createdAt":"2026-02-03T16:49:03.043Z"}`,
        );
      }
    }
    block += `{"phoneNumber":"${phoneNumberAt(index)}","businessProfile":{"id":"${profileId(profile)}","businessName":"${company}","status":"approved"},"internalName":"Line ${skewed(5000)}","brandingNameShort":"${company}","brandingNameLong":"${company} Financial","reportingGroup":"Group ${skewed(500)}","carrierStatuses":[${entries}],"createdAt":"2026-02-03T16:49:02.748Z","updatedAt":"2026-02-03T16:49:02.748Z"}\n`;
    if (block.length < 1_000_000) continue;
    if (!output.write(block)) await once(output, 'drain');
    block = '';
  }
  output.end(block);
  await finished(output);
}

function statusOf(roll: number): string {
  let rest = roll;
  for (const [status, share] of STATUSES) {
    if (rest < share) return status;
    rest -= share;
  }
  return 'rejected.optOut';
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  await writeNumbers(process.argv[2] ?? '/dev/stdout', Number(process.argv[3] ?? 1000));
}
