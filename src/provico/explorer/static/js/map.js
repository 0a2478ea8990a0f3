// The collection on the axes along which its means differ most.
import { api, videoUrl } from "./api.js";
import { $, empty, h, loading, problem } from "./dom.js";
import { count, percent, plural } from "./format.js";
import { shortcut } from "./keys.js";
import { colour, config, layout, PALETTE, plotly } from "./plot.js";
import { download, selection } from "./selection.js";
import { PageState } from "./state.js";

const MOST_ELLIPSES = 1500; // drawn one by one; more would be a blot
const FEW_POINTS = 4000; // up to here as SVG, which needs no graphics card
const MOST_LISTED = 100;
const BUTTONS_2D = ["lasso2d", "select2d", "zoom2d", "pan2d", "resetScale2d"];
const BUTTONS_3D = ["orbitRotation", "pan3d", "zoom3d", "resetCameraDefault3d"];

const state = new PageState({ dim: "2", colour: "", as: "size" });
let points = null;
let drawn = null;
let selected = [];
let asked = 0;

// There are no ellipses in space; size says the same.
const uncertaintyAs = () =>
  state.get("dim") === "3" && state.get("as") === "ellipse" ? "size" : state.get("as");

// Without labels every class would be the same.
const colouredBy = () =>
  state.get("colour") || (points?.labels.some((label) => label !== null) ? "class" : "cluster");

const groupOf = (place) =>
  colouredBy() === "cluster"
    ? (points.cluster_titles[points.clusters[place]] ?? "junk")
    : (points.labels[place] ?? "no class");

/** Names of the groups, the largest first, each with the places of its videos. */
function groups() {
  const found = new Map();
  points.ids.forEach((_, place) => {
    const name = groupOf(place);
    if (!found.has(name)) found.set(name, []);
    found.get(name).push(place);
  });
  return [...found].sort(([a, mine], [b, theirs]) => theirs.length - mine.length || a.localeCompare(b));
}

function sizes(places) {
  if (uncertaintyAs() !== "size") return 8;
  return places.map((place) => 5 + 15 * points.uncertainty[place]);
}

function trace(name, places, marker) {
  const is3d = state.get("dim") === "3";
  const pick = (values) => places.map((place) => values[place]);
  return {
    name,
    type: is3d ? "scatter3d" : points.ids.length > FEW_POINTS ? "scattergl" : "scatter",
    mode: "markers",
    x: pick(points.x),
    y: pick(points.y),
    ...(is3d ? { z: pick(points.z) } : {}),
    customdata: places,
    text: places.map(
      (place) =>
        `${escaped(points.ids[place])}<br>${points.labels[place] ? `${escaped(points.labels[place])} · ` : ""}unsure ${percent(points.uncertainty[place])}`,
    ),
    hovertemplate: "%{text}<extra></extra>",
    marker: {
      size: sizes(places),
      opacity: 0.82,
      line: { width: is3d ? 0 : 1, color: colour("surface") },
      ...marker,
    },
  };
}

// Plotly reads a little markup in its texts.
const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

function traces() {
  if (colouredBy() === "uncertainty") {
    const places = points.ids.map((_, place) => place);
    return [
      trace("Uncertainty", places, {
        color: points.uncertainty,
        colorscale: "Viridis",
        showscale: false, // the library's own bar is styled in a way that the policy forbids
      }),
    ];
  }
  const found = groups();
  const own = found
    .slice(0, PALETTE.length - 1)
    .map(([name, places], n) => trace(name, places, { color: PALETTE[n] }));
  const rest = found.slice(PALETTE.length - 1);
  return rest.length
    ? [
        ...own,
        trace(
          plural(rest.length, "other"),
          rest.flatMap(([, places]) => places),
          { color: PALETTE.at(-1) },
        ),
      ]
    : own;
}

function ellipses() {
  if (uncertaintyAs() !== "ellipse") return [];
  return traces()
    .flatMap(({ customdata, marker }) =>
      customdata.map((place) => ({
        type: "circle",
        xref: "x",
        yref: "y",
        layer: "below",
        x0: points.x[place] - points.radius[place],
        x1: points.x[place] + points.radius[place],
        y0: points.y[place] - points.radius[place],
        y1: points.y[place] + points.radius[place],
        line: { width: 0 },
        fillcolor: typeof marker.color === "string" ? marker.color : colour("accent"),
        opacity: 0.12,
      })),
    )
    .slice(0, MOST_ELLIPSES);
}

async function draw() {
  if (!points?.ids.length) return; // it is drawn when the points are here
  const Plotly = await plotly();
  if (!points) return; // other axes were asked for meanwhile
  $("#map-form [value=ellipse]").disabled = state.get("dim") === "3";
  const isNarrow = $("#map").clientWidth < 500;
  const title = (axis) => ({
    text: `${"xyz"[axis]} · ${percent(points.explained[axis] ?? 0)}${isNarrow ? "" : " of the variance"}`,
  });
  const is3d = state.get("dim") === "3";
  const legend = { orientation: "h", y: isNarrow ? -0.25 : -0.12, itemsizing: "constant" }; // below the title of the axis
  // The same scale on both axes: distances on a map are to be compared.
  const plain = layout({
    dragmode: is3d ? "orbit" : "lasso",
    legend,
    showlegend: colouredBy() !== "uncertainty",
    shapes: ellipses(),
    xaxis: { title: title(0) },
    yaxis: { title: title(1), scaleanchor: "x" },
    newselection: { line: { color: colour("accent"), width: 2 } },
  });
  const axis3d = (place) => ({
    title: title(place),
    gridcolor: colour("line"),
    color: colour("text"),
    backgroundcolor: colour("surface"),
  });
  if (is3d)
    Object.assign(plain, {
      scene: { xaxis: axis3d(0), yaxis: axis3d(1), zaxis: axis3d(2) },
      margin: { l: 0, r: 0, t: 0, b: 0 },
    });
  const element = $("#map .plot-area") ?? h("div.plot-area");
  if (!element.isConnected) $("#map").replaceChildren(element);
  if (drawn !== state.get("dim")) Plotly.purge(element); // the axes of the other kind would stay
  drawn = state.get("dim");
  await Plotly.react(element, traces(), plain, config(is3d ? BUTTONS_3D : BUTTONS_2D));
  element.removeAllListeners("plotly_selected");
  element.removeAllListeners("plotly_click");
  element.removeAllListeners("plotly_hover");
  element.removeAllListeners("plotly_unhover");
  element.on("plotly_hover", ({ points: [point], event }) => showLook(points.ids[point.customdata], event));
  element.on("plotly_unhover", hideLook);
  element.on("plotly_selected", (event) => {
    if (event?.points.length) select(event.points.map((point) => point.customdata));
  });
  element.on("plotly_click", ({ points: [point] }) =>
    location.assign(videoUrl(points.ids[point.customdata])),
  );
  showScale();
  fillSelectBy();
  $(`#map-form [name=colour][value=${colouredBy()}]`).checked = true;
  $("#map-form [name=colour][value=class]").closest("label").hidden = points.labels.every((label) => label === null);
}

/** What the colours mean, where they mean a number. */
function showScale() {
  $("#scale").hidden = colouredBy() !== "uncertainty";
}

/** The picture of the video under the pointer. */
function showLook(id, event) {
  const look = $("#look") ?? h("img.map-look", { id: "look", alt: "" });
  look.src = `/media/thumbnail?${new URLSearchParams({ id })}`;
  const area = $("#map").getBoundingClientRect();
  look.style.setProperty("--x", `${event.clientX - area.left}px`);
  look.style.setProperty("--y", `${event.clientY - area.top}px`);
  look.classList.toggle("is-left", event.clientX - area.left > area.width / 2);
  if (!look.isConnected) $("#map").append(look);
}

const hideLook = () => $("#look")?.remove();

function fillSelectBy() {
  const options = groups().map(([name, places]) =>
    h("option", { value: name }, `${name} (${count(places.length)})`),
  );
  $("#select-by").replaceChildren(h("option", { value: "" }, "–"), ...options);
}

function select(places) {
  selected = places;
  if (points) selection.set(places.map((place) => points.ids[place]));
  const has = selected.length > 0;
  $("#export").disabled = $("#clear").disabled = !has;
  $("#selection-status").textContent = has
    ? `${plural(selected.length, "video")} selected${selected.length > MOST_LISTED ? `, the first ${MOST_LISTED} listed` : ""}`
    : state.get("dim") === "2"
      ? "Draw around videos on the map, or choose a group above."
      : "Choose a group above; drawing around videos works in 2-D.";
  $("#selected").replaceChildren(
    ...selected.slice(0, MOST_LISTED).map((place) =>
      h(
        "li",
        {},
        h(
          "a",
          { href: videoUrl(points.ids[place]) },
          h("img", {
            src: `/media/thumbnail?${new URLSearchParams({ id: points.ids[place] })}`,
            alt: "",
            loading: "lazy",
          }),
          h("span", {}, points.ids[place]),
        ),
      ),
    ),
  );
}

function exportCsv() {
  const cell = (value) => (/[",\n\r]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
  const rows = selected.map((place) => [
    points.ids[place],
    points.labels[place] ?? "",
    points.uncertainty[place],
    points.clusters[place],
  ]);
  const text = [["id", "label", "unsure", "group"], ...rows]
    .map((row) => row.map((value) => cell(String(value))).join(","))
    .join("\n");
  download(text, "selection.csv");
}

async function load() {
  const mine = ++asked;
  points = null;
  selected = []; // it was of other points
  select([]);
  $("#select-by").replaceChildren(h("option", { value: "" }, "–"));
  $("#map").replaceChildren(loading("Placing the videos…"));
  try {
    const found = await api.map(state.get("dim"));
    if (mine !== asked) return; // other axes were asked for since
    points = found;
    if (!points.ids.length) {
      $("#map-status").textContent = "";
      $("#map").replaceChildren(empty("Nothing to map", "The index is empty."));
      return;
    }
    $("#map-status").textContent = points.is_sampled
      ? `${count(points.ids.length)} of ${plural(points.num_videos, "video")}, chosen at random`
      : `${plural(points.ids.length, "video")}; similar videos are near each other`;
    await draw();
  } catch (error) {
    if (mine === asked) $("#map").replaceChildren(problem(error, load));
  }
}

selection.addEventListener("done", ({ detail: { verb } }) => {
  if (["trash", "move", "undo"].includes(verb)) load();
});
state.bind($("#map-form"), (name) => (name === "dim" ? load() : draw()));
$("#select-by").addEventListener("change", ({ target }) => select(new Map(groups()).get(target.value) ?? []));
$("#export").addEventListener("click", exportCsv);
$("#clear").addEventListener("click", () => {
  select([]);
  $("#select-by").value = "";
});
document.addEventListener("themechange", draw);
shortcut("e", "Export the selection", () => {
  if (selected.length) exportCsv();
});
load();
