// How a script is told what to do and tells what came of it: one JSON value in, one out.

import { text } from "node:stream/consumers";

export const given = JSON.parse(await text(process.stdin));

export function tell(value) {
  process.stdout.write(JSON.stringify(value, (_, one) => (one === undefined ? null : one)));
}
