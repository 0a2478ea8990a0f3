// The review queue: look, decide with a key, go on.
import { api } from "./api.js";
import { $, empty, h, loading, problem } from "./dom.js";
import { Decisions } from "./decisions.js";
import { count, plural } from "./format.js";
import { shortcut } from "./keys.js";
import { Player } from "./player.js";
import { CHOICES, queueElements, reviewElement, verdictElements } from "./review.js";
import { PageState } from "./state.js";
import { Strip } from "./strip.js";
import { Trim } from "./trim.js";

const AT_ONCE = 50;
const SHOWN_IN_QUEUE = 14;

const state = new PageState({ bucket: "", id: "" });
const decisions = new Decisions();
let items = [];
let total = 0;
let at = 0;
let counts = {};
let asked = 0;
let shown = null; // {item, player, strip, trim} of the video that is open
let notice = ""; // what came of the last undo

const current = () => items[at] ?? null;

async function load() {
  const mine = ++asked;
  shown?.player.close();
  shown = null;
  items = [];
  $("#item").replaceChildren(loading("Opening the queue…"));
  try {
    const page = await api.curation({ bucket: state.get("bucket"), offset: 0, limit: AT_ONCE });
    if (mine !== asked) return; // another bucket was chosen since
    take(page);
    decisions.revision = page.revision;
    if (page.damaged.length) tell(page.damaged[0]);
    const wanted = state.get("id");
    if (wanted && !items.some((item) => item.id === wanted)) {
      const video = await api.video(wanted).catch(() => null); // it may have left the index
      if (mine !== asked) return;
      if (video) items.unshift({ ...video, reason: null, proposal_segments: [], seen: page.revision });
    }
    at = Math.max(
      0,
      items.findIndex((item) => (wanted ? item.id === wanted : !item.decision)),
    );
    await open();
  } catch (error) {
    if (mine === asked) $("#item").replaceChildren(problem(error, load));
  }
}

function take(page) {
  const known = new Set(items.map((item) => item.id));
  items.push(
    ...page.items.filter((item) => !known.has(item.id)).map((item) => ({ ...item, seen: page.revision })),
  );
  total = Math.max(page.total, items.length);
  counts = page.counts;
  showCounts();
}

async function loadMore() {
  // Those decided on have left the bucket, and no longer count for its offsets.
  const bucket = state.get("bucket");
  const offset = items.filter((item) => !bucket || item.bucket === bucket).length;
  take(await api.curation({ bucket, offset, limit: AT_ONCE }));
}

/** Show the current item. */
async function open() {
  shown?.player.close();
  shown = null;
  const item = current();
  showQueue();
  if (!item) {
    $("#item").replaceChildren(
      empty(
        "Nothing to review",
        state.get("bucket") ? "This bucket is empty." : "The index has no videos yet.",
      ),
    );
    return;
  }
  state.set({ id: item.id });
  let video;
  try {
    video = await api.video(item.id);
  } catch (error) {
    if (item === current()) $("#item").replaceChildren(problem(error, open));
    return;
  }
  if (item !== current()) return; // the reader has gone on
  const player = new Player(video);
  const strip = new Strip(video);
  strip.addEventListener("seek", ({ detail }) => player.seek(detail));
  player.addEventListener("time", () => strip.setTime(player.time));
  shown = { item, player, strip, trim: null };
  const pressed = document.activeElement?.dataset?.choice;
  $("#item").replaceChildren(
    reviewElement(item, player, strip, { choose, cutTrim, saveTrim, cancelTrim, undo, next: () => go(1) }),
  );
  if (pressed) $(`.choice[data-choice=${pressed}]`).focus(); // who presses buttons can go on pressing
  showVerdict();
}

/** What holds for the item that is open, saved or not. */
function showVerdict() {
  if (!shown) return;
  const { item } = shown;
  $("#verdict").replaceChildren(...verdictElements(item, decisions.unsaved.get(item.id)));
  for (const button of document.querySelectorAll(".choice"))
    button.setAttribute("aria-pressed", String(item.decision?.decision === button.dataset.choice));
}

function showCounts() {
  const select = $("#curate-form").elements.bucket;
  select.replaceChildren(
    h("option", { value: "" }, "All"),
    ...Object.entries(counts).map(([bucket, n]) => h("option", { value: bucket }, `${bucket} (${count(n)})`)),
  );
  select.value = state.get("bucket");
  $("#counts").replaceChildren(
    ...Object.entries(counts).map(([bucket, n]) =>
      h(`span.chip.chip-${bucket}`, { "data-bucket": bucket }, `${count(n)} ${bucket}`),
    ),
  );
}

function showQueue() {
  $(".queue").hidden = !items.length;
  $("#progress").textContent = items.length ? `${count(at + 1)} of ${plural(total, "video")}` : "";
  const first = Math.max(0, Math.min(at - 2, items.length - SHOWN_IN_QUEUE));
  const go = (place) => {
    at = place;
    open();
  };
  $("#queue").replaceChildren(...queueElements(items.slice(first, first + SHOWN_IN_QUEUE), first, at, go));
}

function showSaving() {
  const failed = [...decisions.unsaved.values()];
  const status = $("#saving");
  status.classList.toggle("is-problem", failed.length > 0);
  if (failed.length) {
    status.replaceChildren(
      `${plural(failed.length, "decision")} not saved. `,
      h("button.button", { type: "button", onclick: retry }, "Try again"),
    );
  } else status.textContent = decisions.waiting ? "Saving…" : notice || (decisions.saved ? "All saved" : "");
}

async function choose(choice) {
  if (!shown) return;
  if (choice === "trim") return startTrim();
  cancelTrim();
  await save(choice, []);
}

/** Go on at once, and come back if it could not be saved. */
async function save(choice, segments) {
  const { item } = shown;
  const before = item.decision;
  item.trouble = null;
  notice = "";
  item.decision = { decision: choice, segments }; // what it will be, if nothing goes wrong
  const saving = decisions.decide(item, choice, segments);
  showVerdict();
  go(1, { isLast: () => showQueue() });
  try {
    const saved = await saving;
    decisions.saved = true;
    counts = saved.counts;
    showCounts();
    showSaving();
  } catch (error) {
    item.decision = before;
    if (error.status === 409) await conflict(item, error);
    else showVerdict();
  }
  showQueue();
  showVerdict();
}

/** Another tab was faster: show what it decided, and let the reader decide again. */
async function conflict(item, error) {
  // The revision first: what is decided between the two questions is then a conflict again, and not missed.
  const page = await api.curation({ limit: 1 }).catch(() => null);
  const video = await api.video(item.id).catch(() => null);
  if (page && video) {
    Object.assign(item, { decision: video.decision, bucket: video.bucket, seen: page.revision });
    counts = page.counts;
    showCounts();
  }
  item.trouble = `Not saved: ${error.message}`;
  decisions.forget(item.id);
  at = Math.max(0, items.indexOf(item));
  await open();
}

async function retry() {
  for (const { item, decision, segments } of [...decisions.unsaved.values()]) {
    try {
      const saved = await decisions.decide(item, decision, segments);
      decisions.saved = true;
      counts = saved.counts;
    } catch (error) {
      if (error.status === 409) await conflict(item, error);
    }
  }
  showCounts();
  showQueue();
  showVerdict();
}

function tell(text) {
  notice = text;
  showSaving();
}

async function undo() {
  try {
    const undone = await decisions.undo();
    if (undone.id === null) return tell("Nothing to undo");
    counts = undone.counts;
    showCounts();
    let place = items.findIndex((item) => item.id === undone.id);
    if (place < 0) {
      items.splice(at, 0, { ...(await api.video(undone.id)), reason: null, proposal_segments: [] });
      place = at;
    }
    const item = items[place];
    const video = await api.video(undone.id);
    Object.assign(item, { decision: undone.decision, bucket: video.bucket, seen: undone.revision });
    at = place;
    await open();
    tell(`Undone: ${undone.id}`);
  } catch (error) {
    if (error.status === 409)
      decisions.revision = (await api.curation({ limit: 1 }).catch(() => decisions)).revision;
    tell(`Not undone: ${error.message}`);
  }
}

function startTrim() {
  if (shown.trim) return;
  const { item, strip, player } = shown;
  shown.trim = new Trim(
    strip,
    item.decision?.segments?.length ? item.decision.segments : item.proposal_segments,
  );
  shown.trim.addEventListener("seek", ({ detail }) => player.seek(detail));
  $("#trim-actions").hidden = false;
  shown.trim.focus();
}

function cancelTrim() {
  shown?.trim?.close();
  if (shown) shown.trim = null;
  if ($("#trim-actions")) $("#trim-actions").hidden = true;
}

function cutTrim() {
  if (!shown?.trim) return;
  if (!shown.trim.cut(shown.player.time)) tell("Not cut: this moment is in no part, or its part is too short");
}

async function saveTrim() {
  const segments = shown.trim.segments.map(([start, end]) => [
    Number(start.toFixed(3)),
    Number(end.toFixed(3)),
  ]);
  cancelTrim();
  await save("trim", segments);
}

async function go(steps, { isLast = () => {} } = {}) {
  if (!items.length) return;
  if (steps > 0 && at + steps >= items.length && items.length < total) await loadMore().catch(() => {});
  const next = Math.min(Math.max(0, at + steps), items.length - 1);
  if (next === at) return isLast();
  at = next;
  await open();
}

state.bind($("#curate-form"), () => {
  state.set({ id: "" });
  load();
});
decisions.addEventListener("change", showSaving);
for (const [choice, key, text] of CHOICES) shortcut(key, text, () => choose(choice));
shortcut("u", "Undo", undo);
shortcut("j", "Next video", () => go(1));
shortcut("ArrowRight", "Next video", () => go(1));
shortcut("ArrowLeft", "Previous video", () => go(-1));
shortcut(" ", "Play or pause", () => shown?.player.toggle());
shortcut("Enter", "Keep the marked parts", () => {
  if (shown?.trim) saveTrim();
});
shortcut("x", "Cut at this moment, while trimming", cutTrim);
shortcut("Escape", "Leave trimming", cancelTrim);
load();
