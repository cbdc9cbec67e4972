// The page's script: unpacks Plotly, draws the figures, makes tables sortable.
// Runs from a file without a network; says in the page when a browser cannot do its part.
"use strict";
(() => {
  // A4 less the margins that report.css asks for, in CSS pixels.
  const PRINTED_WIDTH = 680;
  const PRINTED_GAP = 8;
  // On paper a figure is a little lower, so that two of them with their tables fill a page.
  const PRINTED_HEIGHT = 0.82;
  const CONFIG = { displayModeBar: false, responsive: true, showTips: false };
  const heights = new Map();
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const openedForPaper = new Set();
  const root = document.documentElement;

  async function unpack(base64) {
    const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }
  globalThis.unpack = unpack; // for scripts that follow

  async function loadPlotly() {
    const script = document.createElement("script");
    script.textContent = await unpack(document.getElementById("plotly").textContent);
    document.head.append(script);
  }

  async function draw() {
    for (const [id, figure] of Object.entries(figures)) {
      heights.set(id, figure.layout.height);
      setHeight(document.getElementById(id), figure.layout.height); // so that nothing jumps later
    }
    await loadPlotly();
    for (const id of Object.keys(figures)) {
      if (!isFolded(document.getElementById(id))) await drawOne(id);
    }
  }

  function isFolded(place) {
    return place.closest("details:not([open])") !== null;
  }

  // A figure in a folded part is drawn when the part is first opened: a page may hold hundreds.
  function drawOne(id) {
    const { data, layout } = figures[id];
    return Plotly.newPlot(id, data, layout, CONFIG);
  }

  function drawOpened(details) {
    for (const place of details.querySelectorAll(".plot:not(.js-plotly-plot):not(.failed)")) {
      if (!isFolded(place)) drawOne(place.id);
    }
  }

  function setHeight(place, height) {
    place.style.height = `${height}px`;
    return height;
  }

  function giveUp(error) {
    for (const place of document.querySelectorAll(".plot")) {
      place.classList.add("failed");
      place.style.height = "auto";
      place.textContent =
        `This figure cannot be drawn here (${error.message}); the tables hold its numbers.`;
    }
  }

  function compare(a, b) {
    const [x, y] = [Number(a), Number(b)];
    return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
  }

  function sortBy(table, header) {
    const column = [...header.parentElement.children].indexOf(header);
    const direction = header.ariaSort === "ascending" ? "descending" : "ascending";
    for (const other of table.querySelectorAll("thead th")) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", direction);
    const sign = direction === "ascending" ? 1 : -1;
    const value = (row) => row.children[column]?.dataset.value ?? "";
    const rows = [...table.tBodies[0].rows].sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === "" || y === "") return (x === "") - (y === ""); // no figure: always last
      return sign * compare(x, y);
    });
    table.tBodies[0].append(...rows);
  }

  function makeSortable(table) {
    for (const header of table.querySelectorAll("thead th")) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.title = "Sort by this column";
      button.append(...header.childNodes);
      header.append(button);
      button.addEventListener("click", () => sortBy(table, header));
    }
  }

  // Small plots stand two in a row on paper.
  function printedWidth(place) {
    return place.closest(".multiples") ? PRINTED_WIDTH / 2 - PRINTED_GAP : PRINTED_WIDTH;
  }

  function eachFigure(action) {
    for (const place of document.querySelectorAll(".js-plotly-plot")) {
      action(place, heights.get(place.id));
    }
  }

  // On paper nobody can open the parts that the answer rests on; single trials stay folded.
  function openForPaper() {
    for (const details of document.querySelectorAll("details.on-paper:not([open])")) {
      details.open = true;
      openedForPaper.add(details);
    }
  }

  document.querySelectorAll("table.sortable").forEach(makeSortable);
  addEventListener("beforeprint", () => {
    openForPaper();
    eachFigure((place, height) => Plotly.relayout(place, {
      width: printedWidth(place),
      height: setHeight(place, PRINTED_HEIGHT * height),
    }));
  });
  addEventListener("afterprint", () => {
    for (const details of openedForPaper) details.open = false;
    openedForPaper.clear();
    eachFigure((place, height) =>
      Plotly.relayout(place, { width: null, autosize: true, height: setHeight(place, height) }));
  });
  draw().then(
    () => {
      root.dataset.figures = "drawn";
      // Such events do not bubble; those of parts opened before this line are behind us.
      document.addEventListener("toggle", (event) => drawOpened(event.target), true);
      for (const details of document.querySelectorAll("details[open]")) drawOpened(details);
    },
    (error) => { giveUp(error); root.dataset.figures = "failed"; console.error(error); },
  );
})();
