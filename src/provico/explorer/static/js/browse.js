// The collection: filter, sort, look.
import { api, searchUrl } from "./api.js";
import { card, previewWatcher, stopPreview } from "./card.js";
import { $, debounce, empty, h, loading, problem, svg } from "./dom.js";
import { count, number, plural } from "./format.js";
import { CHUNK, Grid } from "./grid.js";
import { shortcut } from "./keys.js";
import { PageState } from "./state.js";

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
  min_uncertainty: "",
  max_uncertainty: "",
  min_seconds: "",
  max_seconds: "",
};
const STEPS = 100; // of the uncertainty sliders

const state = new PageState(DEFAULTS);
const form = $("#filters");
const [lowest, highest] = [$("#min-uncertainty"), $("#max-uncertainty")];
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
        "No video is like that",
        "Nothing in the collection fits all the filters.",
        h("button.button", { type: "button", onclick: reset }, "Clear filters"),
      )
    : empty(
        "The index is empty",
        "Add videos with `provico index`; they appear here when the page is loaded again.",
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

// The sliders move over the histogram in equal steps from the least to the greatest uncertainty.
const toUncertainty = (step) =>
  stats.uncertainty.min + (step / STEPS) * (stats.uncertainty.max - stats.uncertainty.min);
const toStep = (value) =>
  (STEPS * (value - stats.uncertainty.min)) / (stats.uncertainty.max - stats.uncertainty.min || 1);

function showRange() {
  const [least, most] = [state.number("min_uncertainty"), state.number("max_uncertainty")];
  lowest.value = least === null ? 0 : toStep(least);
  highest.value = most === null ? STEPS : toStep(most);
  for (const slider of [lowest, highest])
    slider.setAttribute("aria-valuetext", number(toUncertainty(Number(slider.value))));
  $("#uncertainty-range").textContent =
    `${number(toUncertainty(Number(lowest.value)))} – ${number(toUncertainty(Number(highest.value)))}`;
  const { edges } = stats.uncertainty.histogram;
  $("#histogram")
    .querySelectorAll("rect")
    .forEach((bar, place) => {
      const middle = (edges[place] + edges[place + 1]) / 2;
      bar.classList.toggle("inside", (least ?? -Infinity) <= middle && middle <= (most ?? Infinity));
    });
}

function drawHistogram() {
  const { counts } = stats.uncertainty.histogram;
  const tallest = Math.max(...counts, 1);
  $("#histogram").setAttribute("viewBox", `0 0 ${counts.length} 1`);
  $("#histogram").replaceChildren(
    ...counts.map((n, place) => {
      const height = n ? Math.max(0.04, n / tallest) : 0;
      return svg("rect", { x: place + 0.08, y: 1 - height, width: 0.84, height });
    }),
  );
}

const refreshSoon = debounce(refresh, 180);

function slide(event) {
  const [low, high] = [Number(lowest.value), Number(highest.value)];
  if (low > high) event.target.value = event.target === lowest ? high : low;
  state.set({
    min_uncertainty: Number(lowest.value) > 0 ? toUncertainty(Number(lowest.value)).toPrecision(6) : "",
    max_uncertainty: Number(highest.value) < STEPS ? toUncertainty(Number(highest.value)).toPrecision(6) : "",
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
  drawHistogram();
  showRange();
  lowest.addEventListener("input", slide);
  highest.addEventListener("input", slide);
  $("#reset").addEventListener("click", reset);
  await refresh();
}

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
shortcut("ArrowLeft", "Video before", () => grid.move(-1));
shortcut("ArrowDown", "Video below", () => grid.move(grid.columns));
shortcut("ArrowUp", "Video above", () => grid.move(-grid.columns));
shortcut("s", "Find videos like the focused one", () => {
  const id = document.activeElement?.closest?.(".card")?.dataset.id;
  if (id) location.assign(searchUrl(id));
});
start();
