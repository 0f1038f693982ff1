// pg-boss, with batches of 5,000: fetched, handed to the handler and completed in one statement
// each. Two workers in the process, so that one fetches while the other completes: a quarter faster
// than one, and four are no faster. It fetches again at once after a full batch, and LISTEN and
// NOTIFY wake it when it is idle. A table of its own for the queue (`partition`) and a loop of our
// own around fetch and complete were no faster. Jobs go in by `insert`, 10,000 a call.

import { PgBoss } from "pg-boss";
import { KIND, main, PAYLOAD } from "./adapter.mjs";

const BATCH = 5_000;
const WORKERS = 2;
const CHUNK = 10_000;

async function start(dsn, options) {
  const boss = new PgBoss({ connectionString: dsn, schedule: false, ...options });
  boss.on("error", console.error);
  return await boss.start();
}

await main({
  async prepare(dsn) {
    const boss = await start(dsn);
    await boss.createQueue(KIND, { notify: true });
  },

  async load(dsn, count) {
    const boss = await start(dsn);
    const started = performance.now();
    for (let n = 0; n < count; n += CHUNK) {
      const length = Math.min(CHUNK, count - n);
      await boss.insert(KIND, Array.from({ length }, () => ({ data: PAYLOAD })));
    }
    return (performance.now() - started) / 1000;
  },

  async work(dsn, started) {
    const boss = await start(dsn, { useListenNotify: true });
    const options = {
      batchSize: BATCH,
      localConcurrency: WORKERS,
      burstWhenBatchFull: true,
      pollingIntervalSeconds: 0.5,
    };
    await boss.work(KIND, options, async (jobs) => {
      for (const _ of jobs) started();
    });
  },

  async producer(dsn) {
    const boss = await start(dsn);
    return () => boss.send(KIND, PAYLOAD);
  },
});
