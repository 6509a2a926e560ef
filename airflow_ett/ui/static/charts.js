// Charts: drawn from a figure in the page or fetched once, zoomed, filtered by their legend.
(function () {
  const WITHOUT = "The chart needs JavaScript. The tables below have the same numbers.";
  const CONFIG = {
    displayModeBar: false, responsive: true, scrollZoom: false, doubleClick: false, showTips: false,
  };
  const fetched = new Map();
  const drawn = new WeakSet();
  const hidden = {};
  const views = {};
  const leaving = new AbortController();
  addEventListener("pagehide", (event) => event.persisted || leaving.abort());

  const REASONS = {
    401: "Your session has ended: sign in to Airflow again.",
    403: "You have no access to this Dag's runs.",
    404: "This job is not stored.",
    503: "The ETT% store does not answer.",
  };

  ett.fetchFigure = async function (src, signal = leaving.signal) {
    const answer = await fetch(src, { signal }).catch(() => {
      throw new Error("The server cannot be reached.");
    });
    if (answer.ok) return answer.text();
    throw new Error(REASONS[answer.status] || `The server answered ${answer.status}.`);
  };

  // A figure that was fetched beforehand, so that a live page is changed at one go.
  ett.giveFigure = (id, src, text) => fetched.set(id, { src, text });

  function say(element, text, button) {
    const words = document.createElement("p");
    words.textContent = text;
    if (button) words.append(button);
    // Nothing inside an image can be reached by keyboard.
    element.setAttribute("role", button ? "group" : "img");
    if (drawn.delete(element)) Plotly.purge(element);
    element.replaceChildren(words);
  }

  function sayFailed(element, problem) {
    const button = document.createElement("button");
    Object.assign(button, { type: "button", className: "btn", textContent: "Try again" });
    button.onclick = () => ett.drawChart(element);
    say(element, `The chart could not be loaded. ${problem.message}`, button);
  }

  async function figureOf(element) {
    const { id, dataset } = element;
    if (!dataset.src) return document.getElementById(id + "-fig").textContent;
    if (fetched.get(id)?.src !== dataset.src) {
      const late = setTimeout(() => say(element, "Loading the chart…"), 200);
      try {
        ett.giveFigure(id, dataset.src, await ett.fetchFigure(dataset.src));
      } finally {
        clearTimeout(late);
      }
    }
    return fetched.get(id).text;
  }

  ett.drawChart = async function (element) {
    try {
      const text = await figureOf(element);
      await ett.scripts;
      if (window.Plotly) paint(element, JSON.parse(text));
      else say(element, WITHOUT);
    } catch (problem) {
      if (!leaving.signal.aborted) sayFailed(element, problem);
    }
  };

  function paint(element, figure) {
    const { id } = element;
    const first = !drawn.has(element);
    const { data, layout } = ett.prepare(figure, hidden[id] || {}, views[id]?.ranges || {});
    if (first) element.replaceChildren();
    element.setAttribute("role", "img");
    element.classList.toggle("linked", Boolean(layout.meta?.links));
    Plotly.react(element, data, layout, CONFIG);
    if (!first) return;
    drawn.add(element);
    element.on("plotly_click", (event) => followBar(element, event));
    element.on("plotly_relayout", (change) => noteZoom(id, change));
    element.on("plotly_doubleclick", () => resetZoom(id));
    reveal(element);
  }

  // A chart with many rows scrolls inside its box. The newest attempt is the last.
  function reveal(element, top) {
    const tall = element.closest(".tall");
    if (tall) tall.scrollTop = top === undefined ? tall.scrollHeight : top - tall.clientHeight / 2;
  }

  ett.drawAll = async function () {
    await Promise.all(ett.all(".chart").map(ett.drawChart));
    document.body.dataset.ready = "1";
  };

  function redraw(id) {
    const element = document.getElementById(id);
    if (element) ett.drawChart(element);
  }

  // Plotly takes the end of a drag for a click, too.
  let begun = null;
  let dragged = false;
  document.addEventListener("pointerdown", (event) => (begun = event), true);
  document.addEventListener("pointerup", ({ clientX: x, clientY: y }) => {
    dragged = begun !== null && Math.hypot(x - begun.clientX, y - begun.clientY) > 8;
  }, true);

  function followBar(element, { points, event }) {
    if (dragged) return;
    const links = element.layout.meta?.links;
    const point = points.find(({ data }) => data.type === "bar");
    const link = point && links?.[point.pointNumber];
    if (link) ett.openInHost(new URL(link, location.href).href, event);
  }

  const presets = (id) => ett.all(`[data-range][data-for="${id}"], [data-for="${id}"] > option[data-range]`);

  // `label` is the chosen preset's, null where the reader dragged, undefined for the first one.
  function showPreset(id, label) {
    presets(id).forEach((preset, index) => {
      const on = label === undefined ? index === 0 : preset.textContent === label;
      if (preset.localName === "button") ett.press(preset, on);
      else preset.selected = on;
    });
    const select = document.querySelector(`select[data-for="${id}"]`);
    if (select && label === null) select.selectedIndex = -1;
  }

  function rangesOf({ dataset }) {
    const ranges = { xaxis: JSON.parse(dataset.range) };
    if (dataset.yrange) ranges.yaxis = JSON.parse(dataset.yrange);
    return ranges;
  }

  function choosePreset(id, preset) {
    views[id] = { label: preset.textContent, ranges: rangesOf(preset) };
    showPreset(id, preset.textContent);
    redraw(id);
    reveal(document.getElementById(id), preset.dataset.top);
  }

  function noteZoom(id, change) {
    const axes = ["xaxis", "xaxis2"].filter((axis) => change[axis + ".range[0]"] !== undefined);
    if (!axes.length) return;
    const ranges = { ...views[id]?.ranges };
    for (const axis of axes) {
      ranges[axis] = [change[axis + ".range[0]"], change[axis + ".range[1]"]];
    }
    views[id] = { label: null, ranges };
    showPreset(id, null);
  }

  function resetZoom(id) {
    delete views[id];
    showPreset(id, undefined);
    redraw(id);
  }

  // After a live page has changed: a preset's range may have moved, and what is pressed is ours.
  ett.keepViews = function () {
    for (const [id, view] of Object.entries(views)) {
      const preset = view.label && presets(id).find(({ textContent }) => textContent === view.label);
      if (preset) view.ranges = rangesOf(preset);
      showPreset(id, view.label);
    }
    for (const [id, groups] of Object.entries(hidden)) {
      for (const [group, off] of Object.entries(groups)) showGroup(id, group, off);
    }
  };

  function showGroup(id, group, off) {
    const item = document.querySelector(`.legend[data-for="${id}"] [data-group="${CSS.escape(group)}"]`);
    if (item) ett.press(item, !off);
    if (group !== "effective") return;
    for (const button of ett.all(`[data-view][data-for="${id}"]`)) {
      ett.press(button, (button.dataset.view === "losses") === off);
    }
  }

  function toggle(id, group, off) {
    (hidden[id] ||= {})[group] = off;
    showGroup(id, group, off);
    redraw(id);
  }

  document.addEventListener("click", ({ target }) => {
    const button = target.closest?.("button");
    const legend = button?.closest(".legend[data-for]");
    if (legend && button.dataset.group) {
      toggle(legend.dataset.for, button.dataset.group, button.getAttribute("aria-pressed") === "true");
    } else if (button?.dataset.view) {
      toggle(button.dataset.for, "effective", button.dataset.view === "losses");
    } else if (button?.dataset.range) {
      choosePreset(button.dataset.for, button);
    }
  });

  document.addEventListener("change", ({ target }) => {
    if (!target.matches("select[data-for]")) return;
    const [preset] = target.selectedOptions;
    if (preset?.dataset.range) choosePreset(target.dataset.for, preset);
  });
})();
