"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const one = (selector) => document.querySelector(selector);
  const search = one("#q"), told = one("#told"), chips = all(".chip"), help = one("#help");
  const hosts = all(".host"), rows = new Map(all("tr[data-host]").map((row) => [row.dataset.host, row]));
  const findings = new Map(hosts.map((host) => [host, all("[data-status]", host)]));
  const words = new Map();
  const text = (item) => {
    if (!words.has(item)) words.set(item, item.textContent.toLowerCase());
    return words.get(item);
  };
  const name = (host) => `${text(host.querySelector("h2"))} ${host.querySelector(".facts").textContent.toLowerCase()}`;
  const wanted = () => chips.filter((chip) => chip.getAttribute("aria-pressed") === "true").map((chip) => chip.dataset.status);
  const before = new Map(hosts.map((host) => [host, host.open]));
  let filtering = false;

  function filter() {
    const query = search.value.trim().toLowerCase(), statuses = wanted(), on = Boolean(query || statuses.length);
    if (on && !filtering) hosts.forEach((host) => before.set(host, host.open));
    let found = 0, seen = 0;
    for (const host of hosts) {
      const whole = !query || name(host).includes(query);
      let here = 0, quiet = 0;
      for (const item of findings.get(host)) {
        const show = (!statuses.length || statuses.includes(item.dataset.status)) && (whole || text(item).includes(query));
        item.hidden = !show;
        here += show;
        quiet += show && item.classList.contains("row");
      }
      const rest = host.querySelector(".rest");
      if (rest) {
        rest.hidden = on && !quiet;
        if (on && quiet && (!whole || statuses.length)) rest.open = true;
        else if (!on && filtering) rest.open = false;
      }
      const show = !on || here > 0 || (whole && !statuses.length);
      host.hidden = !show;
      if (rows.has(host.id)) rows.get(host.id).hidden = !show;
      found += here;
      seen += show;
    }
    if (on) hosts.filter((host) => !host.hidden).slice(0, 8).forEach((host) => { host.open = true; });
    else if (filtering) hosts.forEach((host) => { host.open = before.get(host); });
    filtering = on;
    told.textContent = on ? `${found} finding${found === 1 ? "" : "s"} on ${seen} host${seen === 1 ? "" : "s"}` : "";
    one("#nothing").hidden = seen > 0 || !on;
  }

  function clear() {
    search.value = "";
    chips.forEach((chip) => chip.setAttribute("aria-pressed", "false"));
    filter();
  }

  function show(item) {
    for (let up = item; up; up = up.parentElement) if (up.tagName === "DETAILS") up.open = true;
    item.scrollIntoView({ block: "start" });
    item.focus({ preventScroll: true });
  }

  function follow() {
    const item = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (item && item.closest(".host")) {
      if (item.hidden || item.closest("[hidden]")) clear();
      show(item);
    }
  }

  function step(by) {
    const open = all(".finding").filter((item) => !item.closest("[hidden]"));
    if (!open.length) return;
    const at = open.indexOf(document.activeElement && document.activeElement.closest(".finding"));
    show(open[at < 0 ? (by > 0 ? 0 : open.length - 1) : (at + by + open.length) % open.length]);
  }

  async function copy(button) {
    const source = button.closest(".remedy").querySelector("pre"), label = button.firstChild;
    let done = true;
    try {
      await navigator.clipboard.writeText(source.textContent);
    } catch {
      getSelection().selectAllChildren(source);
      done = document.execCommand("copy");
    }
    label.data = done ? "Copied" : "Selected: press Ctrl-C";
    setTimeout(() => { label.data = "Copy"; }, 2000);
  }

  document.addEventListener("click", (event) => {
    const at = event.target.closest("button, a");
    if (!at) return;
    if (at.classList.contains("chip")) {
      at.setAttribute("aria-pressed", String(at.getAttribute("aria-pressed") !== "true"));
      filter();
    } else if (at.classList.contains("copy")) copy(at);
    else if (at.id === "clear") clear();
    else if (at.id === "keys") help.showModal();
    else if (at.tagName === "A" && at.hash && at.hash === location.hash) { event.preventDefault(); follow(); }
  });
  let waiting = 0;
  search.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(filter, 120); });
  addEventListener("hashchange", follow);
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    if (event.key === "Escape") { clear(); search.blur(); return; }
    if (event.target.matches("input, textarea, select") || !one("#single").checked) return;
    const acts = { "/": () => search.focus(), n: () => step(1), p: () => step(-1), "?": () => help.showModal() };
    if (acts[event.key]) { event.preventDefault(); acts[event.key](); }
  });
  const only = one("#only");
  if (only) only.addEventListener("change", () => {
    const quiet = all(".matrix thead th").map((head) => "quiet" in head.dataset);
    for (const row of all(".matrix tr")) [...row.cells].forEach((cell, at) => { cell.hidden = only.checked && quiet[at]; });
  });
  let shut = [];
  addEventListener("beforeprint", () => {
    shut = all("details.host, details.why").filter((item) => !item.open && !item.closest("[hidden]"));
    shut.forEach((item) => { item.open = true; });
  });
  addEventListener("afterprint", () => shut.forEach((item) => { item.open = false; }));
  all(".bar, .copy, .only").forEach((item) => { item.hidden = false; });
  if (location.hash) follow();
})();
