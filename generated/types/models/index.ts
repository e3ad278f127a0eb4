/* tslint:disable */
/* eslint-disable */
/**
 * A phone number with its owner, its names, its overall status and its entries for carriers and features.
 * @export
 * @interface BrandedPhoneNumber
 */
export interface BrandedPhoneNumber {
    /**
     * Identifies the number's record.
     */
    id: string;
    /**
     * A phone number in E.164.
     */
    phoneNumber: string;
    /**
     * 
     */
    businessProfile: BusinessProfile;
    /**
     * The company's own name for the number.
     */
    internalName: string | null;
    /**
     * The name shown on displays with room for 15 characters.
     */
    brandingNameShort: string | null;
    /**
     * The name shown on displays with room for 32 characters.
     */
    brandingNameLong: string | null;
    /**
     * The group to which the number belongs in the company's reports.
     */
    reportingGroup: string | null;
    /**
     * The overall status, derived from the detailed statuses of the entries. The first rule that applies counts:
     * any `pending.*` or `submitted.*`: `submitted for review`; any `rejected.*`: `rejected`;
     * any `approved.optIn`: `approved`; else (only `approved.optOut`, or no entries) `unregistered`. New values
     * may be added.
     * 
     */
    status: string;
    /**
     * All entries of the number, ordered by carrier, then feature, in byte order.
     */
    carrierStatuses: Array<CarrierStatus>;
    /**
     * When the number was added, unless its writer gave another time. In UTC, RFC 3339, with milliseconds.
     * 
     */
    createdAt: string;
    /**
     * When anything in this item last changed, except in `businessProfile`: a change there does not count, nor does a write
     * that changes nothing. It only moves forward; a writer may set a later time. In UTC, RFC 3339, with milliseconds.
     * 
     */
    updatedAt: string;
}
/**
 * A page of numbers, ordered by `phoneNumber` in byte order.
 * @export
 * @interface BrandedPhoneNumberPage
 */
export interface BrandedPhoneNumberPage {
    /**
     * The numbers of this page.
     */
    items: Array<BrandedPhoneNumber>;
    /**
     * The `nextCursor` to send for the next page; `null` on the last page.
     */
    nextCursor: string | null;
}
/**
 * The company that owns a number.
 * @export
 * @interface BusinessProfile
 */
export interface BusinessProfile {
    /**
     * Identifies a business profile.
     */
    id: string;
    /**
     * The company's name.
     */
    businessName: string;
    /**
     * The company's registration status.
     */
    status: string;
}
/**
 * A number's status at one carrier for one feature; a number has at most one entry for each pair.
 * @export
 * @interface CarrierStatus
 */
export interface CarrierStatus {
    /**
     * The carrier's name.
     */
    carrier: string;
    /**
     * What the number is registered for, such as `brandedCallerId` or `spamRemediation`. New values may be added.
     */
    feature: string;
    /**
     * The status for this carrier and feature. `optIn` is the number's registration with the carrier, `optOut` its
     * removal. `pending.initialOptIn` is a first registration, or one after an opt-out, and `pending.optIn` a later
     * change; `submitted.*` awaits the carrier's decision; `approved.*` and `rejected.*` are that decision. New
     * values may be added.
     * 
     */
    detailedStatus: string;
    /**
     * When the entry was added, unless its writer gave another time. A new `detailedStatus` leaves it unchanged.
     * In UTC, RFC 3339, with milliseconds.
     * 
     */
    createdAt: string;
}

/**
 * A detailed status that requests and imports may use. `optIn` is a registration with the carrier, `optOut` its removal.
 * 
 * @export
 */
export const DetailedStatus = {
    PendingInitialOptIn: 'pending.initialOptIn',
    PendingOptIn: 'pending.optIn',
    SubmittedOptIn: 'submitted.optIn',
    ApprovedOptIn: 'approved.optIn',
    RejectedOptIn: 'rejected.optIn',
    SubmittedOptOut: 'submitted.optOut',
    PendingOptOut: 'pending.optOut',
    ApprovedOptOut: 'approved.optOut',
    RejectedOptOut: 'rejected.optOut',
} as const;
export type DetailedStatus = typeof DetailedStatus[keyof typeof DetailedStatus];

/**
 * One fault of a request.
 * @export
 * @interface Fault
 */
export interface Fault {
    /**
     * The invalid parameter, as it was sent; a long name is shortened and ends with `…`. Empty if the query as a whole
     * is invalid.
     * 
     */
    parameter: string;
    /**
     * What is wrong with it and what to send instead.
     */
    detail: string;
}

/**
 * A feature that requests and imports may use.
 * @export
 */
export const Feature = {
    BrandedCallerId: 'brandedCallerId',
    SpamRemediation: 'spamRemediation',
} as const;
export type Feature = typeof Feature[keyof typeof Feature];

/**
 * What went wrong, as problem details (RFC 9457).
 * @export
 * @interface Problem
 */
export interface Problem {
    /**
     * Identifies the problem type; the URI leads to a page that explains it.
     */
    type: string;
    /**
     * The problem type in a few words; the same for every problem of this type.
     */
    title: string;
    /**
     * The status code of the response.
     */
    status: number;
    /**
     * What is wrong with this request and what to do.
     */
    detail: string;
    /**
     * The same as `title`, for clients that read this member.
     */
    message: string;
    /**
     * On a 400, all faults of the request, or the first 50; `detail` says how many there are.
     */
    errors?: Array<Fault>;
}

/**
 * An overall status, or a detailed status.
 * @export
 */
export const StatusFilter = {
    SubmittedForReview: 'submitted for review',
    Rejected: 'rejected',
    Approved: 'approved',
    Unregistered: 'unregistered',
    PendingInitialOptIn: 'pending.initialOptIn',
    PendingOptIn: 'pending.optIn',
    SubmittedOptIn: 'submitted.optIn',
    ApprovedOptIn: 'approved.optIn',
    RejectedOptIn: 'rejected.optIn',
    SubmittedOptOut: 'submitted.optOut',
    PendingOptOut: 'pending.optOut',
    ApprovedOptOut: 'approved.optOut',
    RejectedOptOut: 'rejected.optOut',
} as const;
export type StatusFilter = typeof StatusFilter[keyof typeof StatusFilter];

