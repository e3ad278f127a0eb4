import { testTwoInstances } from './twoInstances.js';

testTwoInstances('PostgreSQL');
