// Flame graphs: who allocates, and who called that, as bars one below the other, as wide as what
// they and all below them hold. A bar is an element of the page, so that it can be focused, read
// aloud and printed; those too narrow to be seen have none until they are zoomed in on.
"use strict";
(() => {
  const ROW = 21; // pixels
  const NARROWEST = 2; // pixels
  const NARROWEST_NAMED = 28; // in less, no name can be told from another
  const PRINTED_WIDTH = 680; // as report.js has it
  const HUES = [28, 45, 95, 160, 205, 265, 330];
  const root = document.documentElement;

  function size(bytes) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let unit = 0;
    while (bytes >= 1024 && unit < units.length - 1) { bytes /= 1024; unit += 1; }
    return `${unit ? Number(bytes.toPrecision(3)) : bytes} ${units[unit]}`;
  }
  const blocks = (number) => `${number.toLocaleString("en")} ${number === 1 ? "block" : "blocks"}`;
  const FORMS = { bytes: size, blocks };

  function percent(part, whole) {
    const value = whole ? 100 * part / whole : 0;
    return `${value >= 10 ? value.toFixed(0) : Number(value.toPrecision(2))} %`;
  }

  function made(name, attributes = {}, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  }

  // The tree with its sums. Nodes come after their parents, so one pass backwards adds up.
  class Tree {
    constructor({ names, parents, labels, measures }) {
      Object.assign(this, { names, parents, labels, measures });
      this.depth = new Uint16Array(parents.length);
      for (let node = 1; node < parents.length; node += 1) {
        this.depth[node] = this.depth[parents[node]] + 1;
      }
    }

    choose(measure, unit) {
      this.total = Float64Array.from(this.measures[measure][unit]);
      for (let node = this.total.length - 1; node > 0; node -= 1) {
        this.total[this.parents[node]] += this.total[node];
      }
      this.children = this.parents.map(() => null);
      for (let node = 1; node < this.total.length; node += 1) {
        if (this.total[node]) (this.children[this.parents[node]] ??= []).push(node);
      }
      for (const each of this.children) each?.sort((a, b) => this.total[b] - this.total[a]);
    }

    name(node) { return this.names[this.labels[node]]; }

    path(node) {
      const nodes = [node];
      while (node) nodes.unshift(node = this.parents[node]);
      return nodes;
    }

    // The outermost nodes whose names have the word, those with most first.
    find(word) {
      const has = this.names.map((name) => name.toLowerCase().includes(word));
      const within = new Uint8Array(this.parents.length);
      const found = [];
      for (let node = 1; node < within.length; node += 1) {
        const here = has[this.labels[node]];
        within[node] = here || within[this.parents[node]];
        if (here && !within[this.parents[node]] && this.total[node]) found.push(node);
      }
      return { has, found: found.sort((a, b) => this.total[b] - this.total[a]) };
    }
  }

  class Graph {
    constructor(place, tree) {
      this.tree = tree;
      this.unit = "bytes";
      this.zoomed = this.current = 0;
      this.matches = { has: [], found: [] };
      this.build(place);
      this.choose();
    }

    build(place) {
      const title = place.dataset.title;
      this.what = made("select");
      this.tree.measures.forEach(({ title: text }, index) =>
        this.what.append(made("option", { value: index }, text)));
      this.by = made("select");
      for (const unit of Object.keys(FORMS)) this.by.append(made("option", { value: unit }, unit));
      this.word = made("input", { type: "search", placeholder: "part of a name" });
      this.found = made("output");
      this.whole = made("button", { type: "button" }, "Show all");
      this.bars = made("div", { class: "bars", role: "tree", "aria-label": `${title}, as a flame graph` });
      this.told = made("p", { class: "told", "aria-live": "polite" });
      place.append(
        made("div", { class: "controls" },
          made("label", {}, "Show ", this.what), made("label", {}, "by ", this.by),
          made("label", {}, "Find ", this.word), this.found, this.whole),
        this.told,
        this.bars,
        made("p", { class: "note" },
          "A bar is as wide as what its function and those below it hold; it stands below its " +
          "caller. Click or Enter: widen it. Arrow keys: walk. Escape: back. /: find."),
      );
      this.what.addEventListener("change", () => this.choose());
      this.by.addEventListener("change", () => this.choose());
      this.word.addEventListener("input", () => this.search());
      this.word.addEventListener("keydown", (event) => {
        if (event.key === "Enter") this.nextMatch();
      });
      this.whole.addEventListener("click", () => this.zoom(0));
      const barOf = (event) => event.target.closest("[data-node]");
      this.bars.addEventListener("click", (event) => {
        const bar = barOf(event);
        if (bar) this.zoom(Number(bar.dataset.node));
      });
      this.bars.addEventListener("mouseover", (event) => {
        const bar = barOf(event);
        if (bar) this.tell(Number(bar.dataset.node));
      });
      this.bars.addEventListener("mouseleave", () => this.tell(this.current));
      this.bars.addEventListener("focusin", (event) => {
        const bar = barOf(event);
        if (bar) this.enter(Number(bar.dataset.node));
      });
      this.bars.addEventListener("keydown", (event) => this.key(event));
      new ResizeObserver(() => this.draw()).observe(this.bars);
      addEventListener("beforeprint", () => this.draw(PRINTED_WIDTH));
      addEventListener("afterprint", () => this.draw());
    }

    choose() {
      this.unit = this.by.value;
      this.tree.choose(Number(this.what.value), this.unit);
      if (!this.tree.total[this.zoomed]) this.zoomed = 0;
      if (!this.tree.total[this.current]) this.current = this.zoomed;
      this.search();
    }

    text(node) {
      const { total } = this.tree;
      const form = FORMS[this.unit];
      return `${form(total[node])}, ${percent(total[node], total[0])} of ${form(total[0])}`;
    }

    tell(node) {
      const callers = this.tree.path(node).slice(1, -1).map((each) => this.tree.name(each));
      const by = callers.length ? `, called by ${callers.reverse().join(" ← ")}` : "";
      this.told.replaceChildren(made("strong", {}, this.tree.name(node)), ` ${this.text(node)}${by}`);
    }

    search() {
      const word = this.word.value.trim().toLowerCase();
      this.matches = word ? this.tree.find(word) : { has: [], found: [] };
      this.next = 0;
      const { found } = this.matches;
      const sum = found.reduce((whole, node) => whole + this.tree.total[node], 0);
      this.found.textContent = word
        ? `${FORMS[this.unit](sum)}, ${percent(sum, this.tree.total[0])}` +
          ` in ${found.length.toLocaleString("en")} ${found.length === 1 ? "place" : "places"}`
        : "";
      this.draw();
    }

    nextMatch() {
      const { found } = this.matches;
      if (!found.length) return;
      const node = found[this.next++ % found.length];
      this.current = node;
      this.zoom(this.tree.parents[node], false);
      this.tell(node);
    }

    zoom(node, isCurrent = true) {
      this.zoomed = node;
      if (isCurrent) this.current = node;
      this.draw();
    }

    enter(node) {
      if (node !== this.current) {
        this.bar(this.current)?.setAttribute("tabindex", "-1");
        this.current = node;
        this.bar(node)?.setAttribute("tabindex", "0");
      }
      this.tell(node);
    }

    bar(node) { return this.bars.querySelector(`[data-node="${node}"]`); }

    focus() { (this.bar(this.current) ?? this.bar(this.zoomed)).focus({ preventScroll: false }); }

    // Where a key leads, of the bars that can be seen.
    key(event) {
      const { tree, current } = this;
      const visible = (node) => node !== undefined && this.bar(node) ? node : current;
      const parent = tree.parents[current];
      const beside = (step) => {
        const row = tree.children[parent] ?? [];
        return current ? visible(row[row.indexOf(current) + step]) : current;
      };
      const moves = {
        ArrowUp: () => parent,
        ArrowDown: () => visible(tree.children[current]?.[0]),
        ArrowLeft: () => beside(-1),
        ArrowRight: () => beside(1),
      };
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      if (moves[event.key]) {
        this.enter(moves[event.key]());
        this.focus();
      } else if (event.key === "Enter" || event.key === " ") {
        this.zoom(current);
      } else if (event.key === "Escape" || event.key === "Backspace") {
        this.zoom(tree.parents[this.zoomed]);
      } else if (event.key === "Home") {
        this.zoom(0);
      } else if (event.key === "/") {
        this.word.focus();
      } else {
        return;
      }
      event.preventDefault();
    }

    draw(width = this.bars.clientWidth) {
      const { tree, zoomed } = this;
      const bars = document.createDocumentFragment();
      const narrowest = NARROWEST / Math.max(width, 1);
      let deepest = 0;
      const add = (node, left, share) => {
        deepest = Math.max(deepest, tree.depth[node]);
        bars.append(this.drawBar(node, left, share, share * width >= NARROWEST_NAMED));
      };
      const above = tree.path(zoomed).slice(0, -1);
      for (const node of above) add(node, 0, 1);
      const waiting = [[zoomed, 0, 1]];
      while (waiting.length) {
        const [node, left, share] = waiting.pop();
        add(node, left, share);
        let at = left;
        for (const child of tree.children[node] ?? []) {
          const part = share * tree.total[child] / tree.total[node];
          if (part < narrowest) break; // and so are those that follow
          waiting.push([child, at, part]);
          at += part;
        }
      }
      this.bars.style.height = `${(deepest + 1) * ROW}px`;
      const focused = this.bars.contains(document.activeElement);
      this.bars.replaceChildren(bars);
      if (!this.bar(this.current)) this.current = zoomed;
      this.bar(this.current).setAttribute("tabindex", "0");
      if (focused) this.focus();
      this.whole.disabled = zoomed === 0;
      this.tell(this.current);
    }

    drawBar(node, left, share, isNamed) {
      const { tree } = this;
      const name = tree.name(node);
      const bar = made("div", {
        "data-node": node, role: "treeitem", tabindex: "-1",
        "aria-level": tree.depth[node] + 1, "aria-label": `${name}, ${this.text(node)}`,
      }, isNamed ? name : "");
      bar.style.cssText =
        `left:${100 * left}%;width:${100 * share}%;top:${tree.depth[node] * ROW}px;` +
        `--hue:${HUES[tree.labels[node] % HUES.length]}`;
      if (!node) bar.classList.add("all");
      if (!isNamed) bar.classList.add("unnamed");
      if (tree.depth[node] < tree.depth[this.zoomed]) bar.classList.add("above");
      if (this.matches.has[tree.labels[node]]) bar.classList.add("match");
      return bar;
    }
  }

  async function drawAll() {
    for (const place of document.querySelectorAll(".flames")) {
      const data = JSON.parse(await unpack(place.querySelector("script").textContent));
      new Graph(place, new Tree(data));
    }
  }

  drawAll().then(
    () => { root.dataset.flames = "drawn"; },
    (error) => { root.dataset.flames = "failed"; console.error(error); },
  );
})();
