// A part of a video as a file of the reader's own.
import { ApiError, cutUrl } from "./api.js";
import { h } from "./dom.js";
import { inMinutes } from "./format.js";
import { toast } from "./selection.js";

/** Save a part; whatever goes wrong is told. */
async function save(id, start, end, button) {
  const before = button.textContent;
  button.disabled = true;
  button.textContent = "Cutting…";
  try {
    const response = await fetch(cutUrl(id, start, end), { credentials: "same-origin" });
    if (!response.ok) {
      const body = await response.json().catch(() => null);
      throw new ApiError(response.status, body?.error ?? { message: `The server answered with ${response.status}.` });
    }
    const name = /filename\*=UTF-8''(\S+)/.exec(response.headers.get("content-disposition") ?? "");
    const url = URL.createObjectURL(await response.blob());
    h("a", { href: url, download: name ? decodeURIComponent(name[1]) : "part.mp4" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
    toast(`Saved: ${inMinutes(start)}–${inMinutes(end)} of ${id}`);
  } catch (error) {
    toast(`Not cut out: ${error.message} ${error.hint ?? ""}`);
  }
  button.disabled = false;
  button.textContent = before;
}

/** A button that saves one part. */
export function cutButton(id, { start_seconds: start, end_seconds: end }) {
  const text = `Cut out ${inMinutes(start)}–${inMinutes(end)}`;
  return h("button.button.button-quiet.cut", { type: "button", onclick: ({ target }) => save(id, start, end, target) }, text);
}

/** Fields for a part of one video, which follow the player when they are told to. */
export function cutPanel(video, player, { start = 0, end = video.duration_seconds } = {}) {
  const field = (name, value) =>
    h("input", { type: "number", name, min: 0, max: video.duration_seconds.toFixed(2), step: "any", value: value.toFixed(2), required: true });
  const [from, to] = [field("from", start), field("to", end)];
  const here = (input, text) =>
    h("button.button.button-quiet", { type: "button", onclick: () => (input.value = player.time.toFixed(2)) }, text);
  const button = h("button.button", {}, "Save as a file");
  const submit = (event) => {
    event.preventDefault();
    if (Number(from.value) < Number(to.value)) save(video.id, Number(from.value), Number(to.value), button);
    else toast("The end must come after the start.");
  };
  return h(
    "section.panel.cut-panel",
    { "aria-labelledby": "cut-title" },
    h("h2", { id: "cut-title" }, "Cut out a part"),
    h(
      "form",
      { onsubmit: submit },
      h("label.field", {}, h("span", {}, "From second"), from),
      here(from, "Start here"),
      h("label.field", {}, h("span", {}, "To second"), to),
      here(to, "End here"),
      button,
    ),
    h("p.note", {}, "Exact to the frame, without sound. The video itself stays as it is."),
  );
}
