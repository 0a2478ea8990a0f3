// How a video looks while one decides about it.
import { videoUrl } from "./api.js";
import { bucketChip, measure } from "./card.js";
import { h } from "./dom.js";
import { inMinutes, number } from "./format.js";

/** What can be decided, by which key. */
export const CHOICES = [
  ["keep", "k", "Keep"],
  ["drop", "d", "Drop"],
  ["trim", "t", "Trim…"],
];

const keyed = (text, key, onclick, name = "button.button", attributes = {}) =>
  h(name, { type: "button", onclick, ...attributes }, text, h("kbd", {}, key));

/** The video on the left, the decision on the right. */
export function reviewElement(item, player, strip, { choose, cutTrim, saveTrim, cancelTrim, undo, next }) {
  const trimming = h(
    "div.trim-actions",
    { id: "trim-actions", hidden: true },
    h(
      "p.note",
      {},
      "Marked parts are kept. Drag the handles or move them with the arrow keys; Delete on a handle removes its part.",
    ),
    keyed("Cut at this moment ", "x", cutTrim),
    keyed("Keep these parts ", "Enter", saveTrim, "button.button.button-primary"),
    keyed("Cancel ", "Esc", cancelTrim),
  );
  const choices = CHOICES.map(([choice, key, text]) =>
    keyed(text, key, () => choose(choice), `button.button.choice.choice-${choice}`, {
      "data-choice": choice,
    }),
  );
  const facts = {
    Class: item.label ?? "–",
    Length: inMinutes(item.duration_seconds),
    Unsure: `${Math.round(100 * item.uncertainty_percentile)} %`,
  };
  const rows = Object.entries(facts).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]);
  const numbers = [
    ["Uncertainty", item.uncertainty],
    ["Disagreement of its clips", item.disagreement],
  ].flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, number(value))]);
  const review = h(
    "section.panel.review",
    { "aria-labelledby": "item-title" },
    h("div", { id: "verdict" }),
    h("h2", { id: "item-title" }, h("a", { href: videoUrl(item.id) }, item.id)),
    item.reason ? h("p.reason", {}, item.reason) : null,
    h("dl.facts", {}, ...rows),
    measure(item),
    h(
      "details.numbers",
      {},
      h("summary", {}, "Numbers"),
      item.detail ? h("p.note", {}, item.detail) : null,
      h("dl.facts", {}, ...numbers),
    ),
    h("div.choices", {}, ...choices),
    h("div.choices.choices-more", {}, keyed("Undo", "u", undo), keyed("Next", "j", next)),
  );
  const strips = h("section.panel", { "aria-label": "Uncertainty over time" }, strip.element, trimming);
  return h(
    "div.video-layout",
    {},
    h("div.video-main", {}, player.element, strips),
    h("div.video-side", {}, review),
  );
}

/** What holds for a video, or is proposed; and what of it is not saved. */
export function verdictElements(item, failed) {
  const { decision, bucket } = item;
  const proposed = bucket ? h("span.note", {}, "Proposed: ", bucketChip(bucket)) : null;
  const parts = (decision?.segments ?? []).map(([start, end]) => `${inMinutes(start)}–${inMinutes(end)}`);
  const trouble = failed
    ? `Not saved as ${failed.decision}: ${failed.error.message} ${failed.error.hint ?? ""}`
    : item.trouble;
  return [
    decision ? bucketChip(decision.decision) : proposed,
    parts.length ? h("span.note", {}, parts.join(", ")) : null,
    trouble ? h("p.not-saved", { role: "alert" }, trouble) : null,
  ].filter(Boolean);
}

/** Some videos of the queue, the first of which is at `first`; `go(place)` opens one. */
export function queueElements(items, first, at, go) {
  return items.map((item, number_) => {
    const place = first + number_;
    const attributes = {
      type: "button",
      "aria-current": place === at ? "true" : null,
      "aria-label": `${item.id}, ${item.decision?.decision ?? "open"}`,
      title: item.id,
      onclick: () => go(place),
    };
    const state = bucketChip(item.decision?.decision) ?? h("span.chip", {}, "open");
    return h(
      "li",
      {},
      h("button", attributes, h("img", { src: item.thumbnail, alt: "", loading: "lazy" }), state),
    );
  });
}
