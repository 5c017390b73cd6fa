const given = JSON.parse(process.argv.slice(1).join(""));
const place = process.env.BELAY_OUTPUT;
delete process.env.BELAY_OUTPUT;
process.argv.length = 1;
const refuse = (what) => {
  throw new TypeError("`result` cannot be returned as JSON: it has " + what);
};
const exact = (key, value) => {
  const kind = typeof value;
  if (kind === "function" || kind === "symbol" || (kind === "undefined" && key !== "")) {
    refuse("a value of the kind " + kind);
  }
  if (kind === "number" && !Number.isFinite(value)) {
    refuse("the number " + value);
  }
  if (kind === "object" && value !== null && !Array.isArray(value)) {
    const prototype = Object.getPrototypeOf(value);
    if (prototype !== null && prototype !== Object.prototype) {
      refuse("an object of the class " + ((value.constructor && value.constructor.name) || "?"));
    }
  }
  return value;
};
const names = Object.keys(given.context);
// On the first line of the code, so that its lines have their numbers.
const begin = "(async function (" + ["require", ...names].join(", ") + ") {";
const end = "\n;return typeof result === 'undefined' ? null : result;})";
(async () => {
  const vm = require("vm");
  const script = new vm.Script(begin + given.code + end, { filename: "code", columnOffset: -begin.length });
  const result = await script.runInThisContext()(require, ...names.map((name) => given.context[name]));
  const line = JSON.stringify({ result: result === undefined ? null : result }, exact);
  require("fs").appendFileSync(place, line + "\n");
})().catch((error) => {
  console.error((error && error.stack) || String(error));
  process.exitCode = 1;
});
