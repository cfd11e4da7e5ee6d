// Draws the server's pictures of curves anew, with uPlot: a crosshair with the values of all curves, zoom, smoothing, a log
// scale, downloads. Without this script, and in print, the pictures are shown.
"use strict";

(() => {
  const DASHES = [[], [6, 3], [2, 3], [9, 3, 2, 3], [], [12, 4], [], [6, 3], [2, 3], [9, 3, 2, 3], [], [12, 4]]; // as in page.css
  const MARGIN = { left: 58, right: 14, top: 10 };
  const TALL = 260;
  const SMALL = 146;
  const LEAST_DRAG = 6; // pixels; less is a click
  const DOUBLE_CLICK_MS = 300; // so long a click waits for a second one
  const KEPT_MS = 1000; // so long a page of a stretch serves the other charts
  const AIMED = 40; // pixels from the crosshair within which a curve shows its value
  const LOG_SCALE = 3;
  const WIDE_GAPS = 2; // a gap reaches over the places of other curves, too
  const UNITS = { policy: ["policy", "policies"], update: ["update", "updates"] };
  const STORED = "hindcast charts";

  const settings = { smoothing: 0, log: false };
  try { Object.assign(settings, JSON.parse(localStorage.getItem(STORED))); } catch { /* a browser that stores nothing */ }
  const plots = new Map();
  const parts = new Map(); // pages of a stretch, by their addresses: all charts of a page ask for the same one

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const curveColor = (curve) => color(`--curve-${curve.color}`);
  const number = (value) => String(Number(value.toPrecision(4))).replace("-", "−");
  const onDecade = (value) => value > 0 && Math.abs(Math.log10(value) - Math.round(Math.log10(value))) < 1e-9 ? value : null;
  const percent = (value) => `${Math.round(100 * value)}%`;

  function element(tag, attributes = {}, ...children) {
    const made = Object.assign(document.createElement(tag), attributes);
    made.append(...children);
    return made;
  }

  // exponential moving average without the bias of its beginning; a gap is kept
  function smoothed(values, weight) {
    let sum = 0;
    let total = 0;
    return values.map((value) => {
      if (value === null) return null;
      sum = sum * weight + value * (1 - weight);
      total = total * weight + (1 - weight);
      return sum / total;
    });
  }

  // place of the point of a curve that is nearest on the horizontal axis
  function nearest(curve, x) {
    let best = null;
    curve.x.forEach((at, place) => {
      if (curve.y[place] !== null && (best === null || Math.abs(at - x) <= Math.abs(curve.x[best] - x))) best = place;
    });
    return best;
  }

  function pointName(data, curve, place) {
    const [one, several] = UNITS[data.unit];
    const first = curve.first[place];
    const last = curve.last[place];
    return first === last ? `${one} ${last}` : `${several} ${first} to ${last}`;
  }

  function valueText(data, curve, place) {
    const [y, low, high] = [curve.y[place], curve.low[place], curve.high[place]];
    if (data.shares) return `${percent(y)} [${percent(low)}, ${percent(high)}] n=${curve.n[place]}`;
    return low === high ? number(y) : `${number(y)} [${number(low)}, ${number(high)}] n=${curve.n[place]}`;
  }

  function download(name, blob) {
    const link = element("a", { href: URL.createObjectURL(blob), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  class Plot {
    constructor(key) {
      this.zoom = null;
      this.enlarged = false;
      this.reset = this.button("Reset zoom", () => this.zoomAll(null));
      this.reset.hidden = true;
      this.readout = element("div", { className: "readout", hidden: true });
      this.readout.setAttribute("aria-live", "polite");
      this.area = element("div", { className: "area", id: `plot-${key}`, tabIndex: 0 });
      this.area.setAttribute("role", "group");
      this.area.addEventListener("keydown", (event) => this.onKey(event));
      this.area.addEventListener("focus", () => this.tell());
      this.area.addEventListener("blur", () => { this.readout.hidden = true; });
      this.below = element("span");
      const tools = [this.below, this.reset, this.button("CSV", () => this.saveTable()), this.button("PNG", () => this.savePicture())];
      this.root = element("div", { className: "plot" }, this.area, element("div", { className: "tools" }, ...tools));
      this.sizes = new ResizeObserver(() => this.fit());
    }

    button(text, action) {
      const made = element("button", { type: "button", textContent: text });
      made.addEventListener("click", action);
      return made;
    }

    // put the plot where the server's picture is, with its present values
    show(host) {
      this.whole = JSON.parse(host.dataset.chart);
      this.host = host;
      this.area.setAttribute("aria-label", `${this.whole.label}. Arrow keys: from value to value; plus, minus: zoom; Enter: episodes`);
      this.below.textContent = `over: ${this.whole.below}`;
      host.append(this.root);
      host.classList.add("drawn");
      this.sizes.disconnect();
      this.sizes.observe(host);
      if (!this.enlarged) this.use(this.whole);
      if (this.zoom) this.enlarge();
    }

    // draw these values: those of the page, or of the stretch that is zoomed to
    use(data) {
      const alike = this.data && JSON.stringify(shapeOf(this.data)) === JSON.stringify(shapeOf(data));
      this.data = data;
      if (this.chart && alike && this.log === this.logarithmic) this.refresh();
      else this.draw();
    }

    // new values: the zoom, the crosshair and the canvas stay
    refresh() {
      this.chart.setData(this.table(), this.zoom === null);
      if (this.zoom) this.chart.setScale("x", this.zoom);
      this.chart.syncRect(true);
      this.tell();
    }

    get logarithmic() {
      const values = this.data.curves.flatMap((curve) => curve.y);
      return settings.log && !this.data.shares && values.every((value) => value === null || value >= 0) && values.some((value) => value > 0);
    }

    get smoothing() {
      return this.data.shares ? 0 : settings.smoothing;
    }

    // columns for uPlot: the places of all curves, then of each curve its value, lower and upper end, and smoothed value
    table() {
      const shown = (value) => value === null || this.logarithmic && value <= 0 ? null : value;
      const tables = this.data.curves.map((curve) => {
        const values = curve.y.map(shown);
        const ends = [curve.low, curve.high].map((side) => side.map((value, place) => shown(value) ?? values[place]));
        return [curve.x, values, ...ends, smoothed(values, this.smoothing)];
      });
      return uPlot.join(tables, tables.map((columns) => columns.map(() => WIDE_GAPS)));
    }

    draw() {
      this.chart?.destroy();
      const { data } = this;
      const series = [{}];
      const bands = [];
      this.mains = new Set();
      data.curves.forEach((curve) => {
        const stroke = () => curveColor(curve);
        const dash = DASHES[curve.color];
        const raw = series.length;
        const faint = this.smoothing > 0;
        const points = { show: data.shares || curve.x.length === 1 || undefined, size: 7, fill: stroke, stroke };
        series.push(
          { label: curve.name, stroke, dash, width: faint ? 1 : 1.5, alpha: faint ? 0.35 : 1, points },
          ...["low", "high"].map(() => ({ stroke: "transparent", points: { show: false } })),
          { stroke, dash, width: 1.8, show: faint, points: { show: false } },
        );
        bands.push({ series: [raw + 2, raw + 1], fill: () => `color-mix(in srgb, ${curveColor(curve)} 16%, transparent)` });
        this.mains.add(faint ? raw + 3 : raw);
      });
      const soft = () => color("--soft");
      const grid = { stroke: () => color("--line"), width: 1 };
      const font = "11px system-ui, sans-serif";
      const whole = data.curves.every((curve) => curve.x.every((x, place) => curve.y[place] === null || Number.isInteger(x)));
      const steps = [...Array(16).keys()].flatMap((power) => [1, 2, 5].map((factor) => factor * 10 ** (power - (whole ? 0 : 4))));
      const log = this.log = this.logarithmic;
      this.chart = new uPlot({
        ...this.size(),
        padding: [MARGIN.top, MARGIN.right, 0, 0],
        series,
        bands,
        legend: { show: false },
        scales: {
          // a single value lies in the middle: uPlot would begin the axis at 0
          x: { time: false, range: (plot, low, high) => plot.data[0].length === 1 ? [Math.max(0, plot.data[0][0] - 1), plot.data[0][0] + 1] : [low, high] },
          y: data.shares ? { range: [0, 1] } : { distr: log ? LOG_SCALE : 1 },
        },
        axes: [
          { stroke: soft, grid: { show: false }, ticks: grid, font, incrs: steps, space: 60, size: 28 },
          { stroke: soft, grid: { ...grid, filter: (_, splits) => log ? splits.map(onDecade) : splits }, ticks: { show: false }, font, size: MARGIN.left, space: 28, incrs: data.shares ? [0.25] : undefined,
            values: (_, splits) => splits.map((value) => value === null ? "" : data.shares ? percent(value) : number(value)) },
        ],
        cursor: {
          drag: { x: true, y: false, setScale: false, dist: LEAST_DRAG, click: () => {} }, // uPlot takes a click at the edge for a drag
          points: { size: (_, place) => this.mains.has(place) ? 8 : 0, width: (_, place) => this.mains.has(place) ? 2 : 0, stroke: () => color("--paper"), fill: (u, place) => u.series[place].stroke(u, place) },
          sync: { key: data.below, scales: ["x", null], setSeries: false, filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } },
          bind: { dblclick: () => () => { clearTimeout(this.following); this.zoomAll(null); } },
        },
        hooks: {
          setCursor: [() => this.tell()],
          setSelect: [(u) => {
            if (u.select.width < LEAST_DRAG) return;
            const [min, max] = [u.select.left, u.select.left + u.select.width].map((at) => u.posToVal(at, "x"));
            u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            this.zoomAll({ min, max });
          }],
          draw: [(u) => this.drawIntervals(u)],
        },
      }, this.table(), this.area);
      this.chart.over.append(this.readout);
      if (this.zoom) this.chart.setScale("x", this.zoom);
      let pressed = null;
      this.chart.over.addEventListener("mousedown", (event) => { pressed = event.clientX; });
      this.chart.over.addEventListener("click", (event) => {
        if (pressed !== null && Math.abs(event.clientX - pressed) < LEAST_DRAG) this.follow(DOUBLE_CLICK_MS);
      });
    }

    // the interval of each point, as a point alone has no band
    drawIntervals(u) {
      if (!this.data.shares) return;
      const { ctx, bbox } = u;
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top - 4, bbox.width, bbox.height + 8);
      ctx.clip();
      ctx.globalAlpha = 0.45;
      ctx.lineWidth = devicePixelRatio;
      for (const curve of this.data.curves) {
        ctx.strokeStyle = curveColor(curve);
        ctx.beginPath();
        curve.x.forEach((at, place) => {
          if (curve.y[place] === null) return;
          const x = u.valToPos(at, "x", true);
          ctx.moveTo(x, u.valToPos(curve.low[place], "y", true));
          ctx.lineTo(x, u.valToPos(curve.high[place], "y", true));
        });
        ctx.stroke();
      }
      ctx.restore();
    }

    size() {
      return { width: Math.max(160, this.area.clientWidth), height: this.host.classList.contains("small") ? SMALL : TALL };
    }

    fit() {
      const size = this.size();
      if (this.chart && size.width !== this.chart.width) this.chart.setSize(size);
    }

    // all charts over the same axis show the same stretch
    zoomAll(range) {
      for (const plot of plots.values()) if (plot.data.below === this.data.below) plot.zoomTo(range);
    }

    zoomTo(range) {
      this.zoom = range;
      this.reset.hidden = range === null;
      this.enlarged = false;
      this.use(this.whole);
      if (range) this.enlarge();
    }

    // points that are pooled from several versions or updates are asked for anew, for the stretch alone
    async enlarge() {
      if (location.protocol === "file:") return; // nobody answers
      const { zoom, whole } = this;
      const seen = whole.curves.flatMap((curve) => { // with the next points on both sides: lines lead there
        const places = curve.x.map((x, place) => place).filter((place) => curve.y[place] !== null);
        const begin = places.findLastIndex((place) => curve.x[place] < zoom.min);
        const end = places.findIndex((place) => curve.x[place] > zoom.max);
        return places.slice(Math.max(0, begin), end < 0 ? undefined : end + 1).map((place) => [curve, place]);
      });
      if (seen.every(([curve, place]) => curve.first[place] === curve.last[place])) return;
      const address = new URL(location.href);
      const ends = (field, choose) => choose(...seen.map(([curve, place]) => curve[field][place]));
      address.searchParams.set(whole.unit === "policy" ? "versions" : "updates", `${ends("first", Math.min)}-${ends("last", Math.max)}`);
      let part = parts.get(address.href);
      if (!part) {
        part = fetch(address).then(async (answer) => new DOMParser().parseFromString(await answer.text(), "text/html"));
        parts.set(address.href, part);
        setTimeout(() => parts.delete(address.href), KEPT_MS);
      }
      let page = null;
      try { page = await part; } catch { return; } // the pooled points stay
      const found = [...page.querySelectorAll(".curves[data-chart]")].map((one) => JSON.parse(one.dataset.chart)).find((one) => one.label === whole.label);
      if (!found || this.zoom !== zoom || this.whole !== whole) return;
      this.enlarged = true;
      this.use(found);
    }

    // each curve's point at the crosshair
    aimed() {
      const { left, idx } = this.chart.cursor;
      if (idx === null || idx === undefined || left < 0) return [];
      const x = this.chart.data[0][idx];
      return this.data.curves.map((curve) => [curve, nearest(curve, x)]).filter(([curve, place]) =>
        place !== null && Math.abs(this.chart.valToPos(curve.x[place], "x") - this.chart.valToPos(x, "x")) <= AIMED);
    }

    tell() {
      const { data, chart } = this;
      const held = chart && (chart.over.matches(":hover") || document.activeElement === this.area);
      const aimed = held ? this.aimed() : [];
      this.readout.hidden = aimed.length === 0;
      if (aimed.length === 0) return;
      const x = chart.data[0][chart.cursor.idx];
      this.readout.replaceChildren(element("b", { textContent: `${data.below} ${number(x)}` }), ...aimed.map(([curve, place]) => {
        const alone = curve.first[place] === curve.last[place] && curve.last[place] === x;
        const parts = [data.curves.length > 1 ? `${curve.name}: ` : "", valueText(data, curve, place), curve.note[place], this.smoothing > 0 ? `, smoothed ${number(smoothed(curve.y, this.smoothing)[place])}` : "", alone ? "" : `, ${pointName(data, curve, place)}`];
        return element("div", {}, element("span", { className: `key curve-${curve.color}` }), ` ${parts.join("")}`);
      }));
      chart.over.classList.toggle("leads", aimed.some(([curve]) => curve.link));
      const { left } = chart.cursor;
      const room = chart.over.clientWidth;
      const wide = this.readout.offsetWidth;
      const right = left + 14 + wide <= room ? left + 14 : left - 14 - wide;
      this.readout.style.left = `${Math.max(-MARGIN.left, Math.min(right, room - wide))}px`;
    }

    // the episodes of the point whose value is nearest to the pointer
    follow(after_ms = 0) {
      const { top } = this.chart.cursor;
      const away = ([curve, place]) => Math.abs(this.chart.valToPos(curve.y[place], "y") - top);
      const [first] = this.aimed().filter(([curve]) => curve.link).sort((one, other) => away(one) - away(other));
      if (!first) return;
      const [curve, place] = first;
      const [low, high] = [curve.first[place], curve.last[place]];
      const address = curve.link.replace("{version}", low === high ? low : `${low}-${high}`);
      clearTimeout(this.following);
      this.following = setTimeout(() => location.assign(address), after_ms);
    }

    onKey(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const xs = this.chart.data[0];
      const { min, max } = this.chart.scales.x;
      const at = this.chart.cursor.left >= 0 ? this.chart.cursor.idx : null;
      if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
        const seen = xs.map((x, place) => place).filter((place) => xs[place] >= min && xs[place] <= max && this.chart.data.slice(1).some((column) => typeof column[place] === "number"));
        if (!seen.length) return;
        const now = seen.indexOf(at);
        const next = now < 0 ? seen.at(-1) : seen[Math.max(0, Math.min(seen.length - 1, now + (event.key === "ArrowLeft" ? -1 : 1)))];
        this.chart.setCursor({ left: this.chart.valToPos(xs[next], "x"), top: this.chart.over.clientHeight / 2 });
      } else if (event.key === "+" || event.key === "-") {
        const middle = at === null ? (min + max) / 2 : xs[at];
        const reach = (max - min) * (event.key === "+" ? 0.25 : 1);
        const [low, high] = [Math.max(xs[0], middle - reach), Math.min(xs.at(-1), middle + reach)];
        this.zoomAll(low <= xs[0] && high >= xs.at(-1) ? null : { min: low, max: high });
      } else if (event.key === "Enter") this.follow();
      else return;
      event.preventDefault();
    }

    get fileName() {
      return ["hindcast", ...location.pathname.split("/"), this.data.label].join(" ").replace(/[^\w.]+/g, "-").replace(/-+$/, "");
    }

    saveTable() {
      const { data } = this;
      const quoted = (value) => /[",\n]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : value;
      const head = ["curve", `first ${data.unit}`, `last ${data.unit}`, data.below, data.label, "low", "high", "n"];
      const rows = data.curves.flatMap((curve) => curve.x.map((x, place) =>
        [curve.name, curve.first[place], curve.last[place], x, curve.y[place], curve.low[place], curve.high[place], curve.n[place]]).filter((row) => row[4] !== null));
      download(`${this.fileName}.csv`, new Blob([[head, ...rows].map((row) => row.map(quoted).join(",")).join("\n"), "\n"], { type: "text/csv" }));
    }

    savePicture() {
      const source = this.chart.ctx.canvas;
      const scale = devicePixelRatio;
      const line = 18 * scale;
      const named = this.data.curves.length > 1 ? this.data.curves : [];
      const canvas = element("canvas", { width: source.width, height: source.height + line * (named.length + 1.5) });
      const ctx = canvas.getContext("2d");
      ctx.fillStyle = color("--paper");
      ctx.fillRect(0, 0, canvas.width, canvas.height);
      ctx.font = `${13 * scale}px system-ui, sans-serif`;
      ctx.fillStyle = color("--ink");
      ctx.fillText(`${this.data.label}, over: ${this.data.below}`, 8 * scale, line);
      named.forEach((curve, place) => {
        ctx.fillStyle = curveColor(curve);
        ctx.fillText(`― ${curve.name}`, 8 * scale, line * (place + 2));
      });
      ctx.drawImage(source, 0, canvas.height - source.height);
      canvas.toBlob((blob) => download(`${this.fileName}.png`, blob));
    }
  }

  // what the columns of a chart depend on: equal ones need no new chart
  function shapeOf(data) {
    return [data.below, data.shares, data.curves.map((curve) => [curve.name, curve.color])];
  }

  function drawAll() {
    const seen = new Set();
    for (const host of document.querySelectorAll(".curves[data-chart]")) {
      const { label } = JSON.parse(host.dataset.chart);
      const key = label.replace(/\W+/g, "-");
      seen.add(key);
      if (!plots.has(key)) plots.set(key, new Plot(key));
      plots.get(key).show(host);
    }
    for (const [key, plot] of plots) {
      if (seen.has(key)) continue;
      plot.sizes.disconnect();
      plot.chart.destroy();
      plots.delete(key);
    }
    for (const controls of document.querySelectorAll(".chart-controls")) {
      const [range, box] = controls.querySelectorAll("input");
      controls.hidden = false;
      range.value = settings.smoothing;
      controls.querySelector("output").textContent = settings.smoothing;
      box.checked = settings.log;
    }
  }

  document.addEventListener("input", (event) => {
    const controls = event.target.closest(".chart-controls");
    if (!controls) return;
    const [range, box] = controls.querySelectorAll("input");
    Object.assign(settings, { smoothing: Number(range.value), log: box.checked });
    controls.querySelector("output").textContent = range.value;
    try { localStorage.setItem(STORED, JSON.stringify(settings)); } catch { /* they hold for this page */ }
    for (const plot of plots.values()) if (!plot.data.shares) plot.draw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { for (const plot of plots.values()) plot.chart.redraw(false); });
  document.addEventListener("renewed", drawAll); // page.js has put new values into the page
  drawAll();
})();
