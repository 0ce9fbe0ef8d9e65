// What HTML cannot do by itself: previews at another width, and keys.
"use strict";

function fit() {
  for (const frame of document.querySelectorAll(".frame")) {
    const page = frame.querySelector("iframe");
    if (!page || frame.clientWidth === 0) continue;
    const previews = frame.closest("[data-frames]");
    const scale = Math.min(1, frame.clientWidth / (previews ? Number(previews.dataset.frames) : 1440));
    page.style.transform = `scale(${scale})`;
    page.style.height = `${Math.round(frame.clientHeight / scale)}px`;
  }
}

// A group of buttons sets what the previews beside them show: their width, or how two pages are compared.
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-width], [data-view]");
  if (!button) return;
  const previews = button.closest(".card").querySelector(".previews");
  if (button.dataset.width) previews.dataset.frames = button.dataset.width;
  else previews.dataset.view = button.dataset.view;
  for (const other of button.parentElement.children) other.setAttribute("aria-pressed", String(other === button));
  fit();
});

document.addEventListener("input", (event) => {
  if (!event.target.matches("[data-cut]")) return;
  event.target.closest(".card").querySelector(".previews").style.setProperty("--cut", `${event.target.value}%`);
});

// The pages of a comparison outline what changed and scroll together.
window.addEventListener("message", (event) => {
  const frames = [...document.querySelectorAll(".previews iframe[data-marks]")];
  const frame = frames.find((each) => each.contentWindow === event.source);
  const { pointsman, top } = event.data ?? {};
  if (!frame) return;
  if (pointsman === "ready") {
    const isFirst = frame === frames.findLast((each) => each.dataset.marks !== "[]");
    event.source.postMessage({ pointsman: "mark", marks: JSON.parse(frame.dataset.marks), isFirst }, "*");
  } else if (pointsman === "scrolled" && Number.isFinite(top)) {
    for (const other of frames) if (other !== frame) other.contentWindow.postMessage({ pointsman: "scroll", top }, "*");
  }
});

// What a framed page says about its own scripts is shown below the frame, as text: the page may have made it up.
const MOST = 20;
window.addEventListener("message", (event) => {
  const frame = [...document.querySelectorAll(".frame iframe[id]")].find((each) => each.contentWindow === event.source);
  const { pointsman, text } = event.data ?? {};
  if (!frame || pointsman !== "script-error" || typeof text !== "string") return;
  const box = frame.closest(".frame");
  let list = box.nextElementSibling;
  if (!list?.matches(".script-errors")) {
    list = document.createElement("ul");
    list.className = "script-errors";
    list.id = `errors-${frame.id}`;
    list.setAttribute("aria-label", `What went wrong on ${frame.title}`);
    box.after(list);
  }
  const shown = text.slice(0, 300);
  if (list.children.length >= MOST || [...list.children].some((line) => line.textContent === shown)) return;
  list.append(Object.assign(document.createElement("li"), { textContent: shown }));
});

// A key focuses the field, opens the form, follows the link or presses the button that is named by it.
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.matches("input, textarea, select");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  const meant = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
  if (!meant) return;
  event.preventDefault();
  if (meant.matches("dialog")) meant.showModal();
  else if (meant.matches("details")) {
    meant.open = true;
    meant.querySelector("input:not([type=hidden]), textarea").focus();
  } else if (meant.matches("input")) meant.focus();
  else meant.click();
});

// An upload says what of it was sent, and a file that is too large is not sent at all.
document.addEventListener("change", (event) => {
  const { files, dataset } = event.target;
  if (!dataset?.most || !files) return;
  const isLarge = files[0]?.size > Number(dataset.most);
  event.target.setCustomValidity(isLarge ? `This file is larger than ${Math.floor(dataset.most / 2 ** 20)} MiB.` : "");
  event.target.reportValidity();
});
document.addEventListener("htmx:xhr:progress", ({ target, detail }) => {
  const sending = target.querySelector(".sending");
  if (!sending || !detail.lengthComputable) return;
  sending.hidden = false;
  sending.querySelector("progress").value = detail.loaded / detail.total;
  const isSent = detail.loaded === detail.total;
  sending.querySelector("span").textContent = isSent ? "Stored as soon as it is checked" : `${Math.floor((100 * detail.loaded) / detail.total)} % sent`;
});
document.addEventListener("htmx:sendError", ({ target }) => {
  const sending = target.querySelector(".sending");
  if (!sending) return;
  sending.hidden = false;
  sending.querySelector("span").textContent = "The server cannot be reached; nothing was imported. Try again.";
});

// A panel of filters closes once they are shown.
document.addEventListener("submit", (event) => event.target.querySelector(":scope > details.drop")?.removeAttribute("open"));

// What costs, deletes or publishes asks once more; without scripts the page that follows says how to undo it.
let asked = null;
document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-sure]");
  if (!button || button === asked || !button.form.checkValidity()) return;
  event.preventDefault();
  const sure = document.querySelector("#sure");
  sure.querySelector("p").textContent = button.dataset.sure;
  sure.onclose = () => {
    if (sure.returnValue !== "yes") return;
    asked = button;
    button.click();
    asked = null;
  };
  sure.returnValue = "";
  sure.showModal();
});

// A bar counts down what is left to undo an approval, by the monotonic clock.
const endsOf = new WeakMap();
function countDown() {
  for (const timer of document.querySelectorAll("[data-left]")) {
    const { left, until } = timer.dataset;
    if (endsOf.get(timer)?.until !== until) endsOf.set(timer, { until, at: performance.now() + 1000 * Number(left) });
    const seconds = Math.ceil((endsOf.get(timer).at - performance.now()) / 1000);
    timer.textContent = seconds > 0 ? `Publishing in ${seconds} s` : "Publishing";
    timer.closest("section").querySelector("form").hidden = seconds <= 0;
  }
}
setInterval(countDown, 250);

// A refreshed part keeps what a person typed, chose or opened in it, and the pages that stand in its frames.
const OWN = ["open", "data-frames", "aria-pressed", "style", "value", "checked", "selected"];
const isTheirs = (name, node) => OWN.includes(name) && !node.matches("input[type=hidden], button");
if (window.Idiomorph) {
  Idiomorph.defaults.ignoreActiveValue = true;
  Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) =>
    !isTheirs(name, node) && !(name === "aria-pressed" && node.matches("[data-width]"));
  Idiomorph.defaults.callbacks.beforeNodeMorphed = (old, fresh) =>
    !(old instanceof Element && old.hasAttribute("data-keep") && old.id === fresh.id);
  Idiomorph.defaults.callbacks.beforeNodeRemoved = (node) =>
    !(node instanceof Element && node.matches(".script-errors"));
}

document.addEventListener("htmx:sseClose", () => document.querySelector(".live")?.remove());

document.addEventListener("htmx:afterSettle", fit);
window.addEventListener("resize", fit);
window.addEventListener("DOMContentLoaded", fit);
