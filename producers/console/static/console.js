// What HTML cannot do by itself: previews at another width, and keeping what a person types or opened across a refresh.
"use strict";

function fit() {
  for (const previews of document.querySelectorAll(".previews")) {
    const width = Number(previews.dataset.frames);
    for (const frame of previews.querySelectorAll(".frame")) {
      const scale = Math.min(1, frame.clientWidth / width);
      const page = frame.firstElementChild;
      page.style.transform = `scale(${scale})`;
      page.style.height = `${Math.round(frame.clientHeight / scale)}px`;
    }
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

// A part of the page must not be replaced while somebody writes in it or a dialog of theirs is open.
document.addEventListener("htmx:beforeSwap", (event) => {
  const active = document.activeElement;
  const isWriting = active && active.matches("input:not([type=hidden]), textarea, select") && event.detail.target.contains(active);
  if (isWriting && event.detail.target.id !== "jobs") event.detail.shouldSwap = false;
});

document.addEventListener("htmx:afterSettle", fit);
window.addEventListener("resize", fit);
window.addEventListener("DOMContentLoaded", fit);
