// A player that keeps the time of the video itself, also where only a short preview of it can be played.
import { frameUrl } from "./api.js";
import { h } from "./dom.js";

export class Player extends EventTarget {
  /** Sends "time" whenever `time` has changed. */
  constructor(video) {
    super();
    Object.assign(this, { video, time: 0, offset: 0, isPreview: !video.source });
    this.media = h("video", {
      controls: true,
      playsinline: true,
      preload: "metadata",
      poster: video.thumbnail,
      "aria-label": `Video ${video.id}`,
    });
    this.media.muted = true;
    this.still = h("img.player-still", { alt: "", hidden: true });
    this.note = h("p.note", { hidden: true });
    this.element = h("div.player", {}, h("div.player-picture", {}, this.media, this.still), this.note);
    this.media.addEventListener("timeupdate", () => this.#moved());
    this.media.addEventListener("seeking", () => this.#moved());
    this.media.addEventListener("play", () => {
      this.still.hidden = true;
    });
    this.media.addEventListener("loadedmetadata", () => this.#ready());
    this.media.addEventListener("error", () => this.#fallBack());
    this.#open();
  }

  seek(seconds) {
    this.time = Math.min(Math.max(0, seconds), this.video.duration_seconds);
    const within = this.time - this.offset;
    const isPlayable = this.media.readyState > 0 && within >= 0 && within <= this.media.duration;
    this.wanted = this.media.readyState > 0 ? null : this.time;
    if (isPlayable) this.media.currentTime = within;
    this.#showStill(!isPlayable && this.isPreview);
    this.dispatchEvent(new Event("time"));
  }

  toggle() {
    if (this.media.paused) this.media.play().catch(() => {});
    else this.media.pause();
  }

  /** Stop, and let go of the file. */
  close() {
    this.media.pause();
    this.media.removeAttribute("src");
    this.media.load();
  }

  #open() {
    this.media.src = this.isPreview ? this.video.preview : this.video.source;
    this.note.hidden = !this.isPreview;
    this.note.textContent =
      "The browser cannot play the file itself: this is its preview, and single frames of the rest.";
  }

  #ready() {
    if (this.isPreview) this.offset = Math.max(0, (this.video.duration_seconds - this.media.duration) / 2);
    if (this.wanted != null) this.seek(this.wanted);
    else if (this.isPreview) this.#moved();
  }

  #fallBack() {
    if (this.isPreview || !this.media.getAttribute("src")) return;
    this.isPreview = true;
    this.#open();
  }

  #showStill(isShown) {
    this.still.hidden = !isShown;
    if (isShown) {
      this.media.pause();
      this.still.src = frameUrl(this.video.id, this.time, 480);
    }
  }

  #moved() {
    if (!this.still.hidden) return; // the media stands elsewhere than what is shown
    this.time = this.offset + this.media.currentTime;
    this.dispatchEvent(new Event("time"));
  }
}
