// Sortable tables. Rows beyond a first page are made only when asked for: a report may have 100,000 threads.

const FIRST_ROWS = 100;
const byId = (id) => document.getElementById(id);

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") made.className = value; else made.setAttribute(name, value);
  }
  made.append(...children); // Strings become text, never markup.
  return made;
}

// columns: [{title, value(row), show(row), kind(row), left}]. Sorted in the rows' own order at first.
class Table {
  constructor(place, columns, rows, { onRow, rowKey } = {}) {
    Object.assign(this, { place, columns, rows, onRow, rowKey, sorted: -1, descending: false, limit: FIRST_ROWS, keep: null });
    this.heads = columns.map((column, i) => this.head(column, i));
    this.body = element("tbody");
    this.more = element("div", { class: "more" });
    place.append(element("table", {}, element("thead", {}, element("tr", {}, ...this.heads)), this.body), this.more);
    this.fill();
  }

  head(column, i) {
    const button = element("button", { title: column.about || "" }, column.title);
    button.addEventListener("click", () => this.sort(i));
    return element("th", { class: column.left ? "left" : "", scope: "col" }, button);
  }

  // Numbers start with the greatest, names with the first; a third press restores the file's order.
  sort(i) {
    const opening = !this.columns[i].left;
    if (this.sorted !== i) [this.sorted, this.descending] = [i, opening];
    else if (this.descending === opening) this.descending = !opening;
    else this.sorted = -1;
    this.heads.forEach((head, at) => {
      if (at === this.sorted) head.setAttribute("aria-sort", this.descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    this.fill();
  }

  filter(keep) {
    this.keep = keep;
    this.fill();
  }

  select(key) {
    this.selected = key;
    for (const row of this.body.rows) row.classList.toggle("selected", Number(row.dataset.key) === key);
  }

  fill() {
    let rows = this.keep ? this.rows.filter(this.keep) : [...this.rows];
    if (this.sorted >= 0) {
      const { value } = this.columns[this.sorted], sign = this.descending ? -1 : 1;
      const compare = (a, b) => typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
      rows.sort((a, b) => sign * compare(value(a), value(b)));
    }
    this.body.replaceChildren(...rows.slice(0, this.limit).map((row) => this.row(row)));
    this.more.replaceChildren();
    this.more.hidden = rows.length <= this.limit && rows.length > 0;
    if (!rows.length) this.more.append("None.");
    else if (rows.length > this.limit) {
      const button = element("button", {}, "Show more");
      button.addEventListener("click", () => {
        this.limit *= 10;
        this.fill();
      });
      this.more.append(`${count(this.limit)} of ${count(rows.length)} rows `, button);
    }
  }

  row(data) {
    const cells = this.columns.map((column) => {
      const shown = column.show ? column.show(data) : count(column.value(data));
      const tone = column.kind ? column.kind(data) : shown === "0" ? "zero" : "";
      return element("td", { class: `${column.left ? "left" : ""} ${column.wide ? "wide" : ""} ${tone}`.trim() }, ...[shown].flat());
    });
    const made = element("tr", {}, ...cells);
    if (this.onRow) {
      const key = this.rowKey(data);
      made.dataset.key = key;
      made.className = key === this.selected ? "clickable selected" : "clickable";
      made.tabIndex = 0;
      made.addEventListener("click", () => this.onRow(key));
      made.addEventListener("keydown", (event) => {
        if (event.key === "Enter") this.onRow(key);
      });
    }
    return made;
  }
}

// A bar of what was received; if something was owed, with a mark there.
function meter(had, owed, scale) {
  const width = (value) => `width:${(scale > 0 ? Math.min(1, value / scale) * 100 : 0).toFixed(2)}%`;
  const made = element("span", { class: "meter" });
  const layer = (kind, style) => {
    const bar = element("span", { class: kind });
    bar.style.cssText = style;
    made.append(bar);
  };
  if (owed === undefined) {
    layer("debt", width(scale));
    layer("had", width(had));
    return made;
  }
  const beyond = had > owed * 1.005; // Less than that is rounding.
  layer("debt", width(owed));
  if (beyond) layer("over", width(had));
  layer("had", width(beyond ? owed : had));
  if (owed > 0) layer("mark", width(owed).replace("width", "left"));
  return made;
}
