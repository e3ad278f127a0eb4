/* tslint:disable */
/* eslint-disable */
export * from './BrandedPhoneNumbersApi.js';
