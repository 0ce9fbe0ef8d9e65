// The command palette (Ctrl K): every page of the console, whatever this page offers, and a search for jobs.

const palette = document.querySelector("#palette");
const words = palette.querySelector("input");
const list = palette.querySelector("[role=listbox]");
const search = palette.dataset.search;
let commands = [];

function found() {
  const said = (element) => (element.querySelector("summary") ?? element).textContent.trim().replace(/\s+/g, " ");
  const kinds = ["main [data-key]:not(input, [data-zoom])", ".top nav a", "main a.row, main td.prompt a"];
  return kinds
    .flatMap((kind) => [...document.querySelectorAll(kind)])
    .filter((element) => element.checkVisibility())
    .map((element) => ({ text: said(element), element }));
}

function follow(element) {
  if (!element.matches("details")) return element.click();
  element.open = true;
  element.querySelector("input:not([type=hidden]), textarea").focus();
}

function show() {
  const wanted = words.value.trim();
  const parts = wanted.toLowerCase().split(/\s+/);
  const fitting = commands.filter(({ text }) => parts.every((part) => text.toLowerCase().includes(part))).slice(0, 12);
  if (wanted) fitting.push({ text: `Search jobs for “${wanted}”`, url: `${search}${encodeURIComponent(wanted)}` });
  list.replaceChildren(...fitting.map(({ text, element, url }, index) => {
    const option = Object.assign(document.createElement("li"), { id: `command-${index}`, role: "option" });
    option.append(Object.assign(document.createElement("span"), { textContent: text }));
    const key = element?.dataset.key;
    if (key) option.append(Object.assign(document.createElement("kbd"), { textContent: key }));
    option.addEventListener("click", () => {
      palette.close();
      if (url) location.assign(url);
      else follow(element);
    });
    return option;
  }));
  choose(wanted ? 0 : -1); // nothing is chosen, and Enter does nothing, before a word is typed
}

function choose(index) {
  const options = [...list.children];
  const next = index < -1 ? options.at(-1) : options[index < options.length ? index : 0];
  for (const option of options) option.setAttribute("aria-selected", String(option === next));
  words.setAttribute("aria-activedescendant", next?.id ?? "");
  next?.scrollIntoView({ block: "nearest" });
}

function openPalette() {
  commands = found();
  words.value = "";
  show();
  palette.showModal();
}

const opener = document.querySelector("#open-palette");
opener.hidden = false;
opener.addEventListener("click", openPalette);

document.addEventListener("keydown", (event) => {
  if (event.key !== "k" || !(event.ctrlKey || event.metaKey) || document.querySelector("dialog[open]")) return;
  event.preventDefault();
  openPalette();
});

words.addEventListener("input", show);
words.addEventListener("keydown", (event) => {
  const at = [...list.children].findIndex((option) => option.getAttribute("aria-selected") === "true");
  if (event.key === "ArrowDown") choose(at + 1);
  else if (event.key === "ArrowUp") choose(at > 0 ? at - 1 : -2);
  else if (event.key === "Enter") list.children[at]?.click();
  else return;
  event.preventDefault();
});
