// The address carries the state, so that a reload, a bookmark or a link to a colleague shows the same.

/** Of what a page may be told, the defaults; what differs from them is in the address. */
export class PageState {
  constructor(defaults) {
    this.defaults = defaults;
    this.read();
  }

  read() {
    const given = new URLSearchParams(location.search);
    this.values = Object.fromEntries(
      Object.entries(this.defaults).map(([key, value]) => [key, given.get(key) ?? value]),
    );
  }

  get(key) {
    return this.values[key];
  }

  number(key) {
    const value = this.values[key];
    return value === "" || Number.isNaN(Number(value)) ? null : Number(value);
  }

  /** Change some; `push` makes it a step that the back button undoes. */
  set(changes, { push = false } = {}) {
    for (const [key, value] of Object.entries(changes))
      this.values[key] = value === null ? "" : String(value);
    const differing = Object.entries(this.values).filter(([key, value]) => value !== this.defaults[key]);
    const search = new URLSearchParams(differing).toString();
    const url = search ? `${location.pathname}?${search}` : location.pathname;
    if (push) history.pushState(null, "", url);
    else history.replaceState(null, "", url);
  }

  /** Tie the fields of a form to the state by their names, and be told of changes. */
  bind(form, changed) {
    this.show(form);
    const read = (event) => {
      const { name, type, checked, value } = event.target;
      if (!(name in this.defaults)) return;
      this.set({ [name]: type === "checkbox" ? (checked ? "1" : "") : value });
      changed(name);
    };
    form.addEventListener("input", read);
    form.addEventListener("submit", (event) => event.preventDefault());
  }

  /** Let the fields of a form show the state. */
  show(form) {
    for (const field of form.elements) {
      if (!(field.name in this.defaults)) continue;
      if (field.type === "radio") field.checked = this.values[field.name] === field.value;
      else if (field.type === "checkbox") field.checked = this.values[field.name] === "1";
      else field.value = this.values[field.name];
    }
  }
}
