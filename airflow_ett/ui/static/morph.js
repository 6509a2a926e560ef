// Turn the page as it stands into the one that the server sent, touching what differs alone: focus,
// scrolling, open details and drawn charts stay.
(function () {
  const element = (node) => node.nodeType === Node.ELEMENT_NODE;

  // What tells a node from its siblings, "" where nothing does.
  function keyOf(node) {
    if (!element(node)) return "";
    const name = node.id || node.getAttribute("aria-labelledby");
    if (name) return `${node.localName}#${name}`;
    const head = node.localName === "tr" && node.querySelector(":scope > th[scope=row]");
    return head ? `row ${head.textContent.trim()}` : "";
  }

  const alike = (one, other) =>
    one.nodeName === other.nodeName &&
    (!element(one) || one.getAttribute("class") === other.getAttribute("class"));

  // What the reader or the script has set since.
  function isOurs(node, attribute) {
    if (attribute === "open") return node.localName === "details";
    if (attribute === "class" || attribute === "role") return node.matches(".chart");
    return attribute === "aria-pressed" && node.matches("[data-group], [data-view], [data-range]");
  }

  function copyAttributes(node, wanted) {
    for (const { name } of [...node.attributes]) {
      if (!wanted.hasAttribute(name) && !isOurs(node, name)) node.removeAttribute(name);
    }
    for (const { name, value } of wanted.attributes) {
      if (node.getAttribute(name) !== value && !isOurs(node, name)) node.setAttribute(name, value);
    }
  }

  function find(from, wanted, key, byKey) {
    if (key) return byKey.get(key);
    let node = from;
    while (node && (keyOf(node) || !alike(node, wanted))) node = node.nextSibling;
    return node;
  }

  function copyChildren(node, wanted) {
    const keys = new Set([...wanted.children].map(keyOf));
    for (const child of [...node.children]) {
      const key = keyOf(child);
      if (key && !keys.has(key)) child.remove();
    }
    const byKey = new Map([...node.children].map((child) => [keyOf(child), child]));
    let at = node.firstChild;
    for (const child of [...wanted.childNodes]) {
      const key = keyOf(child);
      const match = find(at, child, key, byKey);
      if (!match) {
        node.insertBefore(document.importNode(child, true), at);
        continue;
      }
      byKey.delete(key);
      if (match === at) at = at.nextSibling;
      else node.insertBefore(match, at);
      if (element(match)) copy(match, child);
      else if (match.data !== child.data) match.data = child.data;
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  }

  function copy(node, wanted) {
    copyAttributes(node, wanted);
    // What stands in a chart is drawn; a browser with scripts reads noscript as text.
    if (node.matches(".chart, noscript") || node.isEqualNode(wanted)) return;
    copyChildren(node, wanted);
  }

  function pathOf(node, top) {
    const path = [];
    for (let here = node; here !== top; here = here.parentElement) {
      path.unshift([...here.parentElement.children].indexOf(here));
    }
    return path;
  }

  ett.morph = function (node, wanted) {
    const focused = node.contains(document.activeElement) ? document.activeElement : null;
    const path = focused && pathOf(focused, node);
    copy(node, wanted);
    if (!focused || document.activeElement === focused) return;
    const there = focused.isConnected
      ? focused
      : path.reduce((here, index) => here?.children[index], node);
    there?.focus({ preventScroll: true });
  };
})();
