// Search by a video: ask once, then let the reader choose how surprising a hit must be.
import { api } from "./api.js";
import { $, $$, empty, h, loading, problem } from "./dom.js";
import { count, number, percent, plural } from "./format.js";
import { term } from "./glossary.js";
import { hitElements } from "./hits.js";
import { judging } from "./judge.js";
import { shortcut } from "./keys.js";
import { isCalibrated, isRightEnough, knowsChance, standsOut, whatIsSaid } from "./probability.js";
import { FileQuery, IndexedQuery, queryInputs, TextQuery } from "./query.js";
import { PageState } from "./state.js";
import { wordHits } from "./words.js";

const DEFAULTS = {
  id: "",
  file: "",
  text: "",
  like: "",
  unlike: "",
  k: "20",
  metric: "match",
  label: "",
  subset: "",
  exclude_same: "video",
  max_error: "",
  start: "",
  end: "",
  chance: "1",
  p: "0",
  grouped: "1",
};
const ASKED = ["like", "unlike", "k", "metric", "label", "subset", "exclude_same", "max_error", "start", "end"];

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
  $("#hits").replaceChildren(loading(query instanceof FileQuery ? "Reading the file…" : "Searching…"));
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
  $("#query").replaceChildren(query ? query.summary(answer, cards, result?.query_percentile ?? 0) : "");
}

const mostByChance = () => (state.get("chance") === "any" ? Infinity : state.number("chance"));

/** Show what stands out from chance and is right often enough; nothing is asked of the server. */
function showHits() {
  if (!result) return;
  const { answer, cards, duplicates } = result;
  const least = state.number("p");
  const shown = answer.hits.filter((hit) => standsOut(hit, mostByChance()) && isRightEnough(hit, least));
  $("#threshold-form").hidden = !answer.hits.length;
  $("#chance-field").hidden = !knowsChance(answer);
  $("#right-field").hidden = !isCalibrated(answer);
  $("#threshold-value").textContent = percent(least);
  $("#threshold").setAttribute("aria-valuetext", percent(least));
  const said = isCalibrated(answer) ? "match" : knowsChance(answer) ? "by chance" : null;
  $("#answer-term").replaceChildren(...(said && !(query instanceof TextQuery) ? [term(said, "?")] : []));
  const context = { query, answer, cards, unsure: result.query_percentile };
  if (shown.length) {
    $("#answer-status").textContent =
      `${count(shown.length)} of the best ${count(answer.hits.length)} · ${whatIsSaid(answer)} · ${proof(answer)}`;
    $("#hits").replaceChildren(
      ...(query instanceof TextQuery ? wordHits : hitElements)(shown, context, state.get("grouped") === "1" ? duplicates : []),
    );
  } else {
    $("#hits").replaceChildren(noMatch(answer));
    $("#answer-status").textContent = $("#hits h2").textContent;
  }
}

function proof({ certificate, unreached }) {
  const { num_allowed: num } = certificate;
  const hasMoments = stats && num > stats.num_videos; // of long videos, which are ranked with the others
  const of = hasMoments ? `${count(num)} videos and moments` : plural(num, "video");
  if (unreached.length) return `the best found of ${of}; not searched: ${unreached.map((part) => part.name).join(", ")}`;
  return certificate.is_exact ? `proved to be the best of ${of}` : `the best found of ${of}`;
}

function noMatch(answer) {
  if (answer.withheld) return withheld(answer);
  if (!answer.hits.length) return empty("Nothing to compare with", "No other video fits the options.");
  const outstanding = answer.hits.filter((hit) => standsOut(hit, mostByChance()));
  const anyway = (changed) =>
    h(
      "button.button",
      {
        type: "button",
        onclick: () => {
          state.set(changed);
          state.show($("#threshold-form"));
          showHits();
        },
      },
      "Show the best anyway",
    );
  if (!outstanding.length) {
    const least = Math.min(...answer.hits.map((hit) => hit.expected_by_chance));
    return empty(
      "No match beyond chance",
      `${number(least)} unrelated videos are expected to match as well as the best. Perhaps no other video shows the same.`,
      anyway({ chance: "any", p: 0 }),
    );
  }
  const best = Math.max(...outstanding.map((hit) => hit.calibrated_probability));
  return empty(
    "No confident match",
    `${percent(best)} of hits like the best one are right; you asked for ${percent(state.number("p"))}.`,
    anyway({ p: Math.floor(best * 100) / 100 }),
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
    { id: chosen.id ?? "", file: isFile ? chosen.file.name : "", text: chosen.text ?? "", start: "", end: "" },
    { push: true },
  );
  state.show($("#query-form"));
  enableOptions();
  ask();
}

// A part needs both its ends; until the second is given, nothing is asked.
const hasWholeSpan = () => !state.get("start") === !state.get("end");

/** A file is in no class, subset or group; words are compared in one way. */
function enableOptions() {
  const isText = query instanceof TextQuery;
  for (const name of ["label", "subset", "exclude_same", "start", "end"])
    $("#query-form").elements[name].disabled = isText || query instanceof FileQuery;
  for (const name of ["metric", "max_error"]) $("#query-form").elements[name].disabled = isText;
  for (const name of ["like", "unlike"]) $("#query-form").elements[name].disabled = !isText;
}

function welcome() {
  const file = state.get("file");
  return file
    ? empty("The file is not kept", `${file} was not stored. Drop it again to search with it.`)
    : empty(
        "Search with a video",
        "Drop in a file, name a video of the collection, or press the lens on any card. You can also search by words if the network was trained with text.",
        h("a.button", { href: "/" }, "Browse"),
      );
}

function fromAddress() {
  state.read();
  state.show($("#query-form"));
  state.show($("#threshold-form"));
  const [id, text] = [state.get("id"), state.get("text")];
  query = id ? new IndexedQuery(id) : text ? new TextQuery(text) : null;
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
  if (stats?.knows_words) {
    $("#pick-label").textContent = "Or words, or a video of the collection";
    $("#pick").placeholder = "a person diving";
    for (const field of $$("[data-words]", form)) field.hidden = false;
  }
  state.show(form); // some options were not there before
}

addEventListener("popstate", fromAddress);
queryInputs(choose, { knowsWords: () => Boolean(stats?.knows_words) });
state.bind($("#threshold-form"), showHits);
state.bind($("#query-form"), () => {});
$("#query-form").addEventListener("change", ({ target }) => {
  if (ASKED.includes(target.name) && query && hasWholeSpan()) ask();
});
shortcut("/", "Name a video or words", () => $("#pick").focus());
shortcut("o", "Open a file", () => $("#file").click());
opened = open();
fromAddress();
