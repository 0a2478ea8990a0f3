// Hits of words: how surprising, which moment, and how much of it shows that.
import { frameUrl, searchUrl, videoUrl } from "./api.js";
import { cutButton } from "./cut.js";
import { h } from "./dom.js";
import { inMinutes, number } from "./format.js";
import { term } from "./glossary.js";
import { hitText, whatIsSaid } from "./probability.js";
import { selectBox } from "./selection.js";

export function wordHits(hits, { answer, cards }) {
  return hits.map((hit) => element(hit, answer.hits.indexOf(hit) + 1, answer, cards[hit.id]));
}

function element(hit, rank, answer, video) {
  const { start_seconds: start, end_seconds: end } = hit.moment;
  const picture = h("img", {
    src: frameUrl(hit.id, (start + end) / 2),
    alt: `${hit.id} at ${inMinutes((start + end) / 2)}`,
    loading: "lazy",
  });
  picture.addEventListener("error", () => (picture.src = video.thumbnail), { once: true });
  return h(
    "article.hit.panel",
    { "data-id": hit.id, "data-score": hit.score, "aria-label": `Hit ${rank}: ${hit.id}`, tabindex: "-1" },
    h(
      "div.hit-head",
      {},
      selectBox(hit.id),
      h("span.hit-rank", { "aria-hidden": "true" }, String(rank)),
      h("h3", {}, h("a", { href: videoUrl(hit.id, start) }, hit.id)),
      video.label ? h("span.chip", {}, video.label) : null,
      h("span.hit-probability", { title: whatIsSaid(answer) }, hitText(hit)),
    ),
    h(
      "div.hit-body",
      {},
      h(
        "div.moments",
        {},
        h(
          "a.moment",
          { href: videoUrl(hit.id, start) },
          h("div.moment-picture", {}, picture),
          h("span.moment-text", {}, hit.is_whole ? "Whole video" : `${inMinutes(start)}–${inMinutes(end)}`),
        ),
      ),
      h(
        "div.hit-why",
        {},
        h(
          "details.numbers",
          {},
          h("summary", {}, "Numbers"),
          h(
            "dl.facts",
            {},
            h("dt", {}, term("similarity", "Similarity with the words")),
            h("dd", {}, number(hit.score)),
            h("dt", {}, term("spread", "Spread over its clips")),
            h("dd", {}, number(hit.spread)),
          ),
        ),
        hit.is_whole ? null : cutButton(hit.id, hit.moment),
        h("a.button.button-quiet", { href: searchUrl(hit.id) }, "Search from here"),
      ),
    ),
  );
}
