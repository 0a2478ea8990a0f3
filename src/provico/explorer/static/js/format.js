// Numbers as people read them.

/** 0:07.5 or 1:02:03.0, as on the command line. */
export function inMinutes(seconds, digits = 1) {
  const rounded = Number(seconds.toFixed(digits));
  const hours = Math.floor(rounded / 3600);
  const minutes = Math.floor((rounded % 3600) / 60);
  const rest = (rounded % 60).toFixed(digits).padStart(digits ? 3 + digits : 2, "0");
  return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${rest}` : `${minutes}:${rest}`;
}

/** Three figures, and no long tails of zeros. */
export function number(value) {
  if (value === null || value === undefined) return "–";
  if (value !== 0 && Math.abs(value) < 0.001) return value.toExponential(1);
  return Number(value.toPrecision(3)).toLocaleString("en");
}

/** A probability, never rounded to certainty. */
export function percent(probability) {
  if (probability > 0.995 && probability < 1) return ">99%";
  if (probability < 0.005 && probability > 0) return "<1%";
  return `${Math.round(probability * 100)}%`;
}

export const count = (value) => value.toLocaleString("en");
export const plural = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

export function bytes(value) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  const power = value > 0 ? Math.min(4, Math.floor(Math.log(value) / Math.log(1024))) : 0;
  return `${Number((value / 1024 ** power).toPrecision(3))} ${units[power]}`;
}

/** How long something takes, roughly: "40 s", "3 min", "2 h". */
export function about(seconds) {
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${number(seconds / 3600)} h`;
}
