// Search by a video: ask once, then let the reader choose how sure a hit must be.
import { api } from "./api.js";
import { $, empty, h, loading, problem } from "./dom.js";
import { count, percent, plural } from "./format.js";
import { hitElements } from "./hits.js";
import { judging } from "./judge.js";
import { shortcut } from "./keys.js";
import { hitProbability, isCalibrated, probabilityName } from "./probability.js";
import { FileQuery, IndexedQuery, queryInputs } from "./query.js";
import { PageState } from "./state.js";

const DEFAULTS = {
  id: "",
  file: "",
  k: "20",
  metric: "match",
  label: "",
  subset: "",
  exclude_same: "video",
  max_error: "",
  start: "",
  end: "",
  p: "0.5",
  grouped: "1",
};
const ASKED = ["k", "metric", "label", "subset", "exclude_same", "max_error", "start", "end"];

const state = new PageState(DEFAULTS);
let stats = null;
let query = null;
let result = null;
let request = null;
let opened = null; // when the options are known

async function ask() {
  request?.abort();
  const mine = (request = new AbortController());
  $("#hits").setAttribute("aria-busy", "true");
  $("#hits").replaceChildren(loading(query instanceof FileQuery ? "Looking at the file…" : "Searching…"));
  $("#answer-status").textContent = "";
  $("#threshold-form").hidden = true;
  showQuery(null);
  try {
    await opened;
    if (mine !== request) return;
    result = await query.ask(Object.fromEntries(ASKED.map((key) => [key, state.get(key)])), {
      signal: mine.signal,
    });
    if (mine !== request) return;
    // Judgements are kept for whole videos of the index: a file or a part cannot be asked for again.
    const canJudge = query instanceof IndexedQuery && !result.answer.span;
    judging.open(canJudge ? query.id : null);
    showQuery(result.answer, result.cards);
    showHits();
  } catch (error) {
    if (error.name === "AbortError") return;
    result = null;
    $("#hits").replaceChildren(problem(error, error.status >= 500 || error.status === 0 ? ask : null));
  }
  $("#hits").setAttribute("aria-busy", "false");
}

function showQuery(answer, cards) {
  $("#query").replaceChildren(query ? query.summary(answer, cards, stats?.uncertainty.max) : "");
}

/** Show what is probable enough; nothing is asked of the server. */
function showHits() {
  if (!result) return;
  const { answer, cards, duplicates } = result;
  const least = state.number("p");
  const shown = answer.hits.filter((hit) => hitProbability(hit) >= least);
  const name = isCalibrated(answer) ? "Calibrated match probability" : "Match probability (uncalibrated)";
  $("#threshold-form").hidden = !answer.hits.length;
  $("#threshold-label").textContent = `${name} of at least`;
  $("#threshold-value").textContent = percent(least);
  $("#threshold").setAttribute("aria-valuetext", percent(least));
  const context = { query, answer, cards, full: stats?.uncertainty.max };
  if (shown.length) {
    $("#answer-status").textContent =
      `${count(shown.length)} of the best ${count(answer.hits.length)} · ${probabilityName(answer)} · ${proof(answer)}`;
    $("#hits").replaceChildren(
      ...hitElements(shown, state.get("grouped") === "1" ? duplicates : [], context),
    );
  } else {
    $("#answer-status").textContent = answer.withheld ? "Withheld" : "No confident match";
    $("#hits").replaceChildren(noMatch(answer));
  }
}

function proof({ certificate }) {
  const of = plural(certificate.num_allowed, "video");
  return certificate.is_exact ? `proved to be the best of ${of}` : `the best found of ${of}`;
}

function noMatch(answer) {
  if (answer.withheld) return withheld(answer);
  if (!answer.hits.length) return empty("Nothing to compare with", "No other video fits the options.");
  const best = Math.max(...answer.hits.map(hitProbability));
  const lower = () => {
    state.set({ p: Math.floor(best * 100) / 100 });
    state.show($("#threshold-form"));
    showHits();
    $("#threshold").focus();
  };
  return empty(
    "No confident match",
    `The most probable video matches with ${percent(best)}, and you asked for ${percent(state.number("p"))}. That is an answer, too: perhaps nothing here shows the same.`,
    h("button.button", { type: "button", onclick: lower }, "Show the best anyway"),
  );
}

function withheld(answer) {
  const anyway = () => {
    state.set({ max_error: "" });
    state.show($("#query-form"));
    ask();
  };
  return empty(
    "No answer",
    `This query is ${answer.withheld}. You asked that at most ${percent(answer.max_error)} of the answers are wrong.`,
    h("button.button", { type: "button", onclick: anyway }, "Answer anyway"),
  );
}

function choose(chosen) {
  query = chosen;
  const isFile = chosen instanceof FileQuery;
  state.set(
    { id: isFile ? "" : chosen.id, file: isFile ? chosen.file.name : "", start: "", end: "" },
    { push: true },
  );
  state.show($("#query-form"));
  enableOptions();
  ask();
}

// A part needs both its ends; until the second is given, nothing is asked.
const hasWholeSpan = () => !state.get("start") === !state.get("end");

/** A file is in no class, subset or group. */
function enableOptions() {
  for (const name of ["label", "subset", "exclude_same", "start", "end"])
    $("#query-form").elements[name].disabled = query instanceof FileQuery;
}

function welcome() {
  const file = state.get("file");
  return file
    ? empty("The file is not kept", `${file} was looked at and forgotten. Drop it again to search with it.`)
    : empty(
        "Search with a video",
        "Drop in a file, name a video of the collection, or press the lens on any card.",
        h("a.button", { href: "/" }, "Browse"),
      );
}

function fromAddress() {
  state.read();
  state.show($("#query-form"));
  state.show($("#threshold-form"));
  query = state.get("id") ? new IndexedQuery(state.get("id")) : null;
  enableOptions();
  if (query) return ask();
  result = null;
  showQuery(null);
  $("#threshold-form").hidden = true;
  $("#answer-status").textContent = "";
  $("#hits").replaceChildren(welcome());
}

async function open() {
  stats = await api.stats().catch(() => null); // only for the options and the scale of the bars
  const form = $("#query-form");
  for (const [name, options] of [
    ["label", stats?.labels ?? []],
    ["subset", stats?.subsets ?? []],
  ]) {
    form.elements[name].append(...options.map(({ label }) => h("option", { value: label }, label)));
    form.elements[name].closest(".field").hidden = !options.length;
  }
  state.show(form); // some options were not there before
}

addEventListener("popstate", fromAddress);
queryInputs(choose);
state.bind($("#threshold-form"), showHits);
state.bind($("#query-form"), () => {});
$("#query-form").addEventListener("change", ({ target }) => {
  if (ASKED.includes(target.name) && query && hasWholeSpan()) ask();
});
shortcut("/", "Name a video", () => $("#pick").focus());
shortcut("o", "Open a file", () => $("#file").click());
opened = open();
fromAddress();
