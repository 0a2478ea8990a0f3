// The collection at a glance: what is in it, duplicates, junk and what is unusual.
import { api, browseUrl, videoUrl } from "./api.js";
import { card } from "./card.js";
import { $, empty, h, loading, problem } from "./dom.js";
import { bytes, count, number, plural } from "./format.js";
import { term } from "./glossary.js";
import { act, selection, toast, undo } from "./selection.js";
import { stageText, work } from "./work.js";

let asked = 0;
let isShown = false;
let shown = ""; // what is on the page, as it was answered

// --- what is being done ------------------------------------------------------------------------------------

function showWork() {
  const { can_work, is_working, is_empty, stages, problem: why, news, can_learn, is_watching } = work.state;
  const panel = $("#stages");
  panel.hidden = !(is_working || why || news);
  const said = stages.filter((stage) => stage.state !== "waiting" || is_working);
  panel.replaceChildren(
    ...(news ? [h("p.news", {}, news)] : []),
    ...(why
      ? [
          h(
            "p.problem-line",
            { role: "alert" },
            why,
            " ",
            h("button.button", { type: "button", onclick: () => start("go on") }, "Resume"),
          ),
        ]
      : []),
    ...(is_working ? [h("ol.stage-list", {}, ...said.map(stageElement))] : []),
  );
  const actions = [];
  if (can_learn)
    actions.push(
      h(
        "button.button",
        { type: "button", id: "learn", title: "Pretrain on them in parallel, and use the new encoder if it is better", onclick: () => start("learn") },
        "Learn from these videos",
      ),
    );
  if (can_work && !is_working && !is_watching)
    actions.push(h("button.button", { type: "button", onclick: () => start("go on") }, "Look for new files"));
  $("#head-actions").replaceChildren(...actions);
  if (!isShown && !is_empty) show();
  if (is_empty) {
    $("#count").textContent = is_working ? "The first pictures appear in a few seconds." : "";
    if (!is_working && why) $("#overview").replaceChildren(empty("Nothing to show", why));
    else if (!$("#overview").childElementCount) $("#overview").replaceChildren(loading("Reading the first videos…"));
  }
}

function stageElement(stage) {
  const share = stage.state === "done" ? 1 : stage.total ? stage.done / stage.total : 0;
  return h(
    "li.stage",
    { "data-state": stage.state, "data-stage": stage.name },
    h("span.stage-title", {}, stage.state === "running" ? stageText(stage) : stage.title),
    h(
      "span.progress",
      { role: "progressbar", "aria-label": stage.title, "aria-valuenow": Math.round(100 * share) },
      h("i", { style: { "--share": `${100 * share}%` } }),
    ),
    h("span.stage-note", {}, stage.note),
  );
}

async function start(what) {
  try {
    work.state = await api.doWork(what);
    showWork();
  } catch (error) {
    toast(`${error.message} ${error.hint ?? ""}`);
  }
  work.look();
}

// --- the answers -------------------------------------------------------------------------------------------

async function show() {
  void api.stats().catch(() => null); // which shows what is wrong with the index, if anything is
  const mine = ++asked;
  isShown = true;
  let found;
  try {
    found = await api.overview();
  } catch (error) {
    shown = "";
    if (mine === asked) $("#overview").replaceChildren(problem(error, show));
    return;
  }
  if (mine !== asked) return;
  const acting = await api.actions().catch(() => null);
  if (mine !== asked) return;
  const answered = JSON.stringify([found, acting]);
  if (answered === shown) return; // nothing is taken away from under a reader
  shown = answered;
  document.title = `${found.name} · ProViCo`;
  $("#title").textContent = found.name;
  $("#count").textContent = [
    plural(found.num_videos, "video"),
    found.hours < 1 ? `${number(found.hours * 60)} minutes` : `${number(found.hours)} hours`,
    bytes(found.num_bytes),
    `embedded by ${found.encoder}`,
  ].join(" · ");
  $("#overview").replaceChildren(
    clusters(found),
    duplicates(found),
    junk(found),
    unusual(found),
    done(acting),
  );
}

const section = (id, title, word, summary, ...children) =>
  h(
    "section.answer-section",
    { id, "aria-labelledby": `${id}-title` },
    h(
      "div.panel-head",
      {},
      h("h2", { id: `${id}-title` }, title, " ", word ? term(word, "?") : null),
      h("p.note", {}, summary),
    ),
    ...children,
  );

async function idsOf(values) {
  const ids = [];
  for (;;) {
    const { items, total } = await api.videos({ ...values, offset: ids.length, limit: 200 });
    ids.push(...items.map((item) => item.id));
    if (!items.length || ids.length >= total) return ids;
  }
}

const selectButton = (values, text = "Select") =>
  h("button.button", { type: "button", onclick: async () => selection.add(await idsOf(values)) }, text);

const NAMED_BY = { labels: "named after their class", words: "named after your words", files: "named after their files", number: "" };

/** Where the title is from, and which words fit besides. */
function namedBy({ named_by, words }) {
  if (!words.length) return h("p.note", {}, NAMED_BY[named_by]);
  const said = words.map(({ text, chance }) => `${text} (${Math.max(1, Math.round(100 * chance))} %)`);
  return h("p.note", {}, term("fits", "Words that fit"), `: ${said.join(", ")}`);
}

function clusters({ clusters: found, words_note }) {
  return section(
    "clusters",
    "Contents",
    "group",
    `${plural(found.length, "group")} of similar videos${words_note ? `. ${words_note}` : ""}`,
    h(
      "div.cluster-grid",
      {},
      ...found.map((cluster) =>
        h(
          "article.cluster.panel",
          { "data-cluster": cluster.number },
          h(
            "a.mosaic",
            { href: browseUrl({ cluster: cluster.number }), "aria-label": `Look at ${cluster.title}` },
            ...cluster.cards.map((video) => h("img", { src: video.thumbnail, alt: "", loading: "lazy" })),
          ),
          h("h3", {}, cluster.title),
          namedBy(cluster),
          h(
            "div.cluster-foot",
            {},
            h("span.note", {}, plural(cluster.size, "video")),
            selectButton({ cluster: cluster.number }),
          ),
        ),
      ),
    ),
  );
}

function duplicates({ duplicates: found }) {
  if (!found.is_known) return section("twice", "Duplicates", "duplicate", "Not searched yet.");
  if (!found.num_groups)
    return section(
      "twice",
      "Duplicates",
      "duplicate",
      found.num_parts
        ? h("span", {}, "No copies; ", h("a", { href: "/duplicates" }, plural(found.num_parts, "part")), " of other videos.")
        : "No copies were found.",
    );
  return section(
    "twice",
    "Duplicates",
    "duplicate",
    `${plural(found.num_copies, "copy", "copies")} in ${plural(found.num_groups, "group")}, ${bytes(found.num_bytes)} could be freed`,
    h(
      "div.twice-row",
      {},
      ...found.cards.map((group) =>
        h(
          "a.twice.panel",
          { href: "/duplicates" },
          ...group.map((video) => h("img", { src: video.thumbnail, alt: video.id, title: video.id, loading: "lazy" })),
        ),
      ),
      h("a.button.button-primary", { href: "/duplicates" }, "Compare and choose"),
    ),
  );
}

function junk({ junk: found, unreadable, num_unreadable, is_looked_at }) {
  if (!is_looked_at) return section("junk", "Junk", "junk", "Not searched yet.");
  const num = found.reduce((sum, { ids }) => sum + ids.length, 0);
  return section(
    "junk",
    "Junk",
    "junk",
    num || num_unreadable
      ? [num ? plural(num, "video") : "", num_unreadable ? `${plural(num_unreadable, "file")} that cannot be read` : ""]
          .filter(Boolean)
          .join(", ")
      : "No junk was found.",
    ...found.map(({ kind, title, why, ids, cards }) =>
      h(
        "div.junk-kind.panel",
        { "data-kind": kind },
        h("div.junk-text", {}, h("h3", {}, title), h("p.note", {}, why)),
        h(
          "div.thumbs",
          {},
          ...cards.map((video) =>
            h(
              "a",
              { href: videoUrl(video.id), title: video.id },
              h("img", { src: video.thumbnail, alt: video.id, loading: "lazy" }),
            ),
          ),
          ids.length > cards.length ? h("span.note", {}, `and ${count(ids.length - cards.length)} more`) : null,
        ),
        h(
          "div.junk-actions",
          {},
          h("button.button", { type: "button", onclick: () => keep(ids) }, "Keep"),
          h("button.button", { type: "button", onclick: () => selection.add(ids) }, "Select"),
          h("button.button.button-danger", { type: "button", onclick: () => act("trash", ids) }, "Move to trash"),
        ),
      ),
    ),
    num_unreadable
      ? h(
          "details.unreadable",
          {},
          h("summary", {}, `${plural(num_unreadable, "file")} that cannot be read`),
          h("ul", {}, ...unreadable.map(({ id, reason }) => h("li", {}, h("strong", {}, id), ` ${reason}`)),
            num_unreadable > unreadable.length ? h("li.note", {}, `and ${count(num_unreadable - unreadable.length)} more`) : null,
          ),
        )
      : null,
  );
}

async function keep(ids) {
  for (const id of ids) await api.decide({ id, decision: "keep", segments: [] }).catch((error) => toast(error.message));
  show();
}

function unusual({ unusual: found }) {
  return section(
    "unusual",
    "Unusual",
    "unusual",
    found.length ? plural(found.length, "video") : "Nothing stands out.",
    h(
      "div.unusual-grid",
      {},
      ...found.map(({ card: video, why }) => h("div.unusual-item", {}, card(video), h("p.note", {}, why))),
    ),
  );
}

function done(acting) {
  if (!acting) return h("div");
  const { num_in_trash, last, why_not } = acting;
  return section(
    "clean",
    "When you are done",
    "clean copy",
    why_not ?? "A clean copy links all videos that are neither in the trash nor proposed for removal. It takes no disk space.",
    h(
      "div.actions",
      {},
      h(
        "button.button.button-primary",
        { type: "button", id: "clean-copy", disabled: Boolean(why_not), onclick: makeClean },
        "Make a clean copy",
      ),
      last ? h("button.button", { type: "button", onclick: undo }, `Undo: ${last}`) : null,
      num_in_trash ? h("span.note", { id: "in-trash" }, `${plural(num_in_trash, "video")} in the trash`) : null,
    ),
  );
}

async function makeClean() {
  const ids = [];
  for (const bucket of ["keep", "trim", "review"]) ids.push(...(await idsOf({ bucket })));
  await act("link", ids);
}

work.addEventListener("work", showWork);
work.addEventListener("collectionchange", show);
selection.addEventListener("done", show);
if (work.state) showWork();
