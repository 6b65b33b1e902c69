import { readFileSync } from "node:fs";
import { given, tell } from "./told.mjs";

const { dependencies } = JSON.parse(readFileSync(new URL("package.json", import.meta.url)));
const versions = {};
for (const name of Object.keys(dependencies)) {
  await import(name);
  versions[name] = JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url))).version;
}
tell({ given, versions });
