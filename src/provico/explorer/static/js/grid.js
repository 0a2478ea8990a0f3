// A grid of any number of videos, in chunks: one is asked for when it comes near, and emptied when it is far.
import { h, problem } from "./dom.js";

export const CHUNK = 60; // a multiple of every number of columns, so that no row but the last has a hole

export class Grid {
  /** `fetchChunk(offset, limit, signal)` gives videos, `makeCard(video)` an element; `left(element)` is its end. */
  constructor(element, { fetchChunk, makeCard, left }) {
    Object.assign(this, { element, fetchChunk, makeCard, left });
    this.observer = new IntersectionObserver(
      (entries) =>
        entries.forEach(({ target, isIntersecting }) =>
          isIntersecting ? this.#fill(target) : this.#drain(target),
        ),
      { rootMargin: "600px 0px" },
    );
  }

  /** Show `total` videos, of which the first are here already. */
  show(total, first) {
    this.clear();
    this.total = total;
    for (let offset = 0; offset < total; offset += CHUNK) {
      const count = Math.min(CHUNK, total - offset);
      const chunk = h("div.chunk", {
        "data-offset": offset,
        "data-count": count,
        style: { "--count": count },
      });
      if (offset === 0) this.#put(chunk, first);
      this.element.append(chunk);
      this.observer.observe(chunk);
    }
  }

  clear() {
    this.observer.disconnect();
    for (const chunk of this.element.children) this.#drain(chunk);
    this.element.replaceChildren();
  }

  async #fill(chunk) {
    if (chunk.dataset.state) return;
    chunk.dataset.state = "loading";
    const { offset, count } = chunk.dataset;
    chunk.replaceChildren(...Array.from({ length: Number(count) }, () => h("div.skeleton")));
    chunk.request = new AbortController();
    try {
      this.#put(chunk, await this.fetchChunk(Number(offset), Number(count), chunk.request.signal));
    } catch (error) {
      if (error.name === "AbortError") return;
      chunk.replaceChildren(
        problem(error, () => {
          delete chunk.dataset.state;
          this.#fill(chunk);
        }),
      );
    }
  }

  #put(chunk, items) {
    const first = Number(chunk.dataset.offset);
    chunk.dataset.state = "full";
    chunk.replaceChildren(
      ...items.map((item, place) => {
        const card = this.makeCard(item);
        card.dataset.place = first + place;
        return card;
      }),
    );
  }

  #drain(chunk) {
    if (!chunk.dataset.state || chunk.contains(document.activeElement)) return;
    chunk.request?.abort();
    for (const card of chunk.children) if (card.dataset.id) this.left(card);
    chunk.replaceChildren();
    delete chunk.dataset.state;
  }

  get columns() {
    return Number(getComputedStyle(this.element).getPropertyValue("--columns"));
  }

  /** Move the focus by so many cards. */
  move(steps) {
    const here = document.activeElement?.closest?.(".card");
    const place = here ? Number(here.dataset.place) + steps : 0;
    const next = this.element.querySelector(`.card[data-place="${place}"] .card-title`);
    next?.focus();
    next?.closest(".card").scrollIntoView({ block: "nearest" });
  }
}
