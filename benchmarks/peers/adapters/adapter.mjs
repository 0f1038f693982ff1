// What both Node.js adapters share: three commands, said in the four functions of a system. The same
// words and clocks as in adapter.py, which explains them.

export const KIND = "noop";
export const PAYLOAD = { n: 1 };
const LATENCY_WARMUP = 20;
const LATENCY_GAP_MS = [5, 30];

export async function main(system) {
  const [command, dsn, count] = process.argv.slice(2);
  process.stdin.on("end", () => process.exit(1)).resume();
  await { enqueue, drain, latency }[command](system, dsn, Number(count));
  process.exit(0);
}

async function enqueue(system, dsn, count) {
  await system.prepare(dsn);
  say({ seconds: await system.load(dsn, count) });
}

async function drain(system, dsn, count) {
  let handled = 0;
  await system.work(dsn, () => {
    if (++handled === count) say({ handled });
  });
  await new Promise(() => {});
}

async function latency(system, dsn, count) {
  await system.prepare(dsn);
  let started;
  await system.work(dsn, () => started(performance.now()));
  const enqueueOne = await system.producer(dsn);
  const milliseconds = [];
  for (let n = 0; n < LATENCY_WARMUP + count; n++) {
    const [low, high] = LATENCY_GAP_MS;
    await new Promise((done) => setTimeout(done, low + Math.random() * (high - low)));
    const start = new Promise((done) => (started = done));
    const enqueued = performance.now();
    await enqueueOne();
    milliseconds.push((await start) - enqueued);
  }
  say({ milliseconds: milliseconds.slice(LATENCY_WARMUP) });
}

function say(figures) {
  process.stdout.write(JSON.stringify(figures) + "\n");
}
