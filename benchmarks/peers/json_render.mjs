// The same page by json-render: parse, validate against a catalog of the same props, render to static HTML.
// node json_render.mjs DIRECTORY-WITH-node_modules SPEC; speaks as benchmarks/turns.py does.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

process.env.NODE_ENV = "production";
const [, , home, text] = process.argv;
const require = createRequire(`${home}/`);
const { defineCatalog, validateSpec } = require("@json-render/core");
const { JSONUIProvider, Renderer, defineRegistry } = require("@json-render/react");
const { schema } = require("@json-render/react/schema");
const { createElement: h, Fragment } = require("react");
const { renderToStaticMarkup } = require("react-dom/server");
const { z } = require("zod");

const label = z.string().min(1).max(60);
const title = z.string().min(1).max(140);
const href = z.string().regex(/^(https:\/\/|mailto:|tel:|#|[a-z0-9/-]+\.html)/).max(2000);
const component = (props, slots = []) => ({ props: z.strictObject(props), slots, description: "" });
const link = ({ props }) => h("p", null, h("a", { href: props.href }, props.label));

const catalog = defineCatalog(schema, {
  components: {
    Page: component({ title }, ["default"]),
    Section: component({ heading: title }, ["default"]),
    Grid: component({ columns: z.number().int().min(1).max(4) }, ["default"]),
    Stack: component({ direction: z.enum(["vertical", "horizontal"]), gap: z.enum(["sm", "md", "lg"]) }, ["default"]),
    Card: component({ heading: title, text: z.string().max(700) }, ["default"]),
    Text: component({ text: z.string().max(6000) }),
    Button: component({ label, href }),
    Link: component({ label, href }),
  },
  actions: {},
});
const { registry } = defineRegistry(catalog, {
  components: {
    Page: ({ props, children }) => h(Fragment, null, h("title", null, props.title), h("main", null, children)),
    Section: ({ props, children }) => h("section", null, h("h2", null, props.heading), children),
    Grid: ({ props, children }) => h("div", { className: `cards cards-${props.columns}` }, children),
    Stack: ({ props, children }) => h("div", { className: `stack stack-${props.direction}` }, children),
    Card: ({ props, children }) => h("div", null, h("h3", null, props.heading), h("p", null, props.text), children),
    Text: ({ props }) => h("div", null, h("p", null, props.text)),
    Button: link,
    Link: link,
  },
});

function operation() {
  const spec = JSON.parse(text);
  const checked = catalog.validate(spec);
  if (!checked.success || !validateSpec(spec).valid) throw new Error(JSON.stringify(checked.error ?? validateSpec(spec)));
  return renderToStaticMarkup(h(JSONUIProvider, { registry }, h(Renderer, { spec, registry })));
}

const elements = Object.keys(JSON.parse(text).elements).length;
const html = operation();
if (elements !== 50 || html.split("</a>").length !== 11) throw new Error(`not the page: ${html.slice(0, 400)}`);

console.log("ready");
for await (const line of createInterface({ input: process.stdin })) {
  const began = process.hrtime.bigint();
  for (let left = Number(line); left > 0; left--) operation();
  console.log(Number(process.hrtime.bigint() - began) / 1e9);
}
