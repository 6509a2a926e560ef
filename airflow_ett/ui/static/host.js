// One namespace for all files: they are joined in the order of pages.py and run in the head.
"use strict";
const ett = {};

(function () {
  // Airflow's window around the tab, or null where the page stands alone or must not look.
  ett.host = function () {
    try {
      return parent !== window && parent.document ? parent : null;
    } catch (denied) {
      return null;
    }
  };

  // What the browser keeps of a tab is optional: it may be switched off.
  ett.memory = {
    get(name) {
      try {
        return sessionStorage.getItem(name);
      } catch (denied) {
        return null;
      }
    },
    set(name, value) {
      try {
        sessionStorage.setItem(name, value);
      } catch (denied) {
        return;
      }
    },
  };

  // The frame's sandbox forbids it to navigate the top window and to open another one; a link in
  // the host's document may.
  ett.openInHost = function (href, event) {
    const link = (ett.host() || window).document.createElement("a");
    link.href = href;
    if (event && (event.ctrlKey || event.metaKey || event.shiftKey)) {
      link.target = "_blank";
      link.rel = "noopener";
    }
    link.click();
  };

  ett.all = (selector, within) => [...(within || document).querySelectorAll(selector)];

  ett.press = (button, on) => button.setAttribute("aria-pressed", String(on));
})();
