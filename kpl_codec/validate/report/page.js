"use strict";
// Filters over the findings, sorting and searching of long tables. The page is whole without this script, and
// nothing here reads data as HTML.
(() => {
  const BATCH = 50;
  let printing = false;
  const applied = []; // functions that show again what is to be seen

  const element = (name, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  };
  const words = (field) => field.value.toLowerCase().split(/\s+/).filter(Boolean);

  // Print everything that is folded or not shown yet (but not what a filter hides), then go back.
  const details = [...document.querySelectorAll("details")];
  let folded = [];
  window.addEventListener("beforeprint", () => {
    folded = details.filter((one) => !one.open);
    folded.forEach((one) => { one.open = true; });
    printing = true;
    applied.forEach((apply) => apply());
  });
  window.addEventListener("afterprint", () => {
    folded.forEach((one) => { one.open = false; });
    printing = false;
    applied.forEach((apply) => apply());
  });

  // -- tables --------------------------------------------------------------------------------------

  function sortable(table) {
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[0].cells];
    const rows = [...body.rows].map((row) => ({ row, text: row.textContent.toLowerCase() }));
    if (rows.length < 3) return;
    let limit = BATCH;
    let by = -1;
    let down = true;

    const value = (row, index) => {
      const cell = row.cells[index];
      return "sort" in cell.dataset ? Number(cell.dataset.sort) : cell.textContent.trim();
    };
    const compare = (one, other) => {
      const [a, b] = [value(one.row, by), value(other.row, by)];
      const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
      return down ? -order : order;
    };

    const choice = element("select", { className: "sort" }, element("option", { value: "-1" }, "as listed"),
      ...heads.map((head, index) => element("option", { value: String(index) }, head.textContent)));
    const search = element("input", { type: "search", className: "search", spellcheck: false, autocomplete: "off" });
    const status = element("p", { className: "count" });
    status.setAttribute("role", "status");
    const more = element("button", { type: "button", className: "more" });
    const tools = element("div", { className: "tools" },
      element("label", {}, element("span", {}, "Search"), search),
      element("label", {}, element("span", {}, "Sort by"), choice), status);

    const apply = () => {
      const wanted = words(search);
      let found = 0;
      const shown = by < 0 ? rows : [...rows].sort(compare);
      for (const entry of shown) {
        const matches = wanted.every((word) => entry.text.includes(word));
        if (matches) found += 1;
        entry.row.hidden = !matches || (found > limit && !printing);
        body.append(entry.row);
      }
      heads.forEach((head, index) => {
        head.setAttribute("aria-sort", index !== by ? "none" : down ? "descending" : "ascending");
      });
      choice.value = String(by);
      more.hidden = found <= limit;
      more.textContent = "Show " + Math.min(found - limit, limit * 3) + " more of " + found;
      status.textContent = found < rows.length ? found + " of " + rows.length + " match" : rows.length + " rows";
    };
    const sort = (index, descending) => { by = index; down = descending; apply(); };
    heads.forEach((head, index) => {
      const button = element("button", { type: "button", className: "head" }, ...head.childNodes);
      button.addEventListener("click", () => sort(index, by === index ? !down : "sort" in rows[0].row.cells[index].dataset));
      head.append(button);
    });
    choice.addEventListener("input", () => {
      const index = Number(choice.value);
      sort(index, index >= 0 && "sort" in rows[0].row.cells[index].dataset);
    });
    search.addEventListener("input", apply);
    more.addEventListener("click", () => { limit *= 4; apply(); });
    table.parentElement.before(tools);
    table.parentElement.after(more);
    applied.push(apply);
    apply();
  }
  document.querySelectorAll("table.sortable").forEach(sortable);

  // -- findings ------------------------------------------------------------------------------------

  const form = document.getElementById("filters");
  if (!form) return;
  const field = (name) => document.getElementById("filter-" + name);
  const kinds = [...document.querySelectorAll("article.kind")].map((article) => {
    const rows = [...article.querySelectorAll("tbody tr")].map((row) => ({
      row,
      shard: row.dataset.shard || "",
      text: row.textContent.toLowerCase(),
    }));
    const more = element("button", { type: "button", className: "more", hidden: true });
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
      kind.limit *= 4;
      apply();
    });
    return kind;
  });
  const total = kinds.reduce((sum, kind) => sum + kind.rows.length, 0);

  function apply() {
    const severities = new Set([...form.querySelectorAll("input[name=severity]:checked")].map((i) => i.value));
    const name = field("kind").value;
    const shard = field("shard") ? field("shard").value : "";
    const wantedWords = words(field("text"));
    const narrowed = Boolean(shard || wantedWords.length);
    let matching = 0;
    let visibleKinds = 0;
    for (const kind of kinds) {
      const wanted = severities.has(kind.severity) && (!name || name === kind.name);
      let found = 0;
      for (const entry of kind.rows) {
        const matches = wanted && (!shard || shard === entry.shard) &&
          wantedWords.every((word) => entry.text.includes(word) || kind.text.includes(word));
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
  applied.push(apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", apply);
  form.addEventListener("reset", () => {
    kinds.forEach((kind) => { kind.limit = BATCH; });
    setTimeout(apply, 0);
  });
  apply();
})();
