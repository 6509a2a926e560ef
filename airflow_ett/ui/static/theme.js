// The theme is Airflow's, a page of its own follows the system's. Paper is always light.
(function () {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const paper = matchMedia("print");

  function isDark() {
    if (paper.matches) return false;
    const classes = ett.host()?.document.documentElement.classList;
    if (classes?.contains("dark")) return true;
    if (classes?.contains("light")) return false;
    return system.matches;
  }

  function apply() {
    const was = root.classList.contains("dark");
    const is = isDark();
    root.classList.toggle("dark", is);
    return was !== is;
  }

  // In the head, so that the first paint has the right colours.
  apply();

  ett.followTheme = function (changed) {
    const follow = () => apply() && changed();
    system.addEventListener("change", follow);
    paper.addEventListener("change", follow);
    const host = ett.host();
    if (!host) return;
    const seen = new MutationObserver(follow);
    seen.observe(host.document.documentElement, { attributes: true, attributeFilter: ["class"] });
    addEventListener("pagehide", (event) => event.persisted || seen.disconnect());
  };
})();
