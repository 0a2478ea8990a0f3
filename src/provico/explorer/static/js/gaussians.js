// The clips of a video as the encoder sees them: Gaussians on the axes of the map.
import { h, svg } from "./dom.js";
import { inMinutes, number } from "./format.js";

const SCALES = [1, 2, 5, 10, 20, 50, 100];

/** Circles around the means; `pick(clip)` when one is chosen, `point(clip | null)` when one is pointed at. */
export function gaussians(clips, { pick, point }) {
  const placed = clips.filter((clip) => Number.isFinite(clip.x) && Number.isFinite(clip.y));
  if (!placed.length) return h("p.note", {}, "The clips are not on the map yet.");
  // So many standard deviations that the widest circle can be seen beside the distances.
  const extent = Math.max(
    ...["x", "y"].map(
      (axis) => Math.max(...placed.map((clip) => clip[axis])) - Math.min(...placed.map((clip) => clip[axis])),
    ),
  );
  const widest = Math.max(...placed.map((clip) => clip.radius));
  const scale = SCALES.find((factor) => factor * widest >= extent / 16) ?? SCALES.at(-1);
  const sides = ["x", "y"].map((axis) => {
    const low = Math.min(...placed.map((clip) => clip[axis] - scale * clip.radius));
    const high = Math.max(...placed.map((clip) => clip[axis] + scale * clip.radius));
    return { middle: (low + high) / 2, half: (high - low) / 2 };
  });
  const half = 1.15 * Math.max(sides[0].half, sides[1].half, 1e-9);
  const place = (clip) => ({
    cx: 50 + (50 * (clip.x - sides[0].middle)) / half,
    cy: 50 - (50 * (clip.y - sides[1].middle)) / half,
    r: (50 * scale * clip.radius) / half,
  });
  // The widest first, so that no circle hides another.
  const order = placed.map((clip) => [clip, clips.indexOf(clip) + 1]).sort(([a], [b]) => b.radius - a.radius);
  const path = placed
    .map((clip) => {
      const { cx, cy } = place(clip);
      return `${cx},${cy}`;
    })
    .join(" ");
  const picture = svg(
    "svg.gaussians",
    {
      viewBox: "0 0 100 100",
      role: "group",
      "aria-label": "The clips as Gaussians; wider circles are more uncertain clips",
    },
    svg("polyline.path", { points: path }),
    ...order.map(([clip, number_]) => {
      const { cx, cy, r } = place(clip);
      const name = `Clip ${number_}, ${inMinutes(clip.start_seconds)}–${inMinutes(clip.end_seconds)}, uncertainty ${number(clip.uncertainty)}`;
      return svg(
        "g.gaussian",
        {
          tabindex: 0,
          role: "button",
          "aria-label": name,
          onclick: () => pick(clip),
          onkeydown: (event) => {
            if (event.key === "Enter" || event.key === " ") {
              event.preventDefault();
              pick(clip);
            }
          },
          onpointerenter: () => point(clip),
          onpointerleave: () => point(null),
          onfocus: () => point(clip),
          onblur: () => point(null),
        },
        svg("title", {}, name),
        svg("circle", { cx, cy, r }),
        svg("circle.mean", { cx, cy, r: 0.9 }),
        svg("text", { x: cx + 2, y: cy - 1.5, "aria-hidden": "true" }, String(number_)),
      );
    }),
  );
  const name = scale === 1 ? "one standard deviation" : `${scale} standard deviations`;
  return h(
    "div",
    {},
    picture,
    h("p.note", {}, `Circles show ${name}, in order of time; choose one to go to its clip.`),
  );
}
