// server-everything over HTTP for the tests of MCP servers.
//
// By itself it listens at every address of the machine; here at any port of loopback. The first line of standard output is
// host and port. It ends when its standard input does.

import { Server } from 'node:net';

const listen = Server.prototype.listen;
Server.prototype.listen = function (...given) {
  const done = given.find((one) => typeof one === 'function');
  return listen.call(this, { host: '127.0.0.1', port: 0 }, () => {
    process.stdout.write(`127.0.0.1:${this.address().port}\n`);
    done?.();
  });
};
// It writes a line for each request there, and nothing reads more than the first.
console.log = () => {};
process.stdin.resume();
process.stdin.on('end', () => process.exit(0));
await import('@modelcontextprotocol/server-everything/dist/transports/streamableHttp.js');
