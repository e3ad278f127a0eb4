/** The faults of a request: all are counted, the first ones described. */
import type { Fault } from '../../generated/types/models/index.js';
import { contract } from '../contract.js';
import { shorten } from '../messages/shorten.js';

const MAX_DESCRIBED = contract.components.schemas.Problem?.properties?.errors?.maxItems as number;

export class Faults {
  /** The first ones, as the contract's problem lists them. */
  readonly described: Fault[] = [];
  count = 0;

  /** Adds a fault. `describe` says what is wrong; that takes time, so it is not called for faults beyond the list. */
  add(parameter: string, describe: () => string): void {
    if (this.count++ < MAX_DESCRIBED) this.described.push({ parameter: shorten(parameter), detail: describe() });
  }
}
