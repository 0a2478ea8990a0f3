// Uncertainty over the time of one video: hover shows the frame, click and arrow keys seek.
import { frameUrl } from "./api.js";
import { debounce, h, svg } from "./dom.js";
import { inMinutes, number } from "./format.js";

const WIDTH = 1000;
const HEIGHT = 100;

/** Pieces of time with the mean uncertainty of the clips that cover them; null where no clip looked. */
export function pieces(clips, duration) {
  const edges = [
    ...new Set([
      0,
      duration,
      ...clips.flatMap((clip) => [clip.start_seconds, Math.min(clip.end_seconds, duration)]),
    ]),
  ];
  edges.sort((a, b) => a - b);
  return edges.slice(1).map((end, place) => {
    const start = edges[place];
    const middle = (start + end) / 2;
    const covering = clips.filter((clip) => clip.start_seconds <= middle && middle < clip.end_seconds);
    const sum = covering.reduce((total, clip) => total + clip.uncertainty, 0);
    return { start, end, uncertainty: covering.length ? sum / covering.length : null };
  });
}

export class Strip extends EventTarget {
  /** Sends "seek" (detail: seconds) when the reader chooses a time. */
  constructor({ id, clips, duration_seconds: duration }) {
    super();
    Object.assign(this, { id, duration, time: 0, pieces: pieces(clips, duration), clips });
    this.plot = this.#draw();
    this.image = h("img", { alt: "" });
    this.caption = h("span");
    this.tip = h("div.strip-tip", { hidden: true }, this.image, this.caption);
    this.slider = h(
      "div.strip-slider",
      {
        role: "slider",
        tabindex: 0,
        "aria-label": "Seek along the uncertainty",
        "aria-valuemin": 0,
        "aria-valuemax": duration,
        onpointermove: (event) => this.#hover(event),
        onpointerleave: () => this.#leave(),
        onpointerdown: (event) => this.#choose(this.#secondsAt(event)),
        onkeydown: (event) => this.#key(event),
      },
      this.plot,
    );
    this.element = h(
      "div.strip",
      {},
      this.slider,
      this.tip,
      h(
        "div.strip-times",
        { "aria-hidden": "true" },
        h("span", {}, "0:00"),
        h("span", {}, inMinutes(duration)),
      ),
    );
    this.showFrame = debounce((seconds) => {
      this.image.src = frameUrl(this.id, seconds, 160);
    }, 60);
    this.setTime(0);
  }

  /** Where the playhead is. */
  setTime(seconds) {
    this.time = Math.min(Math.max(0, seconds), this.duration);
    const x = (WIDTH * this.time) / (this.duration || 1);
    this.playhead.setAttribute("x1", x);
    this.playhead.setAttribute("x2", x);
    this.slider.setAttribute("aria-valuenow", this.time.toFixed(2));
    this.slider.setAttribute("aria-valuetext", this.#describe(this.time));
  }

  /** Mark the time of one clip; null marks none. */
  mark(clip) {
    this.marked.setAttribute("visibility", clip ? "visible" : "hidden");
    if (!clip) return;
    this.marked.setAttribute("x", (WIDTH * clip.start_seconds) / this.duration);
    this.marked.setAttribute("width", (WIDTH * (clip.end_seconds - clip.start_seconds)) / this.duration);
  }

  uncertaintyAt(seconds) {
    return this.pieces.find(({ start, end }) => start <= seconds && seconds <= end)?.uncertainty ?? null;
  }

  #describe(seconds) {
    const uncertainty = this.uncertaintyAt(seconds);
    return `${inMinutes(seconds)}, ${uncertainty === null ? "no clip here" : `uncertainty ${number(uncertainty)}`}`;
  }

  #draw() {
    const highest = Math.max(...this.pieces.map((piece) => piece.uncertainty ?? 0)) || 1;
    const bars = this.pieces.map(({ start, end, uncertainty }) => {
      const height = uncertainty === null ? HEIGHT : Math.max(3, (0.92 * HEIGHT * uncertainty) / highest);
      const x = (WIDTH * start) / (this.duration || 1);
      const width = Math.max(0, (WIDTH * end) / (this.duration || 1) - x - 1);
      return svg(uncertainty === null ? "rect.unseen" : "rect.bar", { x, y: HEIGHT - height, width, height });
    });
    const line = (name) => svg(`line.${name}`, { y1: 0, y2: HEIGHT, "vector-effect": "non-scaling-stroke" });
    this.playhead = line("playhead");
    this.cursor = line("cursor");
    this.cursor.setAttribute("visibility", "hidden");
    this.marked = svg("rect.marked", { y: 0, height: HEIGHT, visibility: "hidden" });
    return svg(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
      ...bars,
      this.marked,
      this.cursor,
      this.playhead,
    );
  }

  #secondsAt(event) {
    const { left, width } = this.slider.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - left) / width)) * this.duration;
  }

  #hover(event) {
    const seconds = this.#secondsAt(event);
    const share = seconds / (this.duration || 1);
    this.cursor.setAttribute("visibility", "visible");
    this.cursor.setAttribute("x1", WIDTH * share);
    this.cursor.setAttribute("x2", WIDTH * share);
    this.caption.textContent = this.#describe(seconds);
    this.tip.hidden = false;
    this.tip.style.setProperty("--at", share);
    this.showFrame(Math.min(seconds, Math.max(0, this.duration - 0.05)));
    if (event.buttons === 1) this.#choose(seconds);
  }

  #leave() {
    this.tip.hidden = true;
    this.cursor.setAttribute("visibility", "hidden");
  }

  #choose(seconds) {
    this.setTime(seconds);
    this.dispatchEvent(new CustomEvent("seek", { detail: this.time }));
  }

  #key(event) {
    const step = Math.max(0.1, this.duration / 100);
    const targets = {
      ArrowRight: this.time + step,
      ArrowUp: this.time + step,
      ArrowLeft: this.time - step,
      ArrowDown: this.time - step,
      PageUp: this.time + 10 * step,
      PageDown: this.time - 10 * step,
      Home: 0,
      End: this.duration,
    };
    if (!(event.key in targets)) return;
    event.preventDefault();
    this.#choose(targets[event.key]);
  }
}
