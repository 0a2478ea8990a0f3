// Groups of videos that show the same, side by side, with the one to keep first.
import { api, videoUrl } from "./api.js";
import { shortName, startPreview, stopPreview } from "./card.js";
import { $, empty, h, loading, problem } from "./dom.js";
import { bytes, inMinutes, number, percent, plural } from "./format.js";
import { act, selectBox, selection, toast } from "./selection.js";
import { work } from "./work.js";

const AT_ONCE = 50;
let asked = 0;

async function load() {
  const mine = ++asked;
  if (!$("#groups").childElementCount) $("#groups").replaceChildren(loading("Looking…"));
  let page;
  try {
    page = await api.duplicates({ limit: AT_ONCE });
  } catch (error) {
    if (mine === asked) $("#groups").replaceChildren(problem(error, load));
    return;
  }
  if (mine !== asked) return;
  const copies = page.groups.flatMap((group) => group.copies.map(({ card }) => card.id));
  $("#count").textContent = page.is_known
    ? [
        plural(page.total, "group"),
        page.num_rejected ? `${plural(page.num_rejected, "pair")} rejected` : "",
      ]
        .filter(Boolean)
        .join(" · ")
    : "";
  $("#head-actions").replaceChildren(
    ...(copies.length
      ? [
          h("button.button", { type: "button", onclick: () => selection.add(copies) }, `Select ${plural(copies.length, "copy", "copies")}`),
          h(
            "button.button.button-danger",
            { type: "button", id: "trash-copies", onclick: () => act("trash", copies) },
            `Move ${plural(copies.length, "copy", "copies")} to trash`,
          ),
        ]
      : []),
  );
  $("#groups").replaceChildren(
    ...(page.groups.length
      ? page.groups.map(groupElement)
      : [
          page.is_known
            ? empty("No duplicates", "No copies were found, or all have been handled.")
            : empty("Not searched yet", "Run `provico dedup INDEX`, or open the folder with `provico open`."),
        ]),
  );
  $("#parts").hidden = !page.parts.length;
  $("#part-list").replaceChildren(...page.parts.map(partElement));
}

function picture(video) {
  const element = h(
    "a.copy-picture.card-picture",
    { href: videoUrl(video.id), title: video.id },
    h("img", { src: video.thumbnail, alt: video.id, loading: "lazy" }),
    h("span.on-picture.time", {}, inMinutes(video.duration_seconds)),
  );
  element.addEventListener("pointerenter", () => startPreview(element, video));
  element.addEventListener("pointerleave", () => stopPreview(element));
  return element;
}

function copyElement({ card, edit, num_bytes, picture: size, modified }, { reason = null, keep = null } = {}) {
  return h(
    "article.copy.panel",
    { "data-id": card.id, class: reason === null ? "copy panel" : "copy panel is-kept" },
    picture(card),
    h("h3", { title: card.id }, shortName(card.id)),
    h("p.edit", {}, reason === null ? edit : `Keep: ${reason}`),
    h(
      "p.note",
      {},
      [bytes(num_bytes), size, new Date(1000 * modified).toLocaleDateString("en", { dateStyle: "medium" })].join(" · "),
    ),
    reason === null
      ? h(
          "div.actions",
          {},
          h("label.check", {}, selectBox(card.id), "Select"),
          h("button.button", { type: "button", onclick: () => act("trash", [card.id]) }, "Move to trash"),
          h("button.button.button-quiet", { type: "button", onclick: () => reject([[keep, card.id]]) }, "Not the same"),
        )
      : null,
  );
}

function groupElement({ keep, reason, copies, probability }) {
  const ids = copies.map(({ card }) => card.id);
  return h(
    "section.group",
    { "aria-label": `Copies of ${keep.card.id}` },
    h(
      "div.panel-head",
      {},
      h("h2", {}, shortName(keep.card.id)),
      h("span.note", {}, `${percent(probability)} sure that they are the same`),
      h(
        "button.button",
        { type: "button", onclick: () => act("trash", ids) },
        `Keep the first, move ${plural(ids.length, "copy", "copies")} to trash`,
      ),
    ),
    h(
      "div.copies",
      {},
      copyElement(keep, { reason }),
      ...copies.map((copy) => copyElement(copy, { keep: keep.card.id })),
    ),
  );
}

const KINDS = { contained: "is a part of", contains: "contains", overlap: "shares a part with" };

function partElement({ first, second, kind, first_span, second_span, speed, is_mirrored, probability }) {
  const span = ([start, end]) => `${inMinutes(start)}–${inMinutes(end)}`;
  const changes = [
    Math.abs(speed - 1) >= 0.02 ? `${number(speed)} × the speed` : "",
    is_mirrored ? "mirrored" : "",
    `${percent(probability)} sure`,
  ].filter(Boolean);
  return h(
    "div.part.panel",
    {},
    picture(first),
    h(
      "p",
      {},
      h("a", { href: videoUrl(first.id, first_span[0]) }, `${shortName(first.id)} ${span(first_span)}`),
      ` ${KINDS[kind]} `,
      h("a", { href: videoUrl(second.id, second_span[0]) }, `${shortName(second.id)} ${span(second_span)}`),
      h("span.note", {}, ` ${changes.join(", ")}`),
    ),
    picture(second),
    h("button.button.button-quiet", { type: "button", onclick: () => reject([[first.id, second.id]]) }, "Not the same"),
  );
}

async function reject(pairs, rejected = true) {
  try {
    await api.reject(pairs, rejected);
    const back = h("button.button", { type: "button", onclick: () => reject(pairs, false) }, "Undo");
    toast(rejected ? "Remembered: these are not the same." : "Undone.", rejected ? back : null);
    await load();
  } catch (error) {
    toast(`${error.message} ${error.hint ?? ""}`);
  }
}

selection.addEventListener("done", load);
work.addEventListener("collectionchange", load);
load();
