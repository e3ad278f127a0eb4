// Every operation: the parameters as its handler gets them (converted, with defaults, validated), and the response bodies.
import type { BrandedPhoneNumberPage, DetailedStatus, Feature, Problem, StatusFilter } from '../models/index.js';

/** List branded phone numbers: `GET /v1/brandedPhoneNumbers` */
export interface ListBrandedPhoneNumbersRequest {
    nextCursor?: string;
    size?: number;
    phoneNumber?: string;
    businessProfileId?: string;
    reportingGroup?: Array<string>;
    internalName?: Array<string>;
    carrier?: Array<string>;
    feature?: Array<Feature>;
    status?: Array<StatusFilter>;
    detailedStatus?: Array<DetailedStatus>;
}

/** The bodies of its responses, by status code. */
export interface ListBrandedPhoneNumbersResponses {
    200: BrandedPhoneNumberPage;
    304: undefined;
    400: Problem;
    401: Problem;
    404: Problem;
    421: Problem;
    429: Problem;
    500: Problem;
    503: Problem;
    default: Problem;
}

export const listBrandedPhoneNumbers = { operationId: 'listBrandedPhoneNumbers', method: 'GET', path: '/v1/brandedPhoneNumbers' } as const;
