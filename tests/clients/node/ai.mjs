// The AI SDK as a page uses it, in each of its versions: useChat's transport and what reads its stream, and the chat itself without React.
// `direct` is what a page would have without the gateway: a server of its own that asks the provider through the AI SDK.

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import * as ai5 from "ai5";
import * as ai6 from "ai6";
import * as ai7 from "ai7";
import { given, tellAndStay, tellJobs } from "./told.mjs";

const versions = { ai5, ai6, ai7 };

/** The message that is on the screen when the stream has ended, and the chunk with which it ended. */
async function shownAtLast({ readUIMessageStream }, stream) {
  let message, end;
  const watched = stream.pipeThrough(
    new TransformStream({
      transform(chunk, controller) {
        end = chunk;
        controller.enqueue(chunk);
      },
    }),
  );
  for await (const one of readUIMessageStream({ stream: watched, terminateOnError: true })) message = one;
  return { message, end };
}

function transport({ version, url, path = "/api/chat", body = {} }) {
  return new versions[version].DefaultChatTransport({ api: url + path, body });
}

function question(text) {
  return { id: "question", role: "user", parts: [{ type: "text", text }] };
}

/** The state that useChat keeps in React. */
class State {
  status = "ready";
  error = undefined;
  constructor(messages) {
    this.messages = messages;
  }
  pushMessage = (message) => (this.messages = [...this.messages, message]);
  popMessage = () => (this.messages = this.messages.slice(0, -1));
  replaceMessage = (index, message) => (this.messages = this.messages.with(index, structuredClone(message)));
  snapshot = (value) => structuredClone(value);
}

/** A chat whose tools answer as `answers` says by their names, and whose endings are in `ends`. */
function chat(job) {
  const { AbstractChat, lastAssistantMessageIsCompleteWithToolCalls } = versions[job.version];
  const made = new (class extends AbstractChat {})({
    id: "chat",
    state: new State(job.messages ?? []),
    transport: transport(job),
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls,
    onToolCall({ toolCall }) {
      const output = job.answers?.[toolCall.toolName];
      if (output === undefined) return;
      const said = output.error ? { state: "output-error", errorText: output.error } : { output };
      made.addToolOutput({ tool: toolCall.toolName, toolCallId: toolCall.toolCallId, ...said });
    },
    onFinish: ({ finishReason, isAbort, isDisconnect, isError }) => made.ends.push({ finishReason, isAbort, isDisconnect, isError }),
  });
  made.ends = [];
  return made;
}

function shown(chat) {
  return { messages: chat.messages, status: chat.status, error: chat.error?.message, ends: chat.ends };
}

async function until(holds) {
  while (!holds()) await new Promise((resolve) => setTimeout(resolve, 5));
}

const ways = {
  // What the transport and the reader make of one answer.
  async read(job) {
    const stream = await transport(job).sendMessages({
      trigger: "submit-message",
      chatId: "chat",
      messages: job.messages ?? [question("Hello?")],
    });
    return shownAtLast(versions[job.version], stream);
  },

  // The same answer by way of a server of the page's own.
  async direct(job) {
    const model =
      job.kind === "openai"
        ? createOpenAICompatible({ name: "provider", baseURL: `${job.url}/v1`, includeUsage: true })(job.model)
        : createAnthropic({ baseURL: `${job.url}/v1`, apiKey: "none" })(job.model);
    const tools = Object.fromEntries(
      (job.tools ?? []).map((name) => [name, ai7.tool({ inputSchema: ai7.jsonSchema({ type: "object", properties: {} }) })]),
    );
    const result = ai7.streamText({
      model,
      tools,
      maxRetries: 0,
      messages: await ai7.convertToModelMessages(job.messages ?? [question("Hello?")], { tools }),
    });
    return shownAtLast(ai7, result.toUIMessageStream({ sendSources: true }));
  },

  // A conversation: each question when the answer before it is there, tools and all.
  async talk(job) {
    const talking = chat(job);
    for (const text of job.questions) {
      await talking.sendMessage({ text });
      await until(() => talking.status === "ready" || talking.status === "error");
    }
    return shown(talking);
  },

  async regenerate(job) {
    const talking = chat(job);
    await talking.sendMessage({ text: job.questions[0] });
    await talking.regenerate();
    return shown(talking);
  },

  async sendFiles(job) {
    const talking = chat(job);
    await talking.sendMessage({ text: job.questions[0], files: job.files });
    return shown(talking);
  },

  // useCompletion, but for React.
  async complete(job) {
    const told = {};
    const on = (key) => (value) => value && (told[key] = value.message ?? value);
    await versions[job.version].callCompletionApi({
      ...{ api: job.url + "/api/chat", prompt: job.prompt, headers: {}, body: job.body ?? {}, streamProtocol: "data" },
      ...{ setCompletion: on("completion"), setError: on("error"), setLoading() {}, setAbortController() {}, onFinish() {}, onError() {} },
    });
    return told;
  },

  // Presses stop as soon as there is a word on the screen.
  async stop(job) {
    const talking = chat(job);
    const sent = talking.sendMessage({ text: job.questions[0] });
    await until(() => talking.lastMessage?.role === "assistant" && talking.lastMessage.parts.some((part) => part.text));
    await talking.stop();
    await sent;
    return shown(talking);
  },
};

if (given.report) await tellAndStay(given.report, await ways[given.job.way](given.job));
else await tellJobs(ways);
