// The ways to ask of OpenAI's official SDK, streams and all that is built upon them.

import OpenAI from "openai";
import { zodFunction, zodResponseFormat } from "openai/helpers/zod";
import { ChatCompletionStream } from "openai/lib/ChatCompletionStream";
import { z } from "zod";
import { tellJobs } from "./told.mjs";

function at({ url, key = "sk-the-callers-key", retries = 0 }) {
  return new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: retries });
}

async function all(iterable, seen) {
  for await (const one of iterable) seen.push(one);
  return seen;
}

const Capital = z.object({ city: z.string(), people: z.number() });
const City = z.object({ city: z.string() });

/** What the streaming helper says while it listens; `final` is null where it has nothing to parse. */
async function heard(stream) {
  const told = { texts: "", whole: [], fragments: "", calls: [], chunks: 0, usage: null, ended: false };
  stream
    .on("content.delta", ({ delta }) => (told.texts += delta))
    .on("content.done", ({ content }) => told.whole.push(content))
    .on("tool_calls.function.arguments.delta", ({ arguments_delta }) => (told.fragments += arguments_delta))
    .on("tool_calls.function.arguments.done", ({ index, name, arguments: text }) => told.calls.push([index, name, text]))
    .on("totalUsage", (usage) => (told.usage = usage))
    .on("end", () => (told.ended = true));
  const final = await stream.finalChatCompletion();
  return { ...told, final: timeless(final), content: await stream.finalContent() };
}

function timeless({ created, ...completion }) {
  return completion;
}

const ways = {
  create: async (job) => timeless(await at(job).chat.completions.create(job.asked)),
  iterate: async (job) => all(await at(job).chat.completions.create({ ...job.asked, stream: true }), job.seen),
  stream: (job) => heard(at(job).chat.completions.stream(job.asked)),
  async streamRelayed(job) {
    const readable = at(job).chat.completions.stream(job.asked).toReadableStream();
    return timeless(await ChatCompletionStream.fromReadableStream(readable).finalChatCompletion());
  },

  async parse(job) {
    const said = await at(job).chat.completions.parse({ ...job.asked, response_format: zodResponseFormat(Capital, "capital") });
    return said.choices[0].message.parsed;
  },
  async streamParsed(job) {
    const stream = at(job).chat.completions.stream({ ...job.asked, response_format: zodResponseFormat(Capital, "capital") });
    return (await stream.finalChatCompletion()).choices[0].message.parsed;
  },
  async parseCalls(job) {
    const tools = [zodFunction({ name: "weather", parameters: City })];
    const said = await at(job).chat.completions.parse({ ...job.asked, tools });
    return said.choices[0].message.tool_calls.map((call) => call.function.parsed_arguments);
  },

  async runTools(job) {
    const asked = [];
    const weather = zodFunction({
      name: "weather",
      parameters: City,
      function: ({ city }) => {
        asked.push(city);
        return `In ${city} it rains.`;
      },
    });
    const runner = at(job).chat.completions.runTools({ ...job.asked, tools: [weather], stream: job.streaming ?? false });
    return { asked, final: await runner.finalContent(), roles: runner.messages.map((message) => message.role) };
  },

  models: async (job) => {
    const first = await at(job).models.list();
    const pages = [];
    for await (const page of first.iterPages()) pages.push(page.data.map((one) => one.id));
    return pages;
  },
  eachModel: async (job) => (await all(at(job).models.list(), job.seen)).map((one) => one.id),
  model: (job) => at(job).models.retrieve(job.id),
};

await tellJobs(ways);
