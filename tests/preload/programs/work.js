// Node's own heap is not malloc's, so this is about what lies outside it: buffers, threads of the
// pool (compression, digests, files), workers with heaps of their own, and child processes.
'use strict';
const { Worker, isMainThread, parentPort, workerData } = require('node:worker_threads');
const { createHash, pbkdf2 } = require('node:crypto');
const { execFile } = require('node:child_process');
const { promises: files } = require('node:fs');
const { promisify } = require('node:util');
const zlib = require('node:zlib');

const digest = (data) => createHash('sha256').update(data).digest('hex').slice(0, 16);

function text(seed, length) {
  let state = seed;
  const words = [];
  for (let number = 0; number < length; number += 1) {
    state = (state * 48271) % 2147483647;
    words.push((state % 50000).toString(36));
  }
  return words.join(' ');
}

function buffers(seed) {
  let held = [];
  let sum = 0;
  for (let number = 1; number <= 4000; number += 1) {
    const block = Buffer.alloc((number * seed) % 9000 + 1, number % 256);
    sum = (sum + block[block.length - 1] + block.length) % 1000003;
    held.push(block);
    if (held.length > 200) held = held.filter((_, place) => place % 2);
  }
  return `${sum} ${digest(Buffer.concat(held))}`;
}

if (!isMainThread) {
  const packed = zlib.gzipSync(text(workerData, 20000));
  parentPort.postMessage(`${workerData} ${buffers(workerData)} ${digest(zlib.gunzipSync(packed))}`);
} else {
  main();
}

function inWorker(seed) {
  return new Promise((resolve, reject) => {
    const worker = new Worker(__filename, { workerData: seed });
    worker.once('message', resolve);
    worker.once('error', reject);
  });
}

async function main() {
  const long = text(7, 60000);
  console.log('json', digest(JSON.stringify(JSON.parse(JSON.stringify(long.split(' '))))));
  console.log('buffers', buffers(13));

  const packed = await Promise.all(
    [1, 5, 9].map((level) => promisify(zlib.deflate)(long, { level })),
  );
  const brotli = await promisify(zlib.brotliCompress)(long);
  const unpacked = await Promise.all(packed.map((data) => promisify(zlib.inflate)(data)));
  console.log('packed', packed.map(digest).join(' '), digest(brotli));
  console.log('unpacked', unpacked.every((data) => data.toString() === long));

  const keys = await Promise.all(
    [1, 2, 3, 4].map((salt) => promisify(pbkdf2)('secret', `salt${salt}`, 20000, 32, 'sha256')),
  );
  console.log('keys', keys.map(digest).join(' '));

  console.log('workers', (await Promise.all([3, 5, 7, 11].map(inWorker))).join(', '));

  await files.writeFile('text', long);
  const { stdout } = await promisify(execFile)('sha256sum', ['text']);
  console.log('child', stdout.trim(), digest(await files.readFile('text')));
}
