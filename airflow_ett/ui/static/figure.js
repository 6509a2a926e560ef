// From a figure as the server made it to what plotly draws. Pure but for reading the style sheet.
(function () {
  const AXIS = {
    gridcolor: "$grid", linecolor: "$border-strong", zerolinecolor: "$border-strong",
    tickcolor: "$border-strong", tickfont: { color: "$fg-muted", size: 12 },
    title: { font: { color: "$fg-muted", size: 12 } }, fixedrange: true, showspikes: false,
  };
  const SPIKE = { showspikes: true, spikecolor: "$border-strong", spikethickness: 1, spikedash: "solid" };

  function baseLayout(font) {
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, dragmode: false,
      margin: { l: 48, r: 16, t: 8, b: 32 },
      font: { family: font, size: 12, color: "$fg-muted" },
      hoverlabel: {
        bgcolor: "$bg", bordercolor: "$border-strong", align: "left", namelength: -1,
        font: { family: font, size: 12, color: "$fg" },
      },
    };
  }

  const isObject = (value) => value && typeof value === "object" && !Array.isArray(value);

  function merge(base, over) {
    const result = { ...base };
    for (const [key, value] of Object.entries(over)) {
      result[key] = isObject(value) && isObject(base[key]) ? merge(base[key], value) : value;
    }
    return result;
  }

  // Only under a key that names colours: a run may be called "$bg".
  function resolve(value, style, key) {
    if (typeof value === "string") {
      const token = /colors?$/.test(key) && value[0] === "$";
      return token ? style.getPropertyValue("--" + value.slice(1)).trim() : value;
    }
    if (Array.isArray(value)) return value.map((item) => resolve(item, style, key));
    if (isObject(value)) {
      return Object.fromEntries(
        Object.entries(value).map(([name, item]) => [name, resolve(item, style, name)]),
      );
    }
    return value;
  }

  // Losses only: the scale follows the losses, and runs without ETT% have none to show.
  function lossesOnly(figure) {
    const unknown = new Set(figure.layout.meta?.unknown);
    for (const trace of figure.data) {
      if (trace.type === "bar") trace.y = trace.y.map((y, index) => (unknown.has(index) ? null : y));
    }
    figure.layout.yaxis = {
      domain: figure.layout.yaxis.domain, autorange: true, rangemode: "tozero",
      ticksuffix: "%", zeroline: false, nticks: 6,
    };
    // The objective is one of the whole.
    delete figure.layout.shapes;
    delete figure.layout.annotations;
  }

  function zoomTo(layout, view) {
    for (const [name, range] of Object.entries(view)) {
      if (range && layout[name]) layout[name] = { ...layout[name], range, autorange: false };
    }
  }

  // `off` are the legend's groups that are hidden, `view` the ranges that the reader has chosen.
  ett.prepare = function (figure, off, view) {
    for (const trace of figure.data) if (off[trace.legendgroup]) trace.visible = false;
    if (off.effective && figure.layout.yaxis) lossesOnly(figure);
    const style = getComputedStyle(document.documentElement);
    let layout = merge(baseLayout(getComputedStyle(document.body).fontFamily), figure.layout);
    for (const name of Object.keys(layout)) {
      if (/^[xy]axis/.test(name)) layout[name] = merge(AXIS, layout[name]);
    }
    if (layout.hovermode === "x unified") {
      layout.xaxis = merge(layout.xaxis || AXIS, SPIKE);
      // Plotly draws a halo of this colour around the line, white where it is transparent.
      layout.plot_bgcolor = "$bg";
    }
    if (layout.meta?.zoom) {
      layout.dragmode = "zoom";
      for (const name of Object.keys(layout)) if (/^xaxis/.test(name)) layout[name].fixedrange = false;
    }
    zoomTo(layout, view);
    return { data: resolve(figure.data, style, ""), layout: resolve(layout, style, "") };
  };
})();
