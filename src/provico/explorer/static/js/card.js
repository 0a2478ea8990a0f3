// One video as a card: its picture, how unsure the encoder is of it, and a preview.
import { searchUrl, videoUrl } from "./api.js";
import { h, icon, prefersStill } from "./dom.js";
import { inMinutes, number } from "./format.js";

/** The uncertainty as a bar; `full` is the one that fills it. */
export function measure({ uncertainty }, full) {
  const text = `Uncertainty ${number(uncertainty)}`;
  const share = `${Math.min(100, (100 * uncertainty) / (full || 1))}%`;
  return h(
    "div.measure",
    { role: "img", "aria-label": text, title: text },
    h("i.unsure", { style: { "--share": share } }),
  );
}

/** The file's own name: in a narrow place the folders would hide it. */
export const shortName = (id) => id.slice(id.lastIndexOf("/") + 1);

export const bucketChip = (bucket) =>
  bucket ? h(`span.chip.chip-${bucket}`, { "data-bucket": bucket }, bucket) : null;

/** `note`: a few words on the picture; `full`: the uncertainty that fills the bar. */
export function card(video, { full, note = "" } = {}) {
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
      measure(video, full),
      h(
        "div.card-line",
        {},
        h("span.chip", { title: video.label ?? "No class" }, video.label ?? "no class"),
        // Most are kept; only what wants attention is said.
        video.bucket && video.bucket !== "keep"
          ? bucketChip(video.bucket)
          : h("span", { title: "Uncertainty" }, number(video.uncertainty)),
      ),
    ),
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

function startPreview(element, { preview }) {
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
