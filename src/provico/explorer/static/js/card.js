// One video as a card: its picture, how unsure the encoder is of it, and a preview.
import { searchUrl, videoUrl } from "./api.js";
import { h, icon, prefersStill } from "./dom.js";
import { inMinutes, percent } from "./format.js";
import { selectBox } from "./selection.js";

/** How unsure the encoder is of a video, as it is told everywhere: compared with the others. */
export const unsureText = (video) => `unsure ${Math.round(100 * video.uncertainty_percentile)} %`;
const explained = (video) =>
  `More uncertain than ${percent(video.uncertainty_percentile)} of your videos`;

/** The same as a bar. */
export function measure(video) {
  return h(
    "div.measure",
    { role: "img", "aria-label": explained(video), title: explained(video) },
    h("i.unsure", { style: { "--share": `${100 * video.uncertainty_percentile}%` } }),
  );
}

/** The file's own name: in a narrow place the folders would hide it. */
export const shortName = (id) => id.slice(id.lastIndexOf("/") + 1);

export const bucketChip = (bucket) =>
  bucket ? h(`span.chip.chip-${bucket}`, { "data-bucket": bucket }, bucket) : null;

/** `note`: a few words on the picture. */
export function card(video, { note = "" } = {}) {
  const picture = h("img", { src: video.thumbnail, alt: "", loading: "lazy", decoding: "async" });
  const element = h(
    "article.card",
    { "data-id": video.id },
    h(
      "div.card-picture",
      {},
      picture,
      note ? h("span.on-picture.score", {}, note) : null,
      h("span.on-picture.time", {}, inMinutes(video.duration_seconds)),
    ),
    h(
      "div.card-text",
      {},
      h(
        "a.card-title",
        { href: videoUrl(video.id), title: video.id, "aria-label": video.id },
        shortName(video.id),
      ),
      measure(video),
      h(
        "div.card-line",
        {},
        video.label ? h("span.chip", { title: video.label }, video.label) : null,
        ...video.tags.slice(0, 2).map((tag) => h("span.chip.chip-tag", { title: tag }, tag)),
        // Most are kept; only what wants attention is said.
        video.bucket && video.bucket !== "keep"
          ? bucketChip(video.bucket)
          : h("span.unsure-text", { title: explained(video) }, unsureText(video)),
      ),
    ),
    selectBox(video.id),
    h(
      "a.card-similar",
      { href: searchUrl(video.id), "aria-label": `Find videos like ${video.id}`, title: "Find similar" },
      icon("search", 18),
    ),
  );
  const play = () => startPreview(element, video);
  const stop = () => stopPreview(element);
  element.addEventListener("pointerenter", play);
  element.addEventListener("focusin", play);
  element.addEventListener("pointerleave", stop);
  element.addEventListener("focusout", stop);
  element.startPreview = play;
  return element;
}

export function startPreview(element, { preview }) {
  if (element.querySelector("video") || prefersStill()) return;
  const video = h("video", {
    src: preview,
    loop: true,
    playsinline: true,
    "aria-hidden": "true",
    tabindex: -1,
    disablepictureinpicture: true,
  });
  video.muted = true; // as an attribute it would come too late for autoplay
  element.querySelector("img").after(video);
  video.play().catch(() => video.remove()); // the picture stays: the card left the view, or saves power
}

export function stopPreview(element) {
  if (element.dataset.playing) return;
  const video = element.querySelector("video");
  if (!video) return;
  video.pause();
  video.removeAttribute("src"); // lets go of the connection
  video.load();
  video.remove();
}

/** Plays the previews of the cards that are in view, while it is told to. */
export function previewWatcher() {
  const observer = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) {
        if (isIntersecting) {
          target.dataset.playing = "1";
          target.startPreview();
        } else {
          delete target.dataset.playing;
          stopPreview(target);
        }
      }
    },
    { threshold: 0.4 },
  );
  return {
    watch: (element) => observer.observe(element),
    leave: (element) => {
      observer.unobserve(element);
      delete element.dataset.playing;
      stopPreview(element);
    },
  };
}
