import { once } from 'node:events';
import type { BrandedPhoneNumberPage } from '../../../generated/types/models/index.js';
import { SERVE, startServer } from '../../support/serverProcess.js';

/** Starts `serve` with the embedded PostgreSQL of a folder, and waits until it is ready. */
export async function serve(folder: string, ...args: string[]) {
  const { url, child } = await startServer([...SERVE, ...args], { RATE_LIMIT_PER_SECOND: '0' }, { folder });
  const page = async (search: string) =>
    (await (await fetch(`${url}/v1/brandedPhoneNumbers?${search}`)).json()) as BrandedPhoneNumberPage;
  const end = async (signal: NodeJS.Signals) => {
    child.kill(signal);
    await once(child, 'exit');
    return child.exitCode;
  };
  return { page, end };
}
