"use strict";
// Filters over the findings. The page is whole without this script; nothing here reads data as HTML.
(() => {
  const form = document.getElementById("filters");
  const BATCH = 50;
  const details = [...document.querySelectorAll("details")];

  // Print everything that is folded or not shown yet (but not what a filter hides), then go back.
  let folded = [];
  let printing = false;
  let show = () => {};
  window.addEventListener("beforeprint", () => {
    folded = details.filter((one) => !one.open);
    folded.forEach((one) => { one.open = true; });
    printing = true;
    show();
  });
  window.addEventListener("afterprint", () => {
    folded.forEach((one) => { one.open = false; });
    printing = false;
    show();
  });
  if (!form) return;

  const field = (name) => document.getElementById("filter-" + name);
  const kinds = [...document.querySelectorAll("article.kind")].map((article) => {
    const rows = [...article.querySelectorAll("tbody tr")].map((row) => ({
      row,
      shard: row.dataset.shard || "",
      text: row.textContent.toLowerCase(),
    }));
    const more = document.createElement("button");
    more.type = "button";
    more.className = "more";
    more.hidden = true;
    const kind = {
      article, rows, more,
      name: article.dataset.kind,
      severity: article.dataset.severity,
      text: article.querySelector("h3").textContent.toLowerCase(),
      folds: article.querySelector("details"),
      limit: BATCH,
    };
    if (kind.folds) kind.folds.append(more);
    more.addEventListener("click", () => {
      kind.limit = kind.limit * 4;
      apply();
    });
    return kind;
  });
  const total = kinds.reduce((sum, kind) => sum + kind.rows.length, 0);

  function apply() {
    const severities = new Set([...form.querySelectorAll("input[name=severity]:checked")].map((i) => i.value));
    const name = field("kind").value;
    const shard = field("shard") ? field("shard").value : "";
    const words = field("text").value.toLowerCase().split(/\s+/).filter(Boolean);
    const narrowed = Boolean(shard || words.length);
    let matching = 0;
    let visibleKinds = 0;
    for (const kind of kinds) {
      const wanted = severities.has(kind.severity) && (!name || name === kind.name);
      let found = 0;
      for (const entry of kind.rows) {
        const matches = wanted && (!shard || shard === entry.shard) &&
          words.every((word) => entry.text.includes(word) || kind.text.includes(word));
        if (matches) found += 1;
        entry.row.hidden = !matches || (found > kind.limit && !printing);
      }
      const visible = wanted && (found > 0 || !narrowed);
      kind.article.hidden = !visible;
      kind.more.hidden = found <= kind.limit;
      kind.more.textContent = "Show " + Math.min(found - kind.limit, kind.limit * 3) + " more of " + found;
      if (visible) visibleKinds += 1;
      if (visible && narrowed && kind.folds) kind.folds.open = true;
      matching += found;
    }
    document.getElementById("shown").textContent =
      matching < total ? matching + " of " + total + " findings match" :
        total === 1 ? "One finding" : "All " + total + " findings on this page";
    document.getElementById("no-match").hidden = visibleKinds > 0;
  }

  form.hidden = false;
  show = apply;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", apply);
  form.addEventListener("reset", () => {
    kinds.forEach((kind) => { kind.limit = BATCH; });
    setTimeout(apply, 0);
  });
  apply();
})();
