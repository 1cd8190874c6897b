// Bull Board on BullMQ: `node board.mjs put` adds the jobs that it reads as lines of JSON, `work` runs all that wait, and
// `serve <port>` is the dashboard. REDIS_PORT says where Redis is.
import { createInterface } from "node:readline";
import { createBullBoard } from "@bull-board/api";
import { BullMQAdapter } from "@bull-board/api/bullMQAdapter";
import { ExpressAdapter } from "@bull-board/express";
import { Queue, Worker } from "bullmq";
import express from "express";

const [command, port] = process.argv.slice(2);
const connection = { host: "127.0.0.1", port: Number(process.env.REDIS_PORT), maxRetriesPerRequest: null };
const queue = new Queue("work", { connection });

async function put() {
  let page = [];
  const flush = async () => {
    await queue.addBulk(page);
    page = [];
  };
  for await (const line of createInterface({ input: process.stdin })) {
    page.push({ name: "work", data: JSON.parse(line) });
    if (page.length === 1000) await flush();
  }
  await flush();
}

async function work() {
  const run = async (job) => {
    if (!job.data.good) throw new Error("no");
    return job.data.n;
  };
  const worker = new Worker("work", run, { connection, concurrency: 100 });
  const open = async () => (await queue.getJobCountByTypes("waiting", "active", "prioritized", "delayed")) > 0;
  while (await open()) await new Promise((resolve) => setTimeout(resolve, 50));
  await worker.close();
}

function serve() {
  const adapter = new ExpressAdapter();
  createBullBoard({ queues: [new BullMQAdapter(queue)], serverAdapter: adapter });
  express().use("/", adapter.getRouter()).listen(Number(port), "127.0.0.1");
}

if (command === "serve") {
  serve();
} else {
  await { put, work }[command]();
  await queue.close();
}
