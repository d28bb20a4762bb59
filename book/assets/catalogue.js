// The page of all statements: a field that keeps the rows that hold its words, e.g. "false attention".

(() => {
  const tables = [...document.querySelectorAll("table.catalogue")];
  const rows = tables.flatMap((table) => [...table.tBodies[0].rows]);
  const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
  const form = document.createElement("form");
  form.className = "catalogue-filter";
  form.setAttribute("role", "search");
  form.innerHTML = '<label>Show rows with <input type="search" placeholder="false attention" autocomplete="off"></label> <output></output>';
  tables[0].closest("section").before(form);

  const field = form.querySelector("input");
  const count = form.querySelector("output");
  function filter() {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) row.hidden = !words.every((word) => texts.get(row).includes(word));
    for (const table of tables) table.hidden = [...table.tBodies[0].rows].every((row) => row.hidden);
    count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
  }
  field.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  filter();
})();
