// A producer that knows only the name of a queue: it publishes prepared messages with confirms, in bursts at a rate.
//
// node producer.mjs URL QUEUE MESSAGES JOURNAL RATE BURST PERIOD
//
// MESSAGES has a line of JSON for each message: {"id": text or null, "body": text}. Every publication has a number of its
// own, in the header "sending": a message that was not confirmed is sent again with another number. JOURNAL gets the lines
// "burst N", "sent SENDING MESSAGE" and "confirmed SENDING". It ends when every message is confirmed.

import amqp from "amqplib";
import fs from "node:fs";

const [url, queue, messages, journal, ...numbers] = process.argv.slice(2);
const [rate, burst, period] = numbers.map(Number);
const SLICE = 20; // milliseconds between two looks at what is due
const AGAIN = 200; // milliseconds before the next try to connect

const prepared = fs.readFileSync(messages, "utf8").trimEnd().split("\n").map((line) => JSON.parse(line));
const log = fs.openSync(journal, "a");
const write = (lines) => lines.length && fs.writeSync(log, lines.map((line) => `${line}\n`).join(""));
const sleep = (time) => new Promise((resolve) => setTimeout(resolve, time));

const waiting = prepared.map((_, number) => number);
const underWay = new Map(); // sending -> message
let sending = 0;
let left = prepared.length;
let next = 0; // messages of bursts that have begun
let bursts = 0;

const began = performance.now();
let allowance = 0;
let looked = began;

// How many messages may go now: not faster than the rate, and not before their burst.
function due() {
  const now = performance.now();
  allowance = Math.min(allowance + ((now - looked) / 1000) * rate, burst);
  looked = now;
  while (next < prepared.length && now - began >= bursts * period * 1000) {
    bursts += 1;
    next = Math.min(prepared.length, bursts * burst);
    write([`burst ${bursts}`]);
  }
  const held = prepared.length - next;
  return Math.max(0, Math.min(Math.floor(allowance), waiting.length - held));
}

// In the journal before they are sent: what the broker may have is known whatever happens.
function numbered(some) {
  const sendings = some.map((message) => [++sending, message]);
  sendings.forEach(([number, message]) => underWay.set(number, message));
  write(sendings.map(([number, message]) => `sent ${number} ${message}`));
  return sendings;
}

function publish(channel, [number, message]) {
  const { id, body } = prepared[message];
  const options = { persistent: true, mandatory: true, headers: { sending: number } };
  if (id !== null) options.messageId = id;
  channel.sendToQueue(queue, Buffer.from(body), options, (error) => {
    if (error === null && underWay.delete(number)) {
      left -= 1;
      write([`confirmed ${number}`]);
    }
  });
}

// Returns when the connection is lost, or when every message is confirmed.
async function connected() {
  const connection = await amqp.connect(url);
  let open = true;
  connection.on("error", () => {});
  connection.on("close", () => (open = false));
  const channel = await connection.createConfirmChannel();
  channel.on("error", () => {});
  channel.on("return", (returned) => {
    throw new Error(`no queue took the message: ${returned.fields.replyText}`);
  });
  while (open && left > 0) {
    const some = waiting.splice(0, due());
    allowance -= some.length;
    numbered(some).forEach((one) => publish(channel, one));
    await sleep(SLICE);
  }
  if (open) await connection.close();
}

while (left > 0) {
  try {
    await connected();
  } catch (error) {
    if (error.message.startsWith("no queue")) throw error;
  }
  // Whether the broker has these is not known.
  waiting.unshift(...underWay.values());
  underWay.clear();
  if (left > 0) await sleep(AGAIN);
}
