// Hits: how surprising, which moments agree, and why.
import { frameUrl, searchUrl, videoUrl } from "./api.js";
import { measure } from "./card.js";
import { cutButton } from "./cut.js";
import { h } from "./dom.js";
import { term } from "./glossary.js";
import { inMinutes, number, percent, plural } from "./format.js";
import { verdictButtons } from "./judge.js";
import { selectBox } from "./selection.js";
import { hitText, isCalibrated, knowsChance, whatIsSaid } from "./probability.js";

const middle = ({ start_seconds: start, end_seconds: end }) => (start + end) / 2;
const span = ({ start_seconds: start, end_seconds: end }) => `${inMinutes(start)}–${inMinutes(end)}`;

/** Whether a moment leaves some of its video out. */
const isPart = ({ start_seconds: start, end_seconds: end }, { duration_seconds: all }) => end - start < all - 0.05;

function moment(title, picture, times, href) {
  const body = [
    h("div.moment-picture", {}, picture),
    h("span.moment-text", {}, h("strong", {}, title), ` ${span(times)}`),
  ];
  return href ? h("a.moment", { href }, ...body) : h("div.moment", {}, ...body);
}

function why(hit, video, answer, unsure) {
  const row = (name, value) => [h("dt", {}, name), h("dd", {}, value)];
  const bar = (name, of) =>
    h(
      "div.why-measure",
      {},
      h("span", {}, name),
      measure(of),
      h("span", {}, `${Math.round(100 * of.uncertainty_percentile)} %`),
    );
  const numbers = h(
    "details.numbers",
    {},
    h("summary", {}, "Numbers"),
    h(
      "dl.facts",
      {},
      ...row("Distance of means", number(hit.mean_distance)),
      ...row("Nearest clips, expected squared distance", number(hit.clip_squared_distance)),
      ...(knowsChance(answer)
        ? [
            ...row("Expected by chance", `${number(hit.expected_by_chance)} videos`),
            ...row("False match rate", number(hit.false_match_rate)),
          ]
        : []),
    ),
  );
  return h("div.why", {}, bar(term("unsure", "Query unsure"), { uncertainty_percentile: unsure }), bar("Hit unsure", video), numbers);
}

function hitElement(hit, rank, { query, answer, cards, unsure }) {
  const right = isCalibrated(answer) ? hit.calibrated_probability : null;
  const video = cards[hit.id];
  const picture = h("img", {
    src: frameUrl(hit.id, middle(hit.clip)),
    alt: `${hit.id} at ${inMinutes(middle(hit.clip))}`,
    loading: "lazy",
  });
  picture.addEventListener(
    "error",
    () => {
      picture.src = video.thumbnail;
    },
    { once: true },
  );
  return h(
    "article.hit.panel",
    { "data-id": hit.id, "data-score": hit.score, "aria-label": `Hit ${rank}: ${hit.id}`, tabindex: "-1" },
    h(
      "div.hit-head",
      {},
      selectBox(hit.id),
      h("span.hit-rank", { "aria-hidden": "true" }, String(rank)),
      h("h3", {}, h("a", { href: videoUrl(hit.id, hit.clip.start_seconds) }, hit.id)),
      video?.label ? h("span.chip", {}, video.label) : null,
      h("span.hit-probability", { title: whatIsSaid(answer) }, hitText(hit)),
    ),
    right === null
      ? null
      : h(
          "div.likely",
          { role: "img", "aria-label": `Right in ${percent(right)} of cases` },
          h("i", { style: { "--share": `${100 * right}%` } }),
        ),
    h(
      "div.hit-body",
      {},
      h(
        "div.moments",
        {},
        moment(
          "Query",
          query.moment(middle(hit.query_clip)),
          hit.query_clip,
          query.link(hit.query_clip.start_seconds),
        ),
        moment("Hit", picture, hit.clip, videoUrl(hit.id, hit.clip.start_seconds)),
      ),
      h(
        "div.hit-why",
        {},
        why(hit, video, answer, unsure),
        verdictButtons(hit),
        cutButton(hit.id, isPart(hit.moment, video) ? hit.moment : hit.clip),
        h("a.button.button-quiet", { href: searchUrl(hit.id) }, "Search from here"),
      ),
    ),
  );
}

/** Hits in order, with the duplicates of a better hit put under it. */
function groups(hits, duplicates) {
  const groupOf = new Map(duplicates.flatMap((ids, number_) => ids.map((id) => [id, number_])));
  const first = new Map();
  const found = [];
  for (const hit of hits) {
    const group = groupOf.get(hit.id);
    if (group !== undefined && first.has(group)) first.get(group).others.push(hit);
    else {
      const entry = { hit, others: [] };
      if (group !== undefined) first.set(group, entry);
      found.push(entry);
    }
  }
  return found;
}

/** The elements of all hits that are shown. */
export function hitElements(hits, context, duplicates) {
  return groups(hits, duplicates).map(({ hit, others }) => {
    const element = hitElement(hit, context.answer.hits.indexOf(hit) + 1, context);
    if (others.length) {
      element.append(
        h(
          "details.duplicates",
          {},
          h("summary", {}, `${plural(others.length, "near-duplicate")} of it`),
          h(
            "ul",
            {},
            ...others.map((other) =>
              h(
                "li",
                {},
                h("img", { src: context.cards[other.id].thumbnail, alt: "", loading: "lazy" }),
                h("a", { href: videoUrl(other.id) }, other.id),
                h("span", {}, hitText(other)),
              ),
            ),
          ),
        ),
      );
    }
    return element;
  });
}
