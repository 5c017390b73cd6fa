const given = JSON.parse(process.argv.slice(1).join(""));
const place = process.env.BELAY_OUTPUT;
delete process.env.BELAY_OUTPUT;
process.argv.length = 1;
const exact = (key, value) => {
  const kind = typeof value;
  if (kind === "function" || kind === "symbol" || (kind === "undefined" && key !== "")) {
    throw new TypeError("`result` cannot be returned as JSON: it has a value of the kind " + kind);
  }
  if (kind === "number" && !Number.isFinite(value)) {
    throw new TypeError("`result` cannot be returned as JSON: it has the number " + value);
  }
  return value;
};
const names = Object.keys(given.context);
const AsyncFunction = (async () => {}).constructor;
(async () => {
  const end = "\n;return typeof result === 'undefined' ? null : result;";
  const run = new AsyncFunction("require", ...names, given.code + end);
  const result = await run(require, ...names.map((name) => given.context[name]));
  const line = JSON.stringify({ result: result === undefined ? null : result }, exact);
  require("fs").appendFileSync(place, line + "\n");
})().catch((error) => {
  console.error((error && error.stack) || String(error));
  process.exitCode = 1;
});
