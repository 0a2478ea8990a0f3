// All that the page asks of the server; /api/openapi.json describes it.

/** What the server refused, in its own words. */
export class ApiError extends Error {
  constructor(status, { code = "error", message, hint = null }) {
    super(message);
    Object.assign(this, { status, code, hint });
  }
}

function offline(error) {
  if (error.name === "AbortError") throw error;
  throw new ApiError(0, {
    code: "offline",
    message: "The explorer does not answer.",
    hint: "Is `provico open` or `provico serve` still running?",
  });
}

async function request(path, options = {}) {
  const response = await fetch(path, { credentials: "same-origin", ...options }).catch(offline);
  if (response.ok) return response.json().catch(offline); // which may end while it answers
  const body = await response.json().catch(() => null);
  throw new ApiError(
    response.status,
    body?.error ?? { message: `The server answered with ${response.status}.` },
  );
}

/** A query string of what is set. */
export function query(values) {
  const pairs = Object.entries(values).filter(
    ([, value]) => value !== null && value !== undefined && value !== "",
  );
  return new URLSearchParams(pairs).toString();
}

const get = (path, values = {}, options = {}) => request(`${path}?${query(values)}`, options);
// The header is one that a foreign page cannot send, so that it cannot change anything here.
const post = (path, body, options = {}) =>
  request(path, {
    method: "POST",
    headers:
      body instanceof FormData
        ? { "X-ProViCo": "1" }
        : { "X-ProViCo": "1", "Content-Type": "application/json" },
    body: body instanceof FormData ? body : JSON.stringify(body),
    ...options,
  });

export const api = {
  stats: async () => {
    const stats = await get("/api/stats");
    const notice = document.querySelector("#trouble");
    notice.textContent = stats.trouble ?? "";
    notice.hidden = !stats.trouble;
    return stats;
  },
  videos: (values, options) => get("/api/videos", values, options),
  video: (id, options) => get("/api/video", { id }, options),
  search: (values, options) => get("/api/search", values, options),
  searchWords: (text, { k, like, unlike }, options) =>
    get("/api/search/words", { text, k, like, unlike }, options),
  searchFile: (file, values, options) => {
    const form = new FormData();
    form.append("file", file);
    for (const [key, value] of Object.entries(values))
      if (value !== "" && value != null) form.append(key, value);
    return post("/api/search", form, options);
  },
  map: (dim) => get("/api/map", { dim }),
  runs: () => get("/api/runs"),
  metrics: (name, after) => get(`/api/runs/${encodeURIComponent(name)}/metrics`, { after }),
  reports: () => get("/api/reports"),
  work: () => get("/api/work"),
  doWork: (what) => post("/api/work", { do: what }),
  overview: () => get("/api/overview"),
  duplicates: (values) => get("/api/duplicates", values),
  reject: (pairs, rejected = true) => post("/api/duplicates/rejections", { pairs, rejected }),
  actions: () => get("/api/actions"),
  act: (action) => post("/api/actions", action),
  undoAction: (revision) => post("/api/actions/undo", { revision }),
  judgements: (query) => get("/api/judgements", { query }),
  judge: (judgement) => post("/api/judgements", judgement),
  undoJudgement: (revision) => post("/api/judgements/undo", { revision }),
  judgeFirst: (limit) => get("/api/judgements/first", { limit }),
  curation: (values) => get("/api/curation", values),
  decide: (decision) => post("/api/curation/decisions", decision),
  undo: (revision) => post("/api/curation/undo", { revision }),
};

/** Where one frame of a video is shown. */
export const frameUrl = (id, seconds, height = 240) =>
  `/media/frame?${query({ id, seconds: Math.max(0, seconds).toFixed(2), height })}`;
export const cutUrl = (id, start, end) =>
  `/media/cut?${query({ id, start: start.toFixed(3), seconds: (end - start).toFixed(3) })}`;
export const videoUrl = (id, seconds) =>
  `/video?${query({ id, t: seconds === undefined ? null : seconds.toFixed(2) })}`;
export const browseUrl = (values = {}) => `/browse?${query(values)}`;
export const searchUrl = (id, values = {}) => `/search?${query({ id, ...values })}`;
