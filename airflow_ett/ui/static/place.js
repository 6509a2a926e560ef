// Where the reader is: the time zone that is chosen in Airflow, and the view in Airflow's address.
(function () {
  const root = document.documentElement;

  // Airflow keeps its zone as JSON. Null where there is none to follow.
  function chosenZone() {
    try {
      const kept = ett.host()?.localStorage.getItem("timezone");
      if (kept === undefined) return null;
      const zone = kept === null ? "UTC" : JSON.parse(kept);
      return typeof zone === "string" && zone ? zone : "UTC";
    } catch (unreadable) {
      return null;
    }
  }

  // The server reads the zone from a cookie. It is asked once for each: a browser without cookies,
  // or a zone that the server doesn't know, must not reload for ever.
  function followZone() {
    const zone = chosenZone();
    if (zone === null || root.dataset.zone === undefined) return false;
    if (zone === root.dataset.zone) {
      ett.memory.set("ett-zone", "");
      return false;
    }
    if (ett.memory.get("ett-zone") === zone) return false;
    const cookie = "ett_zone=" + encodeURIComponent(zone);
    const path = /^.*?\/ett(?=\/)/.exec(location.pathname)?.[0] || "/";
    document.cookie = `${cookie}; path=${path}; SameSite=Lax`;
    if (!document.cookie.split("; ").includes(cookie)) return false;
    ett.memory.set("ett-zone", zone);
    return true;
  }

  // The tab of a Dag, run or task around this page. What Airflow asked for (`given`) stands in its
  // own address already. It mirrors the pages of its menu itself.
  function tab() {
    const host = ett.host();
    try {
      const frame = window.frameElement;
      if (!host || !/\/dags\/.+\/plugin\/[^/]+\/?$/.test(host.location.pathname)) return null;
      const given = new URL(frame.src);
      return given.pathname === location.pathname ? { host, frame, given } : null;
    } catch (denied) {
      return null;
    }
  }

  function without(query, given) {
    const found = new URLSearchParams();
    for (const [name, value] of new URLSearchParams(query)) {
      if (!given.searchParams.has(name)) found.append(name, value);
    }
    return found;
  }

  // Once per tab: afterwards the reader's own choices count. Returns the query to go to, or null.
  function keptQuery({ host, frame, given }) {
    if (frame.dataset.ettSeen === host.location.pathname) return null;
    frame.dataset.ettSeen = host.location.pathname;
    const kept = new URLSearchParams(host.location.search).get("ett");
    if (kept === null) return null;
    const wanted = new URLSearchParams(given.search);
    for (const [name, value] of without(kept, given)) wanted.append(name, value);
    const same = wanted.toString() === new URLSearchParams(location.search).toString();
    return same ? null : wanted.toString();
  }

  function mirror({ host, given }) {
    const own = without(location.search, given).toString();
    const url = new URL(host.location.href);
    if ((url.searchParams.get("ett") ?? "") === own) return;
    if (own) url.searchParams.set("ett", own);
    else url.searchParams.delete("ett");
    // Airflow's router keeps its own things in the state.
    host.history.replaceState(host.history.state, "", url);
  }

  // In the head: a page that is about to be left is not painted.
  function arrive() {
    const zoneIsNew = followZone();
    const here = tab();
    const query = here && keptQuery(here);
    if (query === null && zoneIsNew) location.reload();
    else if (query !== null) location.replace(location.pathname + (query && "?" + query));
    if (query !== null || zoneIsNew) root.style.visibility = "hidden";
    else if (here) mirror(here);
  }

  try {
    arrive();
  } catch (denied) {
    root.style.visibility = "";
  }

  const followLater = () => followZone() && location.reload();
  addEventListener("storage", (event) => event.key === "timezone" && followLater());
  document.addEventListener("visibilitychange", () => document.hidden || followLater());
})();
