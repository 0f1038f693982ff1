// Graphile Worker, as its page on performance advises: jobs are fetched by thousands into a local
// queue, completions batched without delay, 24 jobs at once.
//
// A local queue of 5,000 instead of the page's 500 drains a fifth faster; 10,000 or a concurrency
// of 100 are no faster still. A batch is completed, and counts, when its deletion is committed.
// Jobs go in by `addJobs`, 10,000 a call.

import { Logger, makeWorkerUtils, run } from "graphile-worker";
import { KIND, main, PAYLOAD } from "./adapter.mjs";

const CONCURRENCY = 24;
const LOCAL_QUEUE = 5_000;
const CHUNK = 10_000;

const logger = new Logger(() => () => {}); // It would say a line for each job.

await main({
  async prepare(dsn) {
    const utils = await makeWorkerUtils({ connectionString: dsn, logger });
    await utils.migrate();
  },

  async load(dsn, count) {
    const utils = await makeWorkerUtils({ connectionString: dsn, logger });
    await utils.withPgClient((client) => client.query("select 1")); // Opens the connection.
    const started = performance.now();
    for (let n = 0; n < count; n += CHUNK) {
      const length = Math.min(CHUNK, count - n);
      await utils.addJobs(Array.from({ length }, () => ({ identifier: KIND, payload: PAYLOAD })));
    }
    return (performance.now() - started) / 1000;
  },

  async work(dsn, started) {
    await run({
      preset: {
        worker: {
          connectionString: dsn,
          concurrentJobs: CONCURRENCY,
          maxPoolSize: CONCURRENCY + 1,
          localQueue: { size: LOCAL_QUEUE },
          completeJobBatchDelay: 0,
          failJobBatchDelay: 0,
          logger,
        },
      },
      taskList: { [KIND]: () => started() },
    });
  },

  async producer(dsn) {
    const utils = await makeWorkerUtils({ connectionString: dsn, logger });
    return () => utils.addJob(KIND, PAYLOAD);
  },
});
