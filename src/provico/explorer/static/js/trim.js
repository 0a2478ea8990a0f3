// Which parts of a video are kept: handles over the strip, for the pointer and for the keyboard.
import { h } from "./dom.js";
import { inMinutes } from "./format.js";

const SHORTEST_SECONDS = 0.1;
const CUT_SHARE = 0.1; // of a part is left out by a cut, until its handles are moved

export class Trim extends EventTarget {
  /** Lies over a strip; sends "seek" (detail: seconds) as a handle moves, so that one sees where to cut. */
  constructor(strip, segments) {
    super();
    this.strip = strip;
    this.segments = (segments.length ? segments : [[0, strip.duration]]).map(([start, end]) => [
      start,
      Math.min(end, strip.duration),
    ]);
    this.element = h("div.trim", {});
    strip.element.append(this.element);
    this.#draw();
  }

  close() {
    this.element.remove();
  }

  focus(handle = "0-0") {
    this.element.querySelector(`[data-handle="${handle}"]`)?.focus();
  }

  /** Leave out a little around a moment, so that there are two parts; false if it is in none, or in a short one. */
  cut(seconds) {
    const number = this.segments.findIndex(([start, end]) => start <= seconds && seconds <= end);
    if (number < 0) return false;
    const [start, end] = this.segments[number];
    const length = Math.max(SHORTEST_SECONDS, CUT_SHARE * (end - start));
    if (end - start < length + 2 * SHORTEST_SECONDS) return false;
    const from = Math.max(
      start + SHORTEST_SECONDS,
      Math.min(seconds - length / 2, end - length - SHORTEST_SECONDS),
    );
    this.segments.splice(number, 1, [start, from], [from + length, end]);
    this.#draw();
    this.focus(`${number}-1`);
    return true;
  }

  /** Leave out a whole part; the last one stays, since a video without parts is one to drop. */
  remove(number) {
    if (this.segments.length === 1) return;
    this.segments.splice(number, 1);
    this.#draw();
    this.focus(`${Math.min(number, this.segments.length - 1)}-0`);
  }

  #draw() {
    const share = (seconds) => seconds / (this.strip.duration || 1);
    this.element.replaceChildren(
      ...this.segments.flatMap((segment, number) => [
        h("div.trim-part", { style: { "--from": share(segment[0]), "--to": share(segment[1]) } }),
        ...[0, 1].map((side) => this.#handle(segment, number, side)),
      ]),
    );
  }

  #handle(segment, number, side) {
    const name = `${side ? "End" : "Start"} of part ${number + 1}`;
    return h("div.trim-handle", {
      role: "slider",
      tabindex: 0,
      "aria-label": name,
      title: name,
      "data-handle": `${number}-${side}`,
      "aria-valuemin": this.#limits(number, side)[0].toFixed(2),
      "aria-valuemax": this.#limits(number, side)[1].toFixed(2),
      "aria-valuenow": segment[side].toFixed(2),
      "aria-valuetext": inMinutes(segment[side], 2),
      style: { "--from": segment[side] / (this.strip.duration || 1) },
      onkeydown: (event) => this.#key(event, number, side),
      onpointerdown: (event) => this.#drag(event, number, side),
    });
  }

  #limits(number, side) {
    const [start, end] = this.segments[number];
    return side
      ? [start + SHORTEST_SECONDS, this.segments[number + 1]?.[0] ?? this.strip.duration]
      : [this.segments[number - 1]?.[1] ?? 0, end - SHORTEST_SECONDS];
  }

  #set(number, side, seconds) {
    const [low, high] = this.#limits(number, side);
    this.segments[number][side] = Math.max(low, Math.min(high, seconds));
    const focused = document.activeElement?.dataset?.handle;
    this.#draw();
    if (focused) this.focus(focused);
    this.dispatchEvent(new CustomEvent("seek", { detail: this.segments[number][side] }));
  }

  #key(event, number, side) {
    if (["Delete", "Backspace"].includes(event.key)) {
      event.preventDefault();
      this.remove(number);
      return;
    }
    const step = event.shiftKey ? 1 : 0.1;
    const now = this.segments[number][side];
    const targets = {
      ArrowLeft: now - step,
      ArrowDown: now - step,
      ArrowRight: now + step,
      ArrowUp: now + step,
      Home: 0,
      End: this.strip.duration,
    };
    if (!(event.key in targets)) return;
    event.preventDefault();
    this.#set(number, side, targets[event.key]);
  }

  #drag(event, number, side) {
    event.preventDefault();
    event.stopPropagation();
    const { left, width } = this.strip.slider.getBoundingClientRect();
    const move = ({ clientX }) => this.#set(number, side, ((clientX - left) / width) * this.strip.duration);
    const stop = () => {
      removeEventListener("pointermove", move);
      removeEventListener("pointerup", stop);
      removeEventListener("pointercancel", stop);
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", stop);
    addEventListener("pointercancel", stop);
    event.currentTarget.focus();
  }
}
