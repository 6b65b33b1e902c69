// The ways to ask of Claude's official SDK, streams and all that is built upon them.

import Anthropic from "@anthropic-ai/sdk";
import { betaZodTool } from "@anthropic-ai/sdk/helpers/beta/zod";
import { MessageStream } from "@anthropic-ai/sdk/lib/MessageStream";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { z } from "zod";
import { tellJobs } from "./told.mjs";

function at({ url, key = "sk-ant-the-callers-key", retries = 0 }) {
  return new Anthropic({ baseURL: url, apiKey: key, maxRetries: retries });
}

async function all(iterable, seen) {
  for await (const one of iterable) seen.push(one);
  return seen;
}

const Capital = z.object({ city: z.string(), people: z.number() });

const ways = {
  create: (job) => at(job).messages.create(job.asked),
  createBeta: (job) => at(job).beta.messages.create(job.asked),
  iterate: async (job) => all(await at(job).messages.create({ ...job.asked, stream: true }), job.seen),

  async stream(job) {
    const heard = { texts: "", thoughts: "", signatures: [], citations: [], inputs: "", blocks: [], ended: false };
    const stream = at(job)
      .messages.stream(job.asked)
      .on("text", (text) => (heard.texts += text))
      .on("thinking", (text) => (heard.thoughts += text))
      .on("signature", (one) => heard.signatures.push(one))
      .on("citation", (one) => heard.citations.push(one))
      .on("inputJson", (text) => (heard.inputs += text))
      .on("contentBlock", (one) => heard.blocks.push(structuredClone(one)))
      .on("end", () => (heard.ended = true));
    const message = await stream.finalMessage();
    return { ...heard, message };
  },
  // The helper's own events, and what it has heard when it fails.
  streamEvents: (job) => all(at(job).messages.stream(job.asked), job.seen),
  streamBeta: (job) => at(job).beta.messages.stream(job.asked).finalMessage(),
  // As a server hands a stream on to a browser, and the browser reads it.
  async streamRelayed(job) {
    const readable = at(job).messages.stream(job.asked).toReadableStream();
    return MessageStream.fromReadableStream(readable).finalMessage();
  },

  countTokens: (job) => at(job).messages.countTokens(job.asked),
  parse: async (job) =>
    (await at(job).messages.parse({ ...job.asked, output_config: { format: zodOutputFormat(Capital) } })).parsed_output,
  streamParsed: async (job) =>
    (await at(job).messages.stream({ ...job.asked, output_config: { format: zodOutputFormat(Capital) } }).finalMessage()).parsed_output,

  async runTools(job) {
    const asked = [];
    const weather = betaZodTool({
      name: "weather",
      description: "The weather of a city.",
      inputSchema: z.object({ city: z.string() }),
      run: ({ city }) => {
        asked.push(city);
        return `In ${city} it rains.`;
      },
    });
    const runner = at(job).beta.messages.toolRunner({ ...job.asked, tools: [weather], stream: job.streaming ?? false });
    if (job.streaming) for await (const stream of runner) for await (const _ of stream);
    const final = await runner.runUntilDone();
    return { asked, final };
  },

  // Pages of what may be asked.
  models: async (job) => {
    const first = await at(job).models.list(job.page ?? {});
    const pages = [];
    for await (const page of first.iterPages()) pages.push(page.data.map((one) => one.id));
    return pages;
  },
  eachModel: async (job) => (await all(at(job).models.list(job.page ?? {}), job.seen)).map((one) => one.id),
  model: (job) => at(job).models.retrieve(job.id),
};

await tellJobs(ways);
