// Controls that submit themselves, and links that leave the frame.
(function () {
  let typed = null;

  function submit(field) {
    typed = null;
    if (!field.form.reportValidity()) return;
    ett.memory.set("ett-focus", field.name);
    field.form.requestSubmit();
  }

  document.addEventListener("change", ({ target }) => {
    if (!target.form?.matches("form.bar")) return;
    // A date changes with every digit that is typed.
    if (typed === target) return;
    submit(target);
  });
  document.addEventListener("keydown", ({ target, key }) => {
    if (target.type !== "date" || !target.form) return;
    if (key === "Enter") typed = null;
    else if (key !== "Tab") typed = target;
  });
  document.addEventListener("pointerdown", () => (typed = null));
  document.addEventListener("focusout", ({ target }) => {
    if (typed === target && target.value !== target.defaultValue) submit(target);
  });

  // Whoever goes back sees the choice that made the page, not the one that left it.
  addEventListener("pageshow", () => ett.all("form.bar").forEach((form) => form.reset()));

  // An address names what was chosen and nothing else.
  document.addEventListener("formdata", ({ formData }) => {
    for (const [name, value] of [...formData]) if (!value) formData.delete(name);
  });

  // The page comes anew with each choice: whoever goes through the controls by keyboard stays there.
  ett.refocus = function () {
    const name = ett.memory.get("ett-focus");
    ett.memory.set("ett-focus", "");
    if (name) document.querySelector(`form.bar [name="${CSS.escape(name)}"]`)?.focus({ preventScroll: true });
  };

  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[target=_top]");
    if (!link || event.button !== 0 || !ett.host()) return;
    event.preventDefault();
    ett.openInHost(link.href, event);
  });
})();
