// What is searched for: a video of the collection, or a file of the reader's own.
import { api, frameUrl, videoUrl } from "./api.js";
import { measure } from "./card.js";
import { $, debounce, h } from "./dom.js";
import { bytes, inMinutes } from "./format.js";

const NO_WORDS = "No video has this in its name, and the network of this collection was not trained with text.";

/** A query by the id of a video in the index. */
export class IndexedQuery {
  constructor(id) {
    this.id = id;
  }

  ask(values, options) {
    return api.search({ id: this.id, ...values }, options);
  }

  /** A picture of one moment of it. */
  moment(seconds) {
    return h("img", {
      src: frameUrl(this.id, seconds),
      alt: `${this.id} at ${inMinutes(seconds)}`,
      loading: "lazy",
    });
  }

  link(seconds) {
    return videoUrl(this.id, seconds);
  }

  summary(answer, cards, unsure) {
    const video = cards?.[this.id];
    const picture = h("img", {
      src: video?.thumbnail ?? `/media/thumbnail?${new URLSearchParams({ id: this.id })}`,
      alt: "",
    });
    return summary(picture, h("a", { href: videoUrl(this.id) }, this.id), video?.label ?? null, answer, unsure);
  }
}

/** A query by a file, which is sent to be looked at and not kept. */
export class FileQuery {
  constructor(file) {
    this.file = file;
    this.url = URL.createObjectURL(file);
  }

  ask(values, options) {
    const { k, metric, max_error } = values; // the rest is for indexed videos
    return api.searchFile(this.file, { k, metric, max_error }, options);
  }

  moment(seconds) {
    const media = h("video", {
      src: `${this.url}#t=${seconds.toFixed(2)}`,
      preload: "metadata",
      playsinline: true,
      "aria-label": `${this.file.name} at ${inMinutes(seconds)}`,
    });
    media.muted = true;
    media.addEventListener("error", () =>
      media.replaceWith(h("span.moment-blank", {}, "This browser cannot show the file")),
    );
    return media;
  }

  link() {
    return null;
  }

  summary(answer, _cards, unsure) {
    return summary(this.moment(0), h("span", {}, this.file.name), bytes(this.file.size), answer, unsure);
  }
}

/** A query by words, and by what hits should or should not look like. */
export class TextQuery {
  constructor(text) {
    this.text = text;
  }

  async ask(values, options) {
    const { query, hits, cards, num_videos } = await api.searchWords(this.text, values, options);
    // As the answer to a video, of which words have no uncertainty, no parts and no proof that could fail.
    const certificate = { is_exact: true, num_allowed: num_videos };
    return { answer: { query, hits, certificate, unreached: [] }, cards, duplicates: [], query_percentile: 0 };
  }

  summary(answer) {
    return h("div.query-summary", {}, h("div.query-text", {}, h("h2", {}, `“${answer?.query ?? this.text}”`)));
  }
}

function summary(picture, title, text, answer, unsure) {
  return h(
    "div.query-summary",
    {},
    h("div.query-picture", {}, picture),
    h(
      "div.query-text",
      {},
      h("h2", {}, title),
      text ? h("p.note", {}, text) : null,
      answer ? measure({ uncertainty_percentile: unsure }) : null,
    ),
  );
}

/** Let the reader choose: `chosen(query)`; `knowsWords()` says whether words can be searched for. */
export function queryInputs(chosen, { knowsWords }) {
  const [drop, file, pick, picks] = [$("#drop"), $("#file"), $("#pick"), $("#picks")];
  file.addEventListener("change", () => {
    if (file.files.length) chosen(new FileQuery(file.files[0]));
    file.value = "";
  });
  // The whole page takes a file, since one that misses would otherwise be opened instead of the page.
  addEventListener("dragover", (event) => {
    event.preventDefault();
    drop.classList.add("is-over");
  });
  addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) drop.classList.remove("is-over");
  });
  addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("is-over");
    if (event.dataTransfer.files.length) chosen(new FileQuery(event.dataTransfer.files[0]));
  });
  const choose = (query) => {
    asked++;
    picks.replaceChildren();
    pick.value = "";
    chosen(query);
  };
  const wordsElement = (text, num) =>
    knowsWords()
      ? h("li", {}, h("button.by-words", { type: "button", onclick: () => choose(new TextQuery(text)) }, `Search for “${text}”`))
      : h("li.note", { hidden: num > 0 }, NO_WORDS);
  const named = async (text) => (await api.videos({ text, limit: 8, sort: "id" }).catch(() => ({ items: [] }))).items;
  let asked = 0;
  const suggest = async () => {
    const mine = ++asked;
    const text = pick.value.trim();
    const items = await named(text);
    if (mine !== asked) return;
    picks.replaceChildren(
      ...(text ? [wordsElement(text, items.length)] : []),
      ...items.map((video) =>
        h(
          "li",
          {},
          h(
            "button",
            {
              type: "button",
              onclick: () => choose(new IndexedQuery(video.id)),
            },
            h("img", { src: video.thumbnail, alt: "", loading: "lazy" }),
            h("span", {}, video.id),
          ),
        ),
      ),
    );
  };
  pick.addEventListener("input", debounce(suggest, 150));
  pick.addEventListener("focus", suggest);
  // The video of this name; where the network knows no words, the first one that is suggested.
  const enter = async (text) => {
    const mine = ++asked;
    const items = await named(text);
    if (mine !== asked) return;
    const found = items.find(({ id }) => id === text || id.endsWith(`/${text}`)) ?? (knowsWords() ? null : items[0]);
    // Without words the server says what is missing.
    choose(found ? new IndexedQuery(found.id) : new TextQuery(text));
  };
  pick.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      event.preventDefault();
      if (pick.value.trim()) enter(pick.value.trim());
    }
    if (event.key === "ArrowDown") {
      event.preventDefault();
      $("button", picks)?.focus();
    }
    if (event.key === "Escape") picks.replaceChildren();
  });
  picks.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const buttons = [...picks.querySelectorAll("button")];
    (buttons[buttons.indexOf(document.activeElement) + step] ?? pick).focus();
  });
}
