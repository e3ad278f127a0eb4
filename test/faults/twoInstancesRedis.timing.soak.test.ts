import { testTwoInstances } from './twoInstances.js';

testTwoInstances('Redis');
