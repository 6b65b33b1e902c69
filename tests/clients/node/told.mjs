// How a script is told what to do and tells what came of it: one JSON value in, one out.

import { text } from "node:stream/consumers";

export const given = JSON.parse(await text(process.stdin));

/** What has no place in JSON is null. */
export function tell(value) {
  process.stdout.write(JSON.stringify(value, (_, one) => (one === undefined ? null : one)));
}

/**
 * Does every job in its way, all at once: what each made of it, or what it raised, in their order.
 *
 * A job is `{way, ...}`; `ways[way](job)` returns a value, and may note in `job.seen` what there was before it raised.
 */
export async function tellJobs(ways) {
  tell(
    await Promise.all(
      given.map(async (job) => {
        job.seen = [];
        try {
          return { made: await ways[job.way](job) };
        } catch (error) {
          return { raised: raised(error), seen: job.seen };
        }
      }),
    ),
  );
}

/** What a program can tell an SDK's error by. */
export function raised(error) {
  const { status, type, code, param, errorCode, requestID, message } = error;
  const said = { status, type, code, param, errorCode, requestID, message };
  return { class: error.constructor.name, ...said, retryAfter: error.headers?.get("retry-after"), body: error.error };
}

/**
 * For a test of who leaves: tells `what` and lives on, so that it is not the end of the process that closes the connection.
 *
 * Whoever listens at `url` does not answer, and ends the process when it is done.
 */
export async function tellAndStay(url, what) {
  await fetch(url, { method: "POST", body: JSON.stringify(what, (_, one) => (one === undefined ? null : one)) });
}
