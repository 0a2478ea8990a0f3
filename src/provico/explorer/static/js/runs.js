// Pretraining runs, live while they train, and the reports that commands have written.
import { api } from "./api.js";
import { $, empty, h, loading, problem } from "./dom.js";
import { plural } from "./format.js";
import { colour, config, layout, plotly } from "./plot.js";
import { PageState } from "./state.js";

const EVERY_MILLISECONDS = 2000;
const state = new PageState({ run: "" });
let runs = [];
let records = [];
let next = 0;
let shownRun = null;
let timer = null;

const current = () => runs.find((run) => run.name === state.get("run")) ?? null;

function showRuns() {
  if (!runs.length) {
    $("#runs").replaceChildren(
      h("p.note", {}, "No run was named. Start with `provico serve INDEX --run RUN`."),
    );
    return;
  }
  $("#runs").replaceChildren(
    h(
      "ul.run-list",
      {},
      ...runs.map((run) =>
        h(
          "li",
          {},
          h(
            "a",
            {
              href: `/runs?${new URLSearchParams({ run: run.name })}`,
              "aria-current": run.name === state.get("run") ? "true" : null,
              onclick: (event) => {
                event.preventDefault();
                choose(run.name, { push: true });
              },
            },
            h("strong", {}, run.name),
            h("span.note", {}, [run.method, epochs(run)].filter(Boolean).join(" · ")),
            h(
              "span.progress",
              { role: "img", "aria-label": epochs(run) },
              h("i", {
                style: {
                  "--share": `${100 * run.share_done}%`,
                },
              }),
            ),
          ),
        ),
      ),
    ),
  );
}

/** By what ends it: its steps, if they come before its epochs. */
const epochs = (run) => {
  const byEpochs = run.epochs ? run.epochs_done / run.epochs : 0;
  if (run.max_steps && run.steps_done / run.max_steps >= byEpochs)
    return `${run.steps_done} of ${plural(run.max_steps, "step")}`;
  const done = Number(run.epochs_done.toFixed(1));
  return run.epochs ? `${done} of ${plural(run.epochs, "epoch")}` : plural(done, "epoch");
};

function showStatus() {
  const run = current();
  $("#run-status").replaceChildren(
    run ? h(run.is_finished ? "span" : "span.live", {}, run.is_finished ? "Finished" : "Training, live") : "",
  );
}

/** A curve for each number of the records but the step itself. */
async function draw() {
  const Plotly = await plotly();
  const names = [...new Set(records.flatMap(Object.keys))].filter(
    (name) => name !== "step" && records.some((record) => typeof record[name] === "number"),
  );
  const order = (name) => (name === "loss" ? 0 : name.includes("loss") ? 1 : 2);
  names.sort((a, b) => order(a) - order(b));
  for (const name of names) {
    const key = CSS.escape(name);
    let area = $(`.plot-area[data-name="${key}"]`);
    if (!area) {
      area = h("div.plot-area", { "data-name": name, role: "img", "aria-label": `${name} over the steps` });
      $(".curves").append(h("div.curve.panel", {}, h("h3", {}, name.replaceAll("_", " ")), area));
    }
    const seen = records.filter((record) => typeof record[name] === "number");
    await Plotly.react(
      area,
      [
        {
          x: seen.map((record) => record.step),
          y: seen.map((record) => record[name]),
          type: "scatter",
          mode: seen.length > 1 ? "lines" : "markers",
          line: { color: colour("accent"), width: 2 },
          hovertemplate: "step %{x}<br>%{y:.4g}<extra></extra>",
        },
      ],
      layout({ xaxis: { title: { text: "step" } }, margin: { l: 48, r: 8, t: 8, b: 36 }, uirevision: name }),
      config([]),
    );
  }
}

async function poll() {
  clearTimeout(timer);
  const name = state.get("run");
  if (!name) return;
  try {
    const found = await api.metrics(name, next);
    if (name !== state.get("run")) return;
    if (found.is_restarted) records = [];
    records.push(...found.lines);
    next = found.next;
    if (shownRun !== name) {
      shownRun = name;
      $("#curves").replaceChildren(
        records.length
          ? h("div.curves")
          : empty("Nothing yet", "The run has not written a record; this page looks again by itself."),
      );
    } else if (records.length && !$(".curves")) $("#curves").replaceChildren(h("div.curves"));
    if (found.lines.length) await draw();
    if (!current()?.is_finished) {
      runs = await api.runs();
      showRuns();
      showStatus();
      timer = setTimeout(poll, EVERY_MILLISECONDS);
    }
  } catch (error) {
    if (name !== state.get("run")) return;
    if (shownRun === name) {
      $("#run-status").textContent = `${error.message} Trying again.`; // the curves so far stay
      timer = setTimeout(poll, 2 * EVERY_MILLISECONDS);
    } else $("#curves").replaceChildren(problem(error, poll));
  }
}

function choose(name, options) {
  state.set({ run: name }, options);
  [records, next, shownRun] = [[], 0, null];
  showRuns();
  showStatus();
  $("#curves").replaceChildren(loading("Reading the log…"));
  poll();
}

async function showReports() {
  try {
    const reports = await api.reports();
    $("#reports").replaceChildren(
      reports.length
        ? h(
            "ul.report-list",
            {},
            ...reports.map(({ name, kind, url }) =>
              h(
                "li",
                {},
                h(
                  "a",
                  { href: url, target: "_blank", rel: "noopener" },
                  h("span", {}, name),
                  h("span.chip", {}, kind),
                ),
              ),
            ),
          )
        : h("p.note", {}, "No report yet. Name their folder with `--reports DIR`."),
    );
  } catch (error) {
    $("#reports").replaceChildren(h("p.note", { role: "alert" }, error.message));
  }
}

async function start() {
  showReports();
  try {
    runs = await api.runs();
  } catch (error) {
    $("#curves").replaceChildren(problem(error, start));
    return;
  }
  const name = current()?.name ?? runs[0]?.name;
  if (name) choose(name);
  else {
    showRuns();
    $("#curves").replaceChildren(
      empty("No runs to show", "Start the explorer with `--run RUN` to watch one train."),
    );
  }
}

addEventListener("popstate", () => {
  state.read();
  if (state.get("run")) choose(state.get("run"));
});
document.addEventListener("themechange", () => {
  if (records.length) draw();
});
start();
