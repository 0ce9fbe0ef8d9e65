// Answers questions about json-render with the real package: one JSON question a line on stdin, one answer a line on
// stdout. An answer is {value}, {} for undefined, or {threw} with what went wrong.
import { createInterface } from "node:readline";
import {
  VisibilityConditionStrictSchema,
  autoFixSpec,
  compileSpecStream,
  deepMergeSpec,
  evaluateVisibility,
  resolvePropValue,
  splitRepeatVisibility,
  validateSpec,
} from "@json-render/core";

console.warn = () => {}; // upstream warns of unknown functions; the answer is what counts here

const asks = {
  validate: ({ spec }) => validateSpec(spec, { checkOrphans: true }).issues,
  fix: ({ spec }) => autoFixSpec(spec, { lossy: false }),
  stream: ({ text }) => compileSpecStream(text),
  merge: ({ base, patch }) => deepMergeSpec(base, patch),
  accepts: ({ condition }) => VisibilityConditionStrictSchema.safeParse(condition).success,
  visible: ({ condition, scope }) => evaluateVisibility(condition, scope),
  resolve: ({ value, scope }) => resolvePropValue(value, scope),
  split: ({ condition, scope }) => {
    const { container, itemFilter } = splitRepeatVisibility(condition);
    return [evaluateVisibility(container, { stateModel: scope.stateModel }), evaluateVisibility(itemFilter, scope)];
  },
};

for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  const question = JSON.parse(line);
  let answer;
  try {
    answer = JSON.stringify({ value: asks[question.ask](question) });
  } catch (error) {
    answer = JSON.stringify({ threw: String(error.message) });
  }
  process.stdout.write(answer + "\n");
}
