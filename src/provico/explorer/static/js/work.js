// What is being done for the collection: a line on every page, and an event when there is something new.
import { api } from "./api.js";
import { $ } from "./dom.js";
import { about, count, percent } from "./format.js";

const OFTEN = 1200;
const SELDOM = 5000;
const COUNTED = ["fetch", "read", "propose", "trim"]; // what is done is videos; of the others, parts of the work

/** The work as it was last heard of; sends "work", and "collectionchange" when there is something new. */
export const work = Object.assign(new EventTarget(), { state: null, look });
let timer = null;

/** A stage that is under way, in words. */
export function stageText(stage) {
  const said = COUNTED.includes(stage.name) ? `${count(stage.done)} of ${count(stage.total)}` : percent(stage.done / stage.total);
  const far = stage.total ? ` ${said}` : "";
  const left = stage.seconds_left === null ? "" : ` · about ${about(stage.seconds_left)} left`;
  return `${stage.title}${far}${left}`;
}

async function look() {
  clearTimeout(timer);
  let state;
  try {
    state = await api.work();
  } catch {
    timer = setTimeout(look, SELDOM);
    return;
  }
  const before = work.state;
  work.state = state;
  const running = state.stages.find((stage) => stage.state === "running");
  const line = $("#work-line");
  const isOverview = $("main").dataset.page === "overview";
  line.hidden = isOverview || !(state.is_working || state.problem);
  line.textContent = state.problem ?? (running ? stageText(running) : "Working…");
  work.dispatchEvent(new Event("work"));
  if (before?.is_empty && !state.is_empty && !isOverview) location.reload(); // now there is something to show
  else if (before && before.version !== state.version) work.dispatchEvent(new Event("collectionchange"));
  if (state.can_work) timer = setTimeout(look, state.is_working ? OFTEN : SELDOM);
}

look();
