// Theme, charts, legends and links. A figure names its colours as "$token"; the token is a CSS
// variable that is read when the figure is drawn, so one figure serves both themes.
(function () {
  "use strict";
  const root = document.documentElement;

  function host() {
    try {
      return parent === window ? null : parent.document;
    } catch (denied) {
      return null;
    }
  }

  function isDark() {
    const classes = host()?.documentElement.classList;
    if (classes?.contains("dark")) return true;
    if (classes?.contains("light")) return false;
    return matchMedia("(prefers-color-scheme: dark)").matches;
  }

  function applyTheme() {
    const was = root.classList.contains("dark");
    root.classList.toggle("dark", isDark());
    return was !== isDark();
  }

  // In the head, so that the first paint has the right colours.
  applyTheme();

  // Only under a key that names a colour: a run may be called "$bg".
  function resolve(value, style, key) {
    if (typeof value === "string") {
      const token = /color$/.test(key) && value[0] === "$";
      return token ? style.getPropertyValue("--" + value.slice(1)).trim() : value;
    }
    if (Array.isArray(value)) return value.map((item) => resolve(item, style, key));
    if (value && typeof value === "object") {
      return Object.fromEntries(
        Object.entries(value).map(([name, item]) => [name, resolve(item, style, name)]),
      );
    }
    return value;
  }

  function merge(base, over) {
    const isObject = (value) => value && typeof value === "object" && !Array.isArray(value);
    const result = { ...base };
    for (const [key, value] of Object.entries(over)) {
      result[key] = isObject(value) && isObject(base[key]) ? merge(base[key], value) : value;
    }
    return result;
  }

  const AXIS = {
    gridcolor: "$grid", linecolor: "$border-strong", zerolinecolor: "$border-strong",
    tickcolor: "$border-strong", tickfont: { color: "$fg-muted", size: 12 },
    fixedrange: true, showspikes: false,
  };
  const SPIKE = { showspikes: true, spikecolor: "$border-strong", spikethickness: 1, spikedash: "solid" };
  const CONFIG = { displayModeBar: false, responsive: true, scrollZoom: false };
  const hidden = {};

  function baseLayout(font) {
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, dragmode: false,
      font: { family: font, size: 12, color: "$fg-muted" },
      hoverlabel: {
        bgcolor: "$bg", bordercolor: "$border-strong", align: "left", namelength: -1,
        font: { family: font, size: 12, color: "$fg" },
      },
    };
  }

  // Losses only: the scale follows the losses, and runs without ETT% have none to show.
  function lossesOnly(figure) {
    const unknown = new Set(figure.layout.meta.unknown);
    for (const trace of figure.data) {
      if (trace.type === "bar") trace.y = trace.y.map((y, index) => (unknown.has(index) ? null : y));
    }
    figure.layout.yaxis = {
      domain: figure.layout.yaxis.domain, autorange: true, rangemode: "tozero",
      ticksuffix: "%", zeroline: false, nticks: 6,
    };
  }

  function prepare(id, font) {
    const figure = JSON.parse(document.getElementById(id + "-fig").textContent);
    const off = hidden[id] || {};
    for (const trace of figure.data) if (off[trace.legendgroup]) trace.visible = false;
    if (off.effective) lossesOnly(figure);
    for (const name of Object.keys(figure.layout)) {
      if (/^[xy]axis/.test(name)) figure.layout[name] = merge(AXIS, figure.layout[name]);
    }
    figure.layout.xaxis = merge(figure.layout.xaxis, SPIKE);
    figure.layout = merge(baseLayout(font), figure.layout);
    return figure;
  }

  function draw() {
    if (typeof Plotly === "undefined") return;
    const style = getComputedStyle(root);
    const font = getComputedStyle(document.body).fontFamily;
    for (const element of document.querySelectorAll(".chart")) {
      element.querySelector("p")?.remove();
      const figure = prepare(element.id, font);
      Plotly.react(element, resolve(figure.data, style, ""), resolve(figure.layout, style, ""), CONFIG);
    }
    document.body.dataset.ready = "1";
  }

  function press(button, on) {
    button.setAttribute("aria-pressed", String(on));
  }

  function toggle(id, group, off) {
    (hidden[id] ||= {})[group] = off;
    press(document.querySelector(`.legend[data-for="${id}"] [data-group="${group}"]`), !off);
    if (group === "effective") {
      for (const button of document.querySelectorAll(`[data-view][data-for="${id}"]`)) {
        press(button, (button.dataset.view === "losses") === off);
      }
    }
    draw();
  }

  // The frame's sandbox forbids it to navigate the top window; a link in the host's document may.
  function openInHost(event) {
    const outside = host();
    if (!outside || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const link = outside.createElement("a");
    link.href = event.currentTarget.href;
    link.click();
  }

  function wire() {
    for (const button of document.querySelectorAll(".legend button")) {
      const id = button.closest(".legend").dataset.for;
      button.onclick = () => toggle(id, button.dataset.group, button.getAttribute("aria-pressed") === "true");
    }
    for (const button of document.querySelectorAll("[data-view]")) {
      button.onclick = () => toggle(button.dataset.for, "effective", button.dataset.view === "losses");
    }
    for (const select of document.querySelectorAll("form select")) {
      select.onchange = () => select.form.requestSubmit();
    }
    for (const link of document.querySelectorAll("a[target=_top]")) link.onclick = openInHost;
  }

  addEventListener("DOMContentLoaded", () => {
    wire();
    draw();
    const follow = () => applyTheme() && draw();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", follow);
    const outside = host();
    if (outside) {
      new MutationObserver(follow).observe(outside.documentElement, {
        attributes: true, attributeFilter: ["class"],
      });
    }
  });
})();
