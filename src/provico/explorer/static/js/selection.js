// Videos that are selected, on whichever page, and what can be done with them.
import { api } from "./api.js";
import { $, h } from "./dom.js";
import { plural } from "./format.js";

const KEY = "selected";

const stored = () => {
  try {
    return JSON.parse(sessionStorage.getItem(KEY) ?? "[]");
  } catch {
    return [];
  }
};

class Selection extends EventTarget {
  constructor() {
    super();
    this.ids = new Set(stored());
  }

  has(id) {
    return this.ids.has(id);
  }

  toggle(id, isSelected = !this.ids.has(id)) {
    if (isSelected) this.ids.add(id);
    else this.ids.delete(id);
    this.#changed();
  }

  set(ids) {
    this.ids = new Set(ids);
    this.#changed();
  }

  add(ids) {
    for (const id of ids) this.ids.add(id);
    this.#changed();
  }

  #changed() {
    try {
      sessionStorage.setItem(KEY, JSON.stringify([...this.ids]));
    } catch {
      /* too many, or no storage: it lasts as long as the page */
    }
    this.dispatchEvent(new Event("change"));
  }
}

/** Sends "change". */
export const selection = new Selection();

let known = null; // what can be done, and the last revision that this page has seen

/** Say something for a while; `action` is a button beside it. */
export function toast(text, action = null) {
  const element = $("#toast");
  element.replaceChildren(text, ...(action ? [" ", action] : []));
  element.hidden = false;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => (element.hidden = true), 15_000);
}

const undoButton = () => h("button.button", { type: "button", onclick: undo }, "Undo");

/** Do something with videos; sends "done" on the selection, and offers to undo it. */
export async function act(verb, ids, to = "") {
  try {
    known ??= await api.actions();
    const done = await api.act({ do: verb, ids, to, revision: known.revision });
    known = done;
    const failed = Object.entries(done.failed);
    const trouble = failed.length ? ` Not done with ${plural(failed.length, "video")}: ${failed[0].join(": ")}` : "";
    toast(`${capital(done.text)}.${trouble}`, done.ids.length ? undoButton() : null);
    if (verb === "trash" || verb === "move") for (const id of done.ids) selection.ids.delete(id);
    selection.set(selection.ids);
    selection.dispatchEvent(new CustomEvent("done", { detail: { verb, ids: done.ids } }));
    return done;
  } catch (error) {
    if (error.status === 409) known = await api.actions().catch(() => null);
    toast(`${error.message} ${error.hint ?? ""}`);
    return null;
  }
}

export async function undo() {
  try {
    known = await api.actions();
    const done = await api.undoAction(known.revision);
    known = done;
    const failed = Object.entries(done.failed);
    toast(`${done.text}.${failed.length ? ` Not: ${failed[0].join(": ")}` : ""}`);
    selection.dispatchEvent(new CustomEvent("done", { detail: { verb: "undo", ids: done.ids } }));
  } catch (error) {
    toast(`${error.message} ${error.hint ?? ""}`);
  }
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);

/** Ask for a few letters where the button was. */
function ask(label, placeholder, options, done) {
  const field = h("input", { type: "text", placeholder, "aria-label": label, list: "action-words" });
  const form = h(
    "form.ask",
    {},
    field,
    h("datalist", { id: "action-words" }, ...options.map((value) => h("option", { value }))),
    h("button.button.button-primary", {}, label),
    h("button.button", { type: "button", onclick: show }, "Cancel"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (field.value.trim()) done(field.value.trim()).then(show);
  });
  $("#selection-bar").replaceChildren(form);
  field.focus();
}

function exportCsv() {
  const rows = [["id"], ...[...selection.ids].map((id) => [id])];
  const cell = (value) => (/[",\n\r]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
  download(rows.map((row) => row.map(cell).join(",")).join("\n"), "selection.csv");
}

/** Hand a text to the reader as a file. */
export function download(text, name) {
  const url = URL.createObjectURL(new Blob([`${text}\n`], { type: "text/csv" }));
  h("a", { href: url, download: name }).click();
  URL.revokeObjectURL(url);
}

async function show() {
  const bar = $("#selection-bar");
  bar.hidden = selection.ids.size === 0;
  document.body.classList.toggle("has-selection", !bar.hidden);
  if (bar.hidden) return;
  known ??= await api.actions().catch(() => null);
  const ids = () => [...selection.ids];
  const why = known?.why_not ?? null;
  const button = (text, onclick, attributes = {}) =>
    h("button.button", { type: "button", onclick, ...attributes }, text);
  const blocked = why ? { disabled: true, title: why } : {};
  bar.replaceChildren(
    h("strong", { id: "selection-count" }, `${plural(selection.ids.size, "video")} selected`),
    button("Tag…", () => ask("Tag", "such as holiday", known?.tags ?? [], (to) => act("tag", ids(), to))),
    button("Export list", exportCsv),
    button("Move…", () => ask("Move", "folder, such as sorted/dogs", [], (to) => act("move", ids(), to)), blocked),
    button("Link to clean copy", () => act("link", ids()), blocked),
    button("Move to trash", () => act("trash", ids()), { ...blocked, class: "button button-danger" }),
    button("Clear", () => selection.set([]), { class: "button button-quiet" }),
  );
}

/** A box that selects a video. */
export function selectBox(id) {
  const box = h("input.select-box", { type: "checkbox", "aria-label": `Select ${id}` });
  box.checked = selection.has(id);
  box.addEventListener("change", () => selection.toggle(id, box.checked));
  box.dataset.id = id;
  return box;
}

selection.addEventListener("change", () => {
  for (const box of document.querySelectorAll(".select-box")) box.checked = selection.has(box.dataset.id);
  show();
});
show();
