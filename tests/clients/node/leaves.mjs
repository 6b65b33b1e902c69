// A program that leaves while it is answered, in the ways that the SDKs offer.

import { given, raised, tellAndStay } from "./told.mjs";

const { how, sdk, url, asked, meanwhile, report } = given;
const { create, stream } = await (sdk === "anthropic" ? anthropic() : openai());

async function anthropic() {
  const { default: Anthropic } = await import("@anthropic-ai/sdk");
  const { messages } = new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0 });
  return { create: (more, options) => messages.create({ ...asked, ...more }, options), stream: (options) => messages.stream(asked, options) };
}

async function openai() {
  const { default: OpenAI } = await import("openai");
  const { completions } = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 }).chat;
  return { create: (more, options) => completions.create({ ...asked, ...more }, options), stream: (options) => completions.stream(asked, options) };
}

/** A signal for the request, which aborts as soon as whoever listens at `meanwhile` answers. */
function abortedMeanwhile() {
  const controller = new AbortController();
  fetch(meanwhile).then(() => controller.abort());
  return { signal: controller.signal };
}

const ways = {
  async abortsTheHelper() {
    const helper = stream();
    helper.once(sdk === "anthropic" ? "text" : "content", () => helper.abort());
    await helper.done();
  },
  async leavesTheLoop() {
    for await (const _ of await create({ stream: true })) break;
  },
  async abortsTheStream() {
    const raw = await create({ stream: true });
    for await (const _ of raw) raw.controller.abort();
  },
  abortsInSilence: () => create({}, abortedMeanwhile()),
  abortsAStreamInSilence: () => create({ stream: true }, abortedMeanwhile()),
  abortsTheHelperInSilence: () => stream(abortedMeanwhile()).done(),
};

try {
  await ways[how]();
  await tellAndStay(report, null);
} catch (error) {
  await tellAndStay(report, raised(error).class);
}
