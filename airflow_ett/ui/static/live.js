// A page with a job that goes on asks whether there is something new, and then for itself.
(function () {
  const SELDOM_MS = 60_000;
  const PATIENCE_MS = 30_000;
  const GONE = [401, 403];
  let timer = null;
  let leaving = new AbortController();
  let failures = 0;
  let shown = "";

  const patience = () => AbortSignal.any([leaving.signal, AbortSignal.timeout(PATIENCE_MS)]);

  async function ask(url) {
    const answer = await fetch(url, { signal: patience(), cache: "no-store" });
    if (!answer.ok && !GONE.includes(answer.status)) throw new Error(String(answer.status));
    return answer;
  }

  async function beat() {
    const { pulse, version } = document.body.dataset;
    const answer = await ask(pulse);
    const known = answer.ok ? await answer.json() : null;
    if (!known || known.version !== version) await renew();
    if (known) document.body.dataset.at = known.at;
  }

  // The figures come before anything changes: no chart is empty in between.
  async function renew() {
    const answer = await ask(location.href);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const main = page.querySelector("main");
    if (!main) throw new Error("no page");
    const charts = ett.all(".chart[data-src]", main).map(({ id, dataset: { src } }) => ({ id, src }));
    const signal = patience();
    const texts = await Promise.all(charts.map(({ src }) => ett.fetchFigure(src, signal)));
    charts.forEach(({ id, src }, index) => ett.giveFigure(id, src, texts[index]));
    show(page, main);
  }

  function show(page, main) {
    for (const name of ["pulse", "version", "every"]) {
      if (page.body.dataset[name] === undefined) delete document.body.dataset[name];
      else document.body.dataset[name] = page.body.dataset[name];
    }
    document.title = page.title;
    if (main.innerHTML === shown) return;
    shown = main.innerHTML;
    ett.morph(document.querySelector("main"), main);
    ett.keepViews();
    ett.drawAll();
  }

  function sayStale() {
    const { at } = document.body.dataset;
    let words = document.querySelector(".stale");
    if (!words) {
      words = document.createElement("span");
      words.className = "stale";
      words.setAttribute("role", "status");
      const place = document.querySelector(".facts, form.bar") || document.querySelector("main");
      place.append(words);
    }
    words.textContent = `Last updated ${at}; trying again.`;
  }

  async function turn() {
    leaving = new AbortController();
    const { signal } = leaving;
    try {
      await beat();
      failures = 0;
      document.querySelector(".stale")?.remove();
    } catch (problem) {
      if (signal.aborted) return;
      failures += 1;
      sayStale();
    }
    wait();
  }

  function wait() {
    clearTimeout(timer);
    if (document.hidden || !document.body.dataset.pulse) return;
    const everyMs = 1_000 * document.body.dataset.every;
    timer = setTimeout(turn, Math.min(everyMs * 2 ** failures, SELDOM_MS));
  }

  ett.live = function () {
    shown = document.querySelector("main").innerHTML;
    wait();
    document.addEventListener("visibilitychange", () => {
      clearTimeout(timer);
      leaving.abort();
      if (!document.hidden && document.body.dataset.pulse) turn();
    });
    addEventListener("pagehide", () => leaving.abort());
  };
})();
