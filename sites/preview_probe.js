// Stands first in a page that the console frames: tells it what goes wrong with the page's scripts and files, outlines
// what changed, and scrolls along with the page beside it.
(() => {
  // A browser may deny a frame its storage. Visitors have it at the site's own origin, so the frame gets one in memory.
  const inMemory = () => {
    const kept = new Map();
    const own = {
      getItem: (name) => kept.get(String(name)) ?? null,
      setItem: (name, value) => void kept.set(String(name), String(value)),
      removeItem: (name) => void kept.delete(String(name)),
      clear: () => kept.clear(),
      key: (at) => [...kept.keys()][at] ?? null,
      get length() { return kept.size; },
    };
    return new Proxy(own, {
      get: (_, name) => (name in own ? own[name] : kept.get(name)),
      set: (_, name, value) => (own.setItem(name, value), true),
      deleteProperty: (_, name) => (kept.delete(name), true),
    });
  };
  for (const name of self.origin === "null" ? [] : ["localStorage", "sessionStorage"]) {
    try {
      void window[name];
    } catch {
      Object.defineProperty(window, name, { value: inMemory() });
    }
  }

  let left = 20;
  const tell = (text) => {
    if (left-- > 0) parent.postMessage({ pointsman: "script-error", text: String(text).slice(0, 300) }, "*");
  };
  addEventListener("error", (event) => {
    const { message, filename, lineno, target } = event;
    if (message) tell(filename ? `${message} (${filename.split("/").pop() || "page"}, line ${lineno})` : message);
    else if (target.src || target.href) tell(`not found: ${target.getAttribute("src") ?? target.getAttribute("href")}`);
  }, true);
  addEventListener("unhandledrejection", (event) => tell(event.reason));
  addEventListener("securitypolicyviolation", (event) =>
    tell(`not allowed: ${event.blockedURI} (${event.effectiveDirective})`));

  const say = (pointsman, more) => parent.postMessage({ pointsman, ...more }, "*");
  let told = -1;
  addEventListener("message", ({ source, data }) => {
    if (source !== parent) return;
    if (data?.pointsman === "mark") {
      const found = data.marks.map((selector) => document.querySelector(selector)).filter(Boolean);
      for (const { style } of found) [style.outline, style.outlineOffset] = ["3px solid #d6409f", "2px"];
      const box = data.isFirst && found[0]?.getBoundingClientRect(); // scrollIntoView would scroll the console, too
      if (box) scrollTo({ top: scrollY + box.top - Math.max(0, innerHeight - box.height) / 2, behavior: "instant" });
    } else if (data?.pointsman === "scroll") {
      told = data.top;
      scrollTo({ top: told, behavior: "instant" });
    }
  });
  addEventListener("scroll", () => {
    if (Math.abs(scrollY - told) > 1) say("scrolled", { top: scrollY });
    told = -1;
  });
  addEventListener("load", () => say("ready"));
})();
