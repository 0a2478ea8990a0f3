// Judgements of hits: right or wrong with a key, saved before they are called saved.
import { api, searchUrl } from "./api.js";
import { shortName } from "./card.js";
import { $, $$, h, loading, problem } from "./dom.js";
import { plural } from "./format.js";
import { shortcut } from "./keys.js";

const VERDICTS = [
  ["right", "r", "Right"],
  ["wrong", "w", "Wrong"],
];

/** The judgements of the hits of one query; `query` is null while nothing can be judged. */
class Judging {
  constructor() {
    this.query = null;
    this.verdicts = new Map(); // hit -> verdict
    this.revision = 0; // the last that this page has seen
    this.line = Promise.resolve(); // one after the other, in the order they were made
  }

  /** Judge the hits of this video from now on; of a file or a part nothing would be kept. */
  async open(query) {
    if (query !== this.query) this.verdicts.clear();
    this.query = query;
    await this.refresh();
  }

  /** What other tabs have judged. */
  async refresh() {
    const { query } = this;
    if (query === null) return;
    const known = await api.judgements(query).catch(() => null);
    if (!known || query !== this.query) return;
    this.revision = known.revision;
    this.verdicts = new Map(known.hits.map(({ hit, verdict }) => [hit, verdict]));
    this.show();
    if (known.damaged.length) tell(known.damaged[0]);
  }

  judge(hit, verdict) {
    const { query } = this;
    return this.#queue(async () => {
      const saved = await api.judge({ query, hit, verdict, revision: this.revision });
      this.take(saved);
      tell(`${shortName(hit)} is ${verdict}. ${plural(saved.num_judged, "hit")} judged.`);
    });
  }

  undo() {
    return this.#queue(async () => {
      const undone = await api.undoJudgement(this.revision);
      this.take(undone);
      tell(undone.hit === null ? "Nothing to undo" : `Undone: ${shortName(undone.hit)}`);
    });
  }

  take({ revision, query, hit, verdict }) {
    this.revision = revision;
    if (query !== this.query) return;
    if (verdict === null) this.verdicts.delete(hit);
    else this.verdicts.set(hit, verdict);
    this.show();
  }

  /** Let the hits on the page show what holds. */
  show() {
    for (const element of $$("#hits .hit")) {
      const verdict = this.verdicts.get(element.dataset.id) ?? "";
      element.dataset.verdict = verdict;
      for (const button of $$(".verdict", element))
        button.setAttribute("aria-pressed", String(button.dataset.verdict === verdict));
    }
  }

  #queue(work) {
    this.line = this.line.then(work).catch(async (error) => {
      tell(`Not saved: ${error.message}`);
      if (error.status === 409) await this.refresh();
    });
    return this.line;
  }
}

export const judging = new Judging();

function tell(text) {
  $("#judge-status").textContent = text;
}

/** Two buttons for a hit, or nothing where it cannot be judged. */
export function verdictButtons(hit) {
  if (judging.query === null) return null;
  const buttons = VERDICTS.map(([verdict, key, text]) =>
    h(
      `button.button.verdict.verdict-${verdict}`,
      {
        type: "button",
        "data-verdict": verdict,
        "aria-pressed": String(judging.verdicts.get(hit.id) === verdict),
        onclick: () => judging.judge(hit.id, verdict),
      },
      text,
      h("kbd", {}, key),
    ),
  );
  return h("div.verdicts", { role: "group", "aria-label": `Is ${hit.id} right?` }, ...buttons);
}

const focussed = () => document.activeElement?.closest?.("#hits .hit") ?? $("#hits .hit");

function mark(verdict) {
  const element = focussed();
  if (!element || judging.query === null) return;
  element.focus();
  judging.judge(element.dataset.id, verdict);
}

function step(by) {
  const hits = $$("#hits .hit");
  const at = hits.indexOf(document.activeElement?.closest?.("#hits .hit"));
  hits[at < 0 ? 0 : Math.min(Math.max(0, at + by), hits.length - 1)]?.focus();
}

/** What to judge first, asked for when the list is opened. */
async function showFirst() {
  const list = $("#judge-first-list");
  list.replaceChildren(h("li", {}, loading("Choosing queries to judge…")));
  try {
    const { items, cards } = await api.judgeFirst(10);
    list.replaceChildren(
      ...items.map(({ query, hit, is_drawn }) =>
        h(
          "li",
          {},
          h(
            "a",
            { href: searchUrl(query, { exclude_same: "group", p: 0, judge: 1 }), title: `${query}: ${hit}` },
            h("img", { src: cards[query]?.thumbnail, alt: "", loading: "lazy" }),
            h("img", { src: cards[hit]?.thumbnail, alt: "", loading: "lazy" }),
            h("span", {}, shortName(query), is_drawn ? h("span.chip", {}, "random draw") : null),
          ),
        ),
      ),
    );
    if (!items.length) list.replaceChildren(h("li.note", {}, "Every recording is judged."));
  } catch (error) {
    list.replaceChildren(h("li", {}, problem(error, showFirst)));
  }
}

for (const [verdict, key, text] of VERDICTS) shortcut(key, `${text}: judge the hit`, () => mark(verdict));
shortcut("u", "Undo the last judgement", () => judging.undo());
shortcut("j", "Next hit", () => step(1));
shortcut("k", "Previous hit", () => step(-1));
$("#judge-first").addEventListener("toggle", ({ target }) => {
  if (target.open) showFirst();
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) judging.refresh();
});
addEventListener("focus", () => judging.refresh());
if (new URLSearchParams(location.search).has("judge")) $("#judge-first").open = true;
