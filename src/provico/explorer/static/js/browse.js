// The collection: filter, sort, look.
import { api, searchUrl } from "./api.js";
import { card, previewWatcher, stopPreview } from "./card.js";
import { $, debounce, empty, h, loading, problem } from "./dom.js";
import { count, plural } from "./format.js";
import { CHUNK, Grid } from "./grid.js";
import { shortcut } from "./keys.js";
import { selection } from "./selection.js";
import { PageState } from "./state.js";
import { work } from "./work.js";

const DEFAULTS = {
  text: "",
  label: "",
  subset: "",
  bucket: "",
  tag: "",
  kind: "",
  cluster: "",
  sort: "id",
  play: "",
  min_unsure: "",
  max_unsure: "",
  min_seconds: "",
  max_seconds: "",
};
const STEPS = 100; // of the sliders

const state = new PageState(DEFAULTS);
const form = $("#filters");
const [lowest, highest] = [$("#min-unsure"), $("#max-unsure")];
const previews = previewWatcher();
let stats;
let asked = 0;

const filters = () => {
  const { play, ...values } = state.values;
  return values;
};

const grid = new Grid($("#grid"), {
  fetchChunk: async (offset, limit, signal) =>
    (await api.videos({ ...filters(), offset, limit }, { signal })).items,
  makeCard: (video) => {
    const element = card(video);
    if (playsAll()) previews.watch(element);
    return element;
  },
  left: (element) => {
    previews.leave(element);
    stopPreview(element);
  },
});

// Where there is no pointer to hover with, what is in view plays.
const playsAll = () => state.get("play") === "1" || matchMedia("(hover: none)").matches;

async function refresh() {
  if (!stats) return; // it is asked for with the fields as they are by then
  const mine = ++asked;
  $("#reset").hidden = Object.keys(DEFAULTS).every(
    (key) => key === "sort" || key === "play" || !state.get(key),
  );
  if (!grid.element.childElementCount) grid.element.append(loading("Opening the index…"));
  try {
    const { total, items } = await api.videos({ ...filters(), offset: 0, limit: CHUNK });
    if (mine !== asked) return; // a newer question is under way
    grid.show(total, items);
    $("#count").textContent =
      total === stats.num_videos
        ? plural(total, "video")
        : `${count(total)} of ${plural(stats.num_videos, "video")}`;
    if (!total) grid.element.append(nothing());
  } catch (error) {
    if (mine !== asked) return;
    grid.clear();
    grid.element.append(problem(error, refresh));
    $("#count").textContent = "";
  }
}

function nothing() {
  return stats.num_videos
    ? empty(
        "No matching videos",
        "No video passes all filters.",
        h("button.button", { type: "button", onclick: reset }, "Clear filters"),
      )
    : empty(
        "The index is empty",
        "Add videos with `provico index`; they appear here when you reload the page.",
      );
}

function reset() {
  state.set({ ...DEFAULTS, sort: state.get("sort"), play: state.get("play") });
  state.show(form);
  showRange();
  refresh();
}

function fillSelect(name, options) {
  const select = form.elements[name];
  select.append(...options.map(({ value, text }) => h("option", { value }, text)));
  select.closest(".field").hidden = !options.length;
}

function showRange() {
  const [least, most] = [state.number("min_unsure") ?? 0, state.number("max_unsure") ?? 1];
  lowest.value = STEPS * least;
  highest.value = STEPS * most;
  for (const slider of [lowest, highest]) slider.setAttribute("aria-valuetext", `${slider.value} %`);
  $("#unsure-range").textContent = `${lowest.value} – ${highest.value} %`;
}

const refreshSoon = debounce(refresh, 180);

function slide(event) {
  const [low, high] = [Number(lowest.value), Number(highest.value)];
  if (low > high) event.target.value = event.target === lowest ? high : low;
  state.set({
    min_unsure: Number(lowest.value) > 0 ? Number(lowest.value) / STEPS : "",
    max_unsure: Number(highest.value) < STEPS ? Number(highest.value) / STEPS : "",
  });
  showRange();
  refreshSoon();
}

function setPlaying() {
  for (const element of grid.element.querySelectorAll(".card"))
    (playsAll() ? previews.watch : previews.leave)(element);
}

async function start() {
  // The fields answer from the first moment: what is chosen while the index opens is not lost.
  state.bind(form, (name) => (name === "play" ? setPlaying() : refreshSoon()));
  try {
    stats = await api.stats();
  } catch (error) {
    $("#count").textContent = "";
    grid.element.replaceChildren(problem(error, () => location.reload()));
    return;
  }
  fillSelect(
    "label",
    stats.labels.map(({ label, count: n }) => ({ value: label, text: `${label} (${count(n)})` })),
  );
  fillSelect(
    "subset",
    stats.subsets.map(({ label, count: n }) => ({ value: label, text: `${label} (${count(n)})` })),
  );
  fillSelect(
    "bucket",
    Object.entries(stats.buckets ?? {}).map(([bucket, n]) => ({
      value: bucket,
      text: `${bucket} (${count(n)})`,
    })),
  );
  state.show(form); // some options were not there before
  showRange();
  lowest.addEventListener("input", slide);
  highest.addEventListener("input", slide);
  $("#reset").addEventListener("click", reset);
  await refresh();
}

// What comes in while somebody reads further down waits until they are back at the top.
work.addEventListener("collectionchange", async () => {
  if (scrollY > 200 || grid.element.contains(document.activeElement)) return;
  stats = await api.stats().catch(() => stats);
  refresh();
});
selection.addEventListener("done", ({ detail: { verb } }) => {
  if (verb !== "link") refresh();
});
addEventListener("popstate", () => {
  state.read();
  state.show(form);
  if (!stats) return;
  showRange();
  refresh();
});
$("#filters-toggle").addEventListener("click", ({ currentTarget }) => {
  currentTarget.setAttribute("aria-expanded", String(form.classList.toggle("is-open")));
});
shortcut("/", "Find by name", () => $("#text").focus());
shortcut("ArrowRight", "Next video", () => grid.move(1));
shortcut("ArrowLeft", "Previous video", () => grid.move(-1));
shortcut("ArrowDown", "Video below", () => grid.move(grid.columns));
shortcut("ArrowUp", "Video above", () => grid.move(-grid.columns));
shortcut("s", "Find videos similar to the focused one", () => {
  const id = document.activeElement?.closest?.(".card")?.dataset.id;
  if (id) location.assign(searchUrl(id));
});
start();
