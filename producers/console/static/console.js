// What HTML cannot do by itself: previews at another width, a key for search, and an event log that stays at its end.
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

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-width]");
  if (!button) return;
  const card = button.closest(".card");
  card.querySelector(".previews").dataset.frames = button.dataset.width;
  for (const other of card.querySelectorAll("[data-width]")) other.setAttribute("aria-pressed", String(other === button));
  fit();
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

// "/" leads to the page's search, as in the tools that people come from.
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.matches("input, textarea, select");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  const field = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
  if (field) {
    event.preventDefault();
    field.focus();
  }
});

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

// The log shows its end, where the newest events are, unless somebody has gone back in it.
const LINES = 80;
const isAtEnd = (box) => box.scrollHeight - box.scrollTop - box.clientHeight < LINES;
const showEnd = (box) => (box.scrollTop = box.scrollHeight);
window.addEventListener("DOMContentLoaded", () => document.querySelectorAll(".events-box").forEach(showEnd));
document.addEventListener("htmx:sseMessage", (event) => {
  const box = event.target.closest(".events-box");
  if (box && event.detail.type === "line" && isAtEnd(box)) showEnd(box);
});

document.addEventListener("htmx:sseClose", () => document.querySelector(".live")?.remove());

document.addEventListener("htmx:afterSettle", fit);
window.addEventListener("resize", fit);
window.addEventListener("DOMContentLoaded", fit);
