// A provider of models on loopback for the tests: aimock, which speaks OpenAI's protocol and fails on demand.
//
// SIGNOFF_MODEL is JSON: the fixtures of aimock. The first line of standard output is the server's address. It ends when its
// standard input does.

import { LLMock } from '@copilotkit/aimock';

const mock = new LLMock({ host: '127.0.0.1', port: 0, strict: true });
// Not `addFixturesFromJSON`, which refuses arguments that are no JSON: models write them.
mock.addFixtures(JSON.parse(process.env.SIGNOFF_MODEL));
await mock.start();
console.log(mock.url);
process.stdin.resume();
process.stdin.on('end', () => process.exit(0));
