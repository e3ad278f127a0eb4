import request from 'supertest';
import { expect } from 'vitest';
import type { BrandedPhoneNumber } from '../../generated/types/models/index.js';
import { expectDescribed, pageOf } from './response.js';

/** Requests the pages of a query, from the first to the last; returns the items of each page. */
export async function walk(url: string, query: string): Promise<BrandedPhoneNumber[][]> {
  const pages: BrandedPhoneNumber[][] = [];
  for (let cursor: string | null = ''; cursor !== null; ) {
    const response = await request(url).get(`/v1/brandedPhoneNumbers?${query}${cursor && `&nextCursor=${cursor}`}`);
    expect(response.status, response.text).toBe(200);
    expectDescribed(response);
    const page = pageOf(response);
    pages.push(page.items);
    cursor = page.nextCursor;
  }
  return pages;
}
