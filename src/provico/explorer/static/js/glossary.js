// Words that need a word: each is told where it stands, by pointer, by finger and by keyboard.
import { h } from "./dom.js";

const WORDS = {
  unsure:
    "How hard the video is to make out for the encoder, compared with your other videos: 90 % means that it is surer of 90 % of them.",
  match: "How often hits like this one were right, by labels or by what people judged.",
  "by chance":
    "How many unrelated videos are expected to match as well as this one. Far below 1 is a real match; above 1 it may be luck.",
  duplicate: "Two files that show the same recording: encoded again, resized, mirrored, sped up or with bars.",
  group: "Videos that look alike to the encoder. Groups are found without names: they are called by the classes of the videos, by your words, or by what their file names share.",
  fits: "Of your words, those that fit this group rather than the others. In brackets: how many unrelated phrases fit as well.",
  similarity: "The mean cosine of its clips with the words. Its size alone says nothing: what stands out from chance does.",
  spread: "How far its clips differ in that: small if it shows this all the time, large if only now and then.",
  unusual: "Far from every other video, or harder to make out than nearly all of them.",
  junk: "Shows nothing of use: black, frozen, snow, a title card, a recorded screen, or cannot be read.",
  disagreement: "How much the parts of a video differ from each other: high if it shows several things.",
  "clean copy":
    "A folder of links to all videos that are not in the trash and not proposed to go. It takes no room on the disk.",
};

/** A word with its explanation. */
export function term(word, text = word) {
  return h("span.term", { tabindex: "0", "data-tip": WORDS[word], "aria-label": `${text}: ${WORDS[word]}` }, text);
}
