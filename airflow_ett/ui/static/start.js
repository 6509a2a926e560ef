// When the page stands: before the chart script has come, so that controls answer at once.
(function () {
  ett.scripts = new Promise((done) => addEventListener("DOMContentLoaded", done, { once: true }));

  document.addEventListener("readystatechange", () => {
    if (document.readyState !== "interactive") return;
    ett.live();
    ett.refocus();
    ett.drawAll();
    ett.followTheme(ett.drawAll);
  });
})();
