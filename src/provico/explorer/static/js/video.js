// One video: what is in it, how unsure the encoder is and when, why, and what lies near.
import { api, searchUrl } from "./api.js";
import { bucketChip, card, measure } from "./card.js";
import { cutPanel } from "./cut.js";
import { $, empty, h, loading, problem } from "./dom.js";
import { bytes, inMinutes, number, plural } from "./format.js";
import { term } from "./glossary.js";
import { gaussians } from "./gaussians.js";
import { shortcut } from "./keys.js";
import { Player } from "./player.js";
import { Strip } from "./strip.js";
import { hitText, whatIsSaid } from "./probability.js";

const NUM_NEIGHBOURS = 8;
const given = new URLSearchParams(location.search);
const id = given.get("id");

function uncertainty(video) {
  const share = `${Math.round(100 * video.uncertainty_percentile)} %`;
  return h(
    "section.panel",
    { "aria-labelledby": "uncertainty-title" },
    h("h2", { id: "uncertainty-title" }, "How hard it is to make out ", term("unsure", "?")),
    h(
      "div.cause",
      {},
      h("span.note", {}, "Unsure: ", h("strong", {}, share), " of your videos have lower uncertainty"),
      h("div.measure-large", {}, measure(video)),
    ),
    h(
      "details.numbers",
      {},
      h("summary", {}, "Numbers"),
      h(
        "dl.facts",
        {},
        h("dt", {}, "Uncertainty"),
        h("dd", {}, number(video.uncertainty)),
        h("dt", {}, term("disagreement", "Disagreement of its clips")),
        h("dd", {}, number(video.disagreement)),
      ),
    ),
  );
}

function facts(video) {
  const row = (name, value) =>
    value === null || value === undefined || value === "" ? [] : [h("dt", {}, name), h("dd", {}, value)];
  return h(
    "section.panel",
    { "aria-labelledby": "facts-title" },
    h("h2", { id: "facts-title" }, "About"),
    h(
      "dl.facts",
      {},
      ...row("Class", video.label),
      ...row("Group", video.group),
      ...row("Subset", video.subset),
      ...row("Length", inMinutes(video.duration_seconds)),
      ...row("File", video.path_name),
      ...row("Size", video.num_bytes === null ? null : bytes(video.num_bytes)),
      ...row("Clips", String(video.clips.length)),
      ...row("Bucket", bucketChip(video.bucket)),
    ),
    h(
      "div.actions",
      {},
      h("a.button.button-primary", { href: searchUrl(video.id) }, "Find similar"),
      h("a.button", { href: `/curate?${new URLSearchParams({ id: video.id })}` }, "Review"),
    ),
  );
}

async function show() {
  $("#video").replaceChildren(loading("Opening the video…"));
  const video = await api.video(id);
  document.title = `${video.id} · ProViCo`;
  $("#title").textContent = video.id;
  $("#subtitle").textContent = [video.label, inMinutes(video.duration_seconds)].filter(Boolean).join(" · ");
  const player = new Player(video);
  const strip = new Strip(video);
  strip.addEventListener("seek", ({ detail }) => player.seek(detail));
  player.addEventListener("time", () => strip.setTime(player.time));
  $("#video").replaceChildren(
    h(
      "div.video-layout",
      {},
      h(
        "div.video-main",
        {},
        player.element,
        h(
          "section.panel",
          { "aria-labelledby": "strip-title" },
          h(
            "div.panel-head",
            {},
            h("h2", { id: "strip-title" }, "Uncertainty over time"),
            h("p.note", {}, `Mean of the clips that contain each moment; ${plural(video.clips.length, "clip")}`),
          ),
          strip.element,
        ),
      ),
      h(
        "div.video-side",
        {},
        uncertainty(video),
        h(
          "section.panel",
          { "aria-labelledby": "clips-title" },
          h("h2", { id: "clips-title" }, "Its clips as Gaussians"),
          gaussians(video.clips, {
            pick: (clip) => player.seek(clip.start_seconds),
            point: (clip) => strip.mark(clip),
          }),
        ),
        cutPanel(video, player),
        facts(video),
      ),
    ),
  );
  shortcut(" ", "Play or pause", () => player.toggle());
  shortcut("ArrowRight", "Forward", () => player.seek(player.time + 0.5));
  shortcut("ArrowLeft", "Back", () => player.seek(player.time - 0.5));
  shortcut("s", "Find similar", () => location.assign(searchUrl(video.id)));
  const start = Number(given.get("t"));
  if (start) player.seek(start);
  await showNeighbours();
}

async function showNeighbours() {
  $(".neighbours").hidden = false;
  $("#neighbours").replaceChildren(loading("Looking for neighbours…"));
  try {
    const { answer, cards } = await api.search({ id, k: NUM_NEIGHBOURS });
    $("#neighbours-note").textContent = answer.hits.length ? whatIsSaid(answer) : "";
    $("#neighbours").replaceChildren(
      ...(answer.hits.length
        ? answer.hits.map((hit) =>
            card(cards[hit.id], { note: hitText(hit) }),
          )
        : [empty("No neighbours", "There is no other video in the index.")]),
    );
  } catch (error) {
    $("#neighbours").replaceChildren(problem(error, showNeighbours));
  }
}

async function start() {
  if (!id) {
    $("#subtitle").textContent = "";
    $("#video").replaceChildren(
      empty("No video was named", "Choose one in the collection.", h("a.button", { href: "/" }, "Browse")),
    );
    return;
  }
  try {
    await show();
  } catch (error) {
    $("#subtitle").textContent = "";
    $("#video").replaceChildren(problem(error, error.status === 404 ? null : start));
  }
}

start();
