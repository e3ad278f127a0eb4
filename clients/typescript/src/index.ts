export * from './generated/index.js';
export { eachNumber, type WalkOptions } from './pages.js';
