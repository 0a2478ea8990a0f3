// One place that listens for keys and can list them all.
import { $, h } from "./dom.js";

const shortcuts = new Map();

/** `shortcut("k", "Keep this video", keep)`; keys are as in KeyboardEvent.key. */
export function shortcut(key, description, action) {
  shortcuts.set(key, { description, action });
}

const isTyping = (target) =>
  target.closest?.("input:not([type=range]):not([type=checkbox]), textarea, select, [contenteditable]");

const PRESSABLE = "button, a, summary, video, input, [role=button]";

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (isTyping(event.target) || $("dialog[open]")) return;
  if (event.target.type === "range" && event.key.startsWith("Arrow")) return; // they move the slider
  if ([" ", "Enter"].includes(event.key) && event.target.closest?.(PRESSABLE)) return; // they press it
  const found = shortcuts.get(event.key);
  if (!found) return;
  event.preventDefault();
  found.action(event);
});

const NAMES = { ArrowRight: "→", ArrowLeft: "←", ArrowUp: "↑", ArrowDown: "↓", " ": "Space" };

function showKeys() {
  const list = $(".keys-list");
  list.replaceChildren(
    ...[...shortcuts].flatMap(([key, { description }]) => [
      h("dt", {}, h("kbd", {}, NAMES[key] ?? key)),
      h("dd", {}, description),
    ]),
  );
  $("#keys-dialog").showModal();
}

const VIEWS = {
  1: ["/", "Overview"],
  2: ["/browse", "Browse"],
  3: ["/duplicates", "Duplicates"],
  4: ["/search", "Search"],
  5: ["/map", "Map"],
  6: ["/curate", "Review"],
  7: ["/runs", "Runs"],
};
for (const [key, [href, title]] of Object.entries(VIEWS))
  shortcut(key, `Go to ${title}`, () => location.assign(href));
shortcut("?", "Show this list", showKeys);
$("#keys-button").addEventListener("click", showKeys);
