export { BrandedPhoneNumbersApi, Configuration, type ConfigurationParameters, ResponseError } from './api.js';
export * from './generated/index.js';
export { eachNumber, pageIfChanged, type TaggedPage, type WalkOptions } from './pages.js';
