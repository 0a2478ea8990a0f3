// Light or dark: what the system says, unless the reader has chosen; the choice is kept in this browser.
(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => {
    try {
      return localStorage.getItem("theme");
    } catch {
      return null;
    } // a browser may refuse storage
  };
  const apply = () => {
    const theme = stored() ?? (system.matches ? "dark" : "light");
    root.dataset.theme = theme;
    document.dispatchEvent(new CustomEvent("themechange", { detail: theme }));
  };
  apply();
  system.addEventListener("change", apply);
  addEventListener("storage", apply); // another tab has chosen
  document.addEventListener("click", (event) => {
    if (!event.target.closest?.("#theme-button")) return;
    const theme = root.dataset.theme === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("theme", theme);
    } catch {
      /* then it lasts as long as the page */
    }
    root.dataset.theme = theme;
    document.dispatchEvent(new CustomEvent("themechange", { detail: theme }));
  });
})();
