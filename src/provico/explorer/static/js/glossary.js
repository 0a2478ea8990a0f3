// Words that need a word: each is told where it stands, by pointer, by finger and by keyboard.
import { h } from "./dom.js";

const MOST_WIDE = 19 * 16 + 24; // as in components.css

const WORDS = {
  unsure:
    "How hard the video is to make out for the encoder: 90 % means that 90 % of your other videos have lower uncertainty.",
  match: "How often hits like this one were right, according to labels or judgements.",
  "by chance":
    "How many unrelated videos, or moments of long ones, are expected to match as well as this one. A value far below 1 indicates a real match; above 1, it may be chance.",
  duplicate: "Two files that show the same recording: re-encoded, resized, mirrored, sped up or with bars.",
  group: "Videos that are similar to the encoder. Groups are named after the classes of their videos, your words, or what their file names share.",
  fits: "Those of your words that fit this group better than the others. In brackets: how many unrelated phrases fit as well.",
  similarity: "The mean cosine of its clips with the words. Its size alone has no meaning; what counts is whether it stands out from chance.",
  spread: "How much the similarity differs between its clips: small if it shows this all the time, large if only now and then.",
  unusual: "Far from every other video, or harder to make out than nearly all of them.",
  junk: "Shows nothing useful: black, frozen, noise, a title card, a screen recording, or unreadable.",
  disagreement: "How much the parts of a video differ from each other: high if it shows several things.",
  "clean copy":
    "A folder of links to all videos that are neither in the trash nor proposed for removal. It takes no disk space.",
};

/** A word with its explanation. */
export function term(word, text = word) {
  const element = h("span.term", { tabindex: "0", "data-tip": WORDS[word], "aria-label": `${text}: ${WORDS[word]}` }, text);
  for (const event of ["pointerenter", "focus"]) element.addEventListener(event, () => place(element));
  return element;
}

/** Let the explanation stay in the window: beside an edge it moves in, near the bottom it stands above. */
function place(element) {
  const { left, width, bottom } = element.getBoundingClientRect();
  const middle = left + width / 2;
  const half = Math.min(MOST_WIDE, 0.7 * innerWidth) / 2 + 8;
  const shift = middle < half ? half - middle : Math.min(0, innerWidth - half - middle);
  element.style.setProperty("--shift", `${shift}px`);
  element.classList.toggle("is-low", bottom > innerHeight - 200);
}

for (const element of document.querySelectorAll("[data-term]")) element.append(" ", term(element.dataset.term, "?"));
