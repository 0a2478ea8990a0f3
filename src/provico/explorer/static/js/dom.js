// Elements, made without markup in strings: no value of the data can ever become HTML.

/** An element: `h("a.chip", {href: "/"}, "text", child)`. Listeners are `onclick`, styles are objects. */
export function h(name, attributes = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  return fill(document.createElement(tag), classes, attributes, children);
}

/** The same for SVG. */
export function svg(name, attributes = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), classes, attributes, children);
}

function fill(element, classes, attributes, children) {
  if (classes.length) element.classList.add(...classes);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "style")
      for (const [name, v] of Object.entries(value)) element.style.setProperty(name, v);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export const $ = (selector, within = document) => within.querySelector(selector);
export const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];

export function icon(name, size = 20) {
  return svg(
    "svg",
    { "aria-hidden": "true", width: size, height: size },
    svg("use", { href: `/static/icons.svg#${name}` }),
  );
}

/** Wait until nothing was called for a while. */
export function debounce(callback, milliseconds = 200) {
  let timer;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => callback(...args), milliseconds);
  };
}

export const prefersStill = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/** What stands where data should: nothing yet, nothing at all, or what went wrong. */
export function loading(text = "Loading…") {
  return h(
    "div.state.state-loading",
    { role: "status" },
    h("span.spinner", { "aria-hidden": "true" }),
    h("p", {}, text),
  );
}

export function empty(title, text, ...actions) {
  return h(
    "div.state.state-empty",
    {},
    icon("empty", 56),
    h("h2", {}, title),
    text ? h("p", {}, text) : null,
    ...actions,
  );
}

export function problem(error, retry) {
  return h(
    "div.state.state-problem",
    { role: "alert" },
    icon("problem", 40),
    h("h2", {}, error.message),
    error.hint ? h("p", {}, error.hint) : null,
    retry ? h("button.button", { type: "button", onclick: retry }, "Try again") : null,
  );
}
