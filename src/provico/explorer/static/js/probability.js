// What may be said of a hit: a percentage only where it is known how often such hits are right; else how many
// unrelated videos are expected to match as well.
import { number, percent } from "./format.js";

const isKnown = (value) => value !== null && value !== undefined;

const isSaid = (answer, name, without) =>
  answer.hits.length ? answer.hits.every((hit) => isKnown(hit[name])) : Boolean(without);

export const isCalibrated = (answer) => isSaid(answer, "calibrated_probability", answer.calibration);

export const knowsChance = (answer) => isSaid(answer, "expected_by_chance", answer.chance);

/** As short as it can be said; nothing where nothing is known. */
export function hitText(hit) {
  if (isKnown(hit.calibrated_probability)) return percent(hit.calibrated_probability);
  return isKnown(hit.expected_by_chance) ? `${number(hit.expected_by_chance)} by chance` : "";
}

/** Whether a hit stands out from chance, and is right as often as is asked for; what is unknown is no reason. */
export const standsOut = (hit, most) => !isKnown(hit.expected_by_chance) || hit.expected_by_chance <= most;
export const isRightEnough = (hit, least) => (hit.calibrated_probability ?? 1) >= least;

/** What the numbers of the hits are. */
export function whatIsSaid(answer) {
  if (isCalibrated(answer)) return "How often such hits are right";
  if (knowsChance(answer)) return "Unrelated videos expected to match as well by chance";
  return "Too few videos to say how surprising a match is";
}
