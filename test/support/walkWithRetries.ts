/** A walk through a service's list that waits for its rate limit. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { BrandedPhoneNumber } from '../../generated/types/models/index.js';

interface Page {
  status: number;
  body: string;
}

/**
 * Returns all items, read fifteen a page. `request` sends a query string; a 429 is retried after `pauseMs`, which also
 * separates the pages. Any other status than 200 is added to `failures` and retried, too.
 */
export async function walkWithRetries(
  request: (search: string) => Promise<Page>,
  failures: Page[],
  pauseMs: number,
): Promise<BrandedPhoneNumber[]> {
  const items: BrandedPhoneNumber[] = [];
  for (let cursor: string | null = ''; cursor !== null; await sleep(pauseMs)) {
    const page = await request(`?size=15${cursor && `&nextCursor=${cursor}`}`);
    if (page.status === 200) {
      const content = JSON.parse(page.body);
      items.push(...content.items);
      cursor = content.nextCursor;
    } else if (page.status !== 429) failures.push(page);
  }
  return items;
}
