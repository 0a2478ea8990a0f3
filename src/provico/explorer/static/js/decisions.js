// Decisions on their way to the server: shown at once, but never called saved before they are.
import { api } from "./api.js";

export class Decisions extends EventTarget {
  /** Sends "change" when something was saved or failed. */
  constructor() {
    super();
    this.revision = 0; // the last that this page has seen
    this.waiting = 0;
    this.unsaved = new Map(); // id -> {item, body, error}
    this.line = Promise.resolve(); // one after the other, in the order they were made
    addEventListener("beforeunload", (event) => {
      if (this.waiting || this.unsaved.size) event.preventDefault();
    });
  }

  /** Save a decision on an item; it resolves when it is saved, rejects when it is not. */
  decide(item, decision, segments = []) {
    return this.#queue(async () => {
      // What this page has seen of this very video: another tab's decision on it since is a conflict.
      const body = { id: item.id, decision, segments, revision: item.seen };
      try {
        const saved = await api.decide(body);
        this.unsaved.delete(item.id);
        Object.assign(item, { seen: saved.revision, decision: saved.decision, bucket: decision });
        this.revision = saved.revision;
        return saved;
      } catch (error) {
        this.unsaved.set(item.id, { item, decision, segments, error });
        throw error;
      }
    });
  }

  /** Take back the last decision; resolves to what the server says of it. */
  undo() {
    return this.#queue(async () => {
      const undone = await api.undo(this.revision);
      this.revision = undone.revision;
      return undone;
    });
  }

  /** Give up a decision that could not be saved. */
  forget(id) {
    this.unsaved.delete(id);
    this.dispatchEvent(new Event("change"));
  }

  #queue(work) {
    this.waiting += 1;
    this.dispatchEvent(new Event("change"));
    const result = this.line.then(work);
    this.line = result
      .catch(() => {})
      .then(() => {
        this.waiting -= 1;
        this.dispatchEvent(new Event("change"));
      });
    return result;
  }
}
