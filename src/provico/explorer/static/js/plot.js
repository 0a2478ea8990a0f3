// Plotly, loaded when a page needs it, in the colours of the page and within its content-security policy.

let loaded = null;

/** The library; asked for once. */
export function plotly() {
  loaded ??= new Promise((resolve, reject) => {
    // While it loads it adds a style element for street maps, which are not used here and which the policy
    // forbids; an element that means nothing takes its place.
    const createElement = document.createElement;
    document.createElement = function (name, options) {
      return createElement.call(this, name === "style" ? "template" : name, options);
    };
    const script = createElement.call(document, "script");
    const done = (settle) => () => {
      document.createElement = createElement;
      settle();
    };
    script.addEventListener(
      "load",
      done(() => resolve(window.Plotly)),
    );
    script.addEventListener(
      "error",
      done(() => reject(new Error("The plot library could not be loaded."))),
    );
    script.src = "/static/plotly.min.js";
    document.head.append(script);
  });
  return loaded;
}

export const colour = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Twelve hues that differ also for those who see fewer of them, readable on light and on dark. */
export const PALETTE = [
  "#2a9d8f",
  "#e08a2e",
  "#8a63d2",
  "#d1495b",
  "#3d7ec9",
  "#8a9a2b",
  "#c05fa8",
  "#4fb3d9",
  "#a8763e",
  "#6b8f71",
  "#e0b13a",
  "#7a7f87",
];

export function layout(changes = {}) {
  const axis = {
    gridcolor: colour("line"),
    zerolinecolor: colour("line"),
    linecolor: colour("line"),
    automargin: true,
  };
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", color: colour("text"), size: 12 },
    margin: { l: 44, r: 12, t: 12, b: 40 },
    hoverlabel: { bgcolor: colour("surface"), bordercolor: colour("line"), font: { color: colour("text") } },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("muted"), activecolor: colour("accent") },
    ...changes,
    xaxis: { ...axis, ...changes.xaxis },
    yaxis: { ...axis, ...changes.yaxis },
  };
}

/** Buttons are named one by one: by itself the library also offers to send the chart, with its data, elsewhere. */
export const config = (buttons) => ({
  displaylogo: false,
  responsive: true,
  plotlyServerURL: "",
  ...(buttons.length ? { displayModeBar: true, modeBarButtons: [buttons] } : { displayModeBar: false }),
});
