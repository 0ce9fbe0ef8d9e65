// A timeline that zooms, folds by attempt, and shows what is known of the chosen span. A refresh keeps all of that.

const WHOLE = { from: 0, to: 100 };
const LEAST = 0.5;
let view = WHOLE;
let chosen = null;
const folded = new Set();

const trace = () => document.querySelector("[data-trace]");
const rows = () => [...trace().querySelectorAll("tbody tr")];
const spanOf = (row) => ({ from: Number(row.dataset.from), to: Number(row.dataset.from) + Number(row.dataset.share) });
const chosenRow = () => rows().find((row) => row.querySelector("[data-span]").dataset.span === chosen);

/** Return the time at a place of the width; phases are to scale, each for itself. */
function timeAt(place) {
  const phases = rows().filter((row) => !row.matches(".part"));
  const row = phases.findLast((each) => spanOf(each).from <= place) ?? phases[0];
  const share = Math.min(1, (place - Number(row.dataset.from)) / Number(row.dataset.share));
  const seconds = Number(row.dataset.at) + share * Number(row.dataset.took);
  return seconds < 600 ? `+${seconds.toFixed(seconds < 60 ? 2 : 0)} s` : `+${(seconds / 60).toFixed(1)} min`;
}

function show() {
  if (!trace()) return;
  for (const row of rows()) {
    row.querySelector("svg").setAttribute("viewBox", `${view.from} 0 ${view.to - view.from} 10`);
    const { from, to } = spanOf(row);
    row.classList.toggle("outside", to < view.from || from > view.to);
    const button = row.querySelector("[data-span]");
    if (button.dataset.span === chosen) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
  }
  for (const body of trace().querySelectorAll("tbody")) {
    const fold = body.querySelector(".fold");
    const parts = body.querySelectorAll(".part");
    if (fold) fold.hidden = parts.length === 0;
    fold?.setAttribute("aria-expanded", String(!folded.has(body.id)));
    for (const part of parts) part.hidden = folded.has(body.id);
  }
  const part = view.to - view.from;
  trace().querySelector(".zoom .range").textContent = part >= 100 ? "" : `${timeAt(view.from)} to ${timeAt(view.to)}`;
  trace().querySelector("[data-zoom=out]").disabled = trace().querySelector("[data-zoom=all]").disabled = part >= 100;
  trace().querySelector("[data-fold]").textContent = folded.size ? "Unfold" : "Fold";
  detail();
}

function detail() {
  const pane = document.querySelector("#span-detail");
  const row = chosen && chosenRow();
  pane.hidden = !row;
  trace().classList.toggle("has-detail", Boolean(row));
  if (row) pane.replaceChildren(row.querySelector("template").content.cloneNode(true));
}

/** Show a part of the timeline, within its ends and never less than a sliver. */
function look(from, to) {
  const width = Math.min(100, Math.max(LEAST, to - from));
  const start = Math.min(Math.max(0, (from + to - width) / 2), 100 - width);
  view = { from: start, to: start + width };
  show();
}

function zoom(factor) {
  const row = chosen && chosenRow();
  const { from, to } = row ? spanOf(row) : view;
  const middle = factor < 1 ? (from + to) / 2 : (view.from + view.to) / 2;
  const half = ((view.to - view.from) * factor) / 2;
  look(middle - half, middle + half);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-trace] button");
  if (!button) return;
  if (button.dataset.span) {
    chosen = chosen === button.dataset.span ? null : button.dataset.span;
    show();
    document.querySelector("#span-detail").scrollIntoView({ block: "nearest" });
    return;
  }
  if (button.dataset.zoom === "in") return zoom(0.5);
  else if (button.dataset.zoom === "out") return zoom(2);
  else if (button.dataset.zoom === "all") view = WHOLE;
  else if (button.matches(".fold")) folded.delete(button.closest("tbody").id) || folded.add(button.closest("tbody").id);
  else if (folded.size) folded.clear();
  else for (const body of trace().querySelectorAll("tbody:has(.part)")) folded.add(body.id);
  show();
});

// A range that is drawn over the bars is shown alone; a double click on a row shows its span.
let drag = null;
const placeIn = (box, x) => view.from + ((view.to - view.from) * Math.min(1, Math.max(0, (x - box.left) / box.width)));
document.addEventListener("pointerdown", (event) => {
  const bar = event.target.closest("[data-trace] td.bar-col");
  if (!bar || event.button !== 0) return;
  const box = bar.querySelector("svg").getBoundingClientRect();
  drag = { box, from: placeIn(box, event.clientX), x: event.clientX, bar };
  if (event.pointerType === "mouse") event.preventDefault();
});
document.addEventListener("pointermove", (event) => {
  if (!drag) return;
  const { box } = drag;
  const [left, right] = [drag.x, Math.min(box.right, Math.max(box.left, event.clientX))].sort((a, b) => a - b);
  for (const svg of trace().querySelectorAll("svg.phase")) {
    svg.style.setProperty("--from", `${((left - box.left) / box.width) * 100}%`);
    svg.style.setProperty("--to", `${((right - box.left) / box.width) * 100}%`);
  }
  trace().classList.add("dragging");
});
document.addEventListener("pointerup", (event) => {
  if (!drag) return;
  const [from, to] = [drag.from, placeIn(drag.box, event.clientX)].sort((a, b) => a - b);
  const isMeant = Math.abs(event.clientX - drag.x) > 4;
  drag = null;
  trace()?.classList.remove("dragging");
  if (isMeant && trace()) look(from, to);
});
document.addEventListener("pointercancel", () => {
  drag = null;
  trace()?.classList.remove("dragging");
});
document.addEventListener("dblclick", (event) => {
  const row = event.target.closest("[data-trace] tbody tr");
  if (!row) return;
  const { from, to } = spanOf(row);
  look(from - (to - from) * 0.05, to + (to - from) * 0.05);
});

document.addEventListener("keydown", (event) => {
  if (!trace()?.contains(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
  const step = (view.to - view.from) / 4;
  if (event.key === "ArrowLeft" && view.from > 0) look(view.from - step, view.to - step);
  else if (event.key === "ArrowRight" && view.to < 100) look(view.from + step, view.to + step);
  else if (event.key === "Escape" && chosen) {
    chosenRow()?.querySelector("[data-span]").focus();
    chosen = null;
    show();
  } else return;
  event.preventDefault();
});

document.addEventListener("htmx:afterSettle", show);
document.addEventListener("DOMContentLoaded", show);
