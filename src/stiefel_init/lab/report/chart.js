// Draws every figure.chart of the page from its JSON: hover for values, drag to zoom, double-click or Reset to see all
// again, click a name to switch its line off.
(() => {
  const make = (name, attributes, parent, text) => {
    const svg = ["svg", "g", "path", "line", "text", "rect", "circle", "clipPath"].includes(name);
    const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    if (parent) parent.append(node);
    return node;
  };
  const show = (v) => {
    const size = Math.abs(v);
    if (v && (size < 1e-3 || size >= 1e6)) return v.toExponential(1).replace(".0e", "e");
    return String(+v.toPrecision(4));
  };
  const ticks = (low, high, log, count) => {
    if (log) {
      const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
      const step = Math.max(1, Math.ceil((last - first + 1) / count));
      const found = [];
      for (let e = first; e <= last; e += step) found.push(10 ** e);
      if (found.length > 1) return found;
    }
    const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw) || raw;
    const found = [];
    for (let i = Math.ceil(low / step); i * step <= high + 1e-9 * step; i++) found.push(+(i * step).toPrecision(12));
    return found;
  };
  const axis = (low, high, log, from, to) => {
    const f = log ? Math.log : (v) => v, a = f(low), b = f(high);
    const place = (v) => from + ((f(v) - a) / (b - a || 1)) * (to - from);
    place.back = (p) => { const v = a + ((p - from) / (to - from)) * (b - a); return log ? Math.exp(v) : v; };
    return place;
  };
  let number = 0;

  function draw(holder, panel, hidden, tip) {
    holder.replaceChildren();
    const width = Math.max(240, holder.clientWidth), height = Math.min(300, Math.max(210, width * 0.72));
    const left = 54, right = width - 10, top = 26, bottom = height - 40, id = `clip${number++}`;
    const usable = (v, log) => v !== null && v !== undefined && (!log || v > 0);
    const lines = panel.lines.filter((line) => !hidden.has(line.name));
    const span = (axisName, keys, log) => {
      let low = Infinity, high = -Infinity;
      for (const line of lines) for (const key of keys) (line[key] || []).forEach((v, i) => {
        if (!usable(v, log)) return;
        if (axisName === "y" && panel.view && (line.x[i] < panel.view.x[0] || line.x[i] > panel.view.x[1])) return;
        low = Math.min(low, v); high = Math.max(high, v);
      });
      if (low > high) return [log ? 0.1 : 0, 1];
      if (low === high) return log ? [low / 2, high * 2] : [low - (Math.abs(low) * 0.05 || 1), high + (Math.abs(high) * 0.05 || 1)];
      if (axisName === "x") return [low, high];
      return log ? [low / (high / low) ** 0.04, high * (high / low) ** 0.04] : [low - (high - low) * 0.05, high + (high - low) * 0.05];
    };
    const [x0, x1] = panel.view ? panel.view.x : span("x", ["x"], panel.logX);
    const [y0, y1] = panel.view ? panel.view.y : span("y", ["y", "low", "high"], panel.logY);
    const X = axis(x0, x1, panel.logX, left, right), Y = axis(y0, y1, panel.logY, bottom, top);
    const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${panel.title}: ${panel.y}` }, holder);
    make("rect", { x: left - 4, y: top - 4, width: right - left + 8, height: bottom - top + 8 },
      make("clipPath", { id }, svg));
    make("text", { x: left, y: 14, class: "title" }, svg, panel.title);
    const whole = lines.every((line) => line.x.every(Number.isInteger));
    for (const v of ticks(x0, x1, panel.logX, Math.max(2, Math.floor((right - left) / 60)))) {
      if (whole && !Number.isInteger(v)) continue;
      make("line", { x1: X(v), x2: X(v), y1: top, y2: bottom, class: "grid" }, svg);
      make("text", { x: X(v), y: bottom + 15, "text-anchor": "middle" }, svg, show(v));
    }
    for (const v of ticks(y0, y1, panel.logY, 5)) {
      make("line", { x1: left, x2: right, y1: Y(v), y2: Y(v), class: "grid" }, svg);
      make("text", { x: left - 6, y: Y(v) + 4, "text-anchor": "end" }, svg, show(v));
    }
    make("text", { x: (left + right) / 2, y: height - 6, "text-anchor": "middle", class: "label" }, svg, panel.x);
    make("text", { x: 0, y: 0, transform: `translate(11 ${(top + bottom) / 2}) rotate(-90)`, "text-anchor": "middle", class: "label" }, svg, panel.y);
    const area = make("g", { "clip-path": `url(#${id})` }, svg);
    for (const line of lines) {
      const good = line.x.map((v, i) => usable(v, panel.logX) && usable(line.y[i], panel.logY));
      if (line.low) {
        const kept = line.x.map((_, i) => i).filter((i) => good[i] && usable(line.high[i], panel.logY));
        const floor = (v) => (usable(v, panel.logY) ? v : y0);
        const points = kept.map((i) => `${X(line.x[i])},${Y(line.high[i])}`)
          .concat(kept.slice().reverse().map((i) => `${X(line.x[i])},${Y(floor(line.low[i]))}`));
        if (points.length > 2) make("path", { d: `M${points.join("L")}Z`, fill: line.colour, class: "band" }, area);
      }
      let path = "", pen = false;
      line.x.forEach((v, i) => {
        if (good[i]) path += `${pen ? "L" : "M"}${X(v).toFixed(1)},${Y(line.y[i]).toFixed(1)}`;
        pen = good[i];
      });
      make("path", { d: path || "M0,0", stroke: line.colour, class: "line" }, area);
      if (panel.dots || line.x.length === 1) line.x.forEach((v, i) => {
        if (good[i]) make("circle", { cx: X(v), cy: Y(line.y[i]), r: 3, fill: line.colour }, area);
      });
    }
    // Few lines have their names at their ends, below each other where they are close.
    const ends = lines.length > 4 ? [] : lines.map((line) => {
      const i = line.x.findLastIndex((v, k) => usable(v, panel.logX) && usable(line.y[k], panel.logY) && v <= x1);
      return { line, x: X(line.x[i]), y: Y(line.y[i]) - 7 };
    }).filter((end) => end.x > left && end.y > top - 8 && end.y < bottom).sort((a, b) => a.y - b.y);
    ends.forEach((end, i) => { end.y = Math.max(end.y, top + 8, i ? ends[i - 1].y + 13 : 0); });
    for (let i = ends.length - 1, most = bottom - 3; i >= 0; most = ends[i--].y - 13) ends[i].y = Math.min(ends[i].y, most);
    for (const { line, x, y } of ends) make("text", { x: x - 3, y, "text-anchor": "end", class: "name", style: `fill:${line.colour}` }, svg, line.name);
    const cursor = make("line", { y1: top, y2: bottom, class: "cursor", visibility: "hidden" }, svg);
    const box = make("rect", { class: "zoom", visibility: "hidden" }, svg);
    const at = (event) => {
      const place = svg.getBoundingClientRect();
      return [(event.clientX - place.left) * width / place.width, (event.clientY - place.top) * height / place.height];
    };
    let start = null;
    const hide = () => { tip.hidden = true; cursor.setAttribute("visibility", "hidden"); };
    svg.addEventListener("pointerdown", (event) => { if (event.pointerType === "mouse") start = at(event); });
    svg.addEventListener("pointerleave", () => { start = null; box.setAttribute("visibility", "hidden"); hide(); });
    svg.addEventListener("pointermove", (event) => {
      const [px, py] = at(event);
      if (start) {
        for (const [key, value] of Object.entries({ x: Math.min(px, start[0]), y: Math.min(py, start[1]),
          width: Math.abs(px - start[0]), height: Math.abs(py - start[1]), visibility: "visible" })) box.setAttribute(key, value);
        return hide();
      }
      const all = [...new Set(lines.flatMap((line) => line.x))].filter((v) => v >= x0 && v <= x1 && usable(v, panel.logX));
      if (!all.length || px < left - 10 || px > right + 10) return hide();
      const x = all.reduce((a, b) => (Math.abs(X(b) - px) < Math.abs(X(a) - px) ? b : a));
      cursor.setAttribute("x1", X(x)); cursor.setAttribute("x2", X(x)); cursor.setAttribute("visibility", "visible");
      tip.replaceChildren(make("b", {}, null, `${panel.x} ${show(x)}`));
      const values = lines.map((line) => [line, line.y[line.x.indexOf(x)]]).filter(([, y]) => y !== undefined && y !== null);
      for (const [line, y] of values.sort((a, b) => b[1] - a[1])) {
        const row = make("div", {}, tip);
        make("i", { style: `background:${line.colour}` }, row);
        row.append(`${line.name} ${show(y)}`);
      }
      tip.hidden = false;
      const room = holder.parentNode.getBoundingClientRect();
      tip.style.left = `${Math.max(0, Math.min(event.clientX - room.left + 14, room.width - tip.offsetWidth - 4))}px`;
      tip.style.top = `${event.clientY - room.top + 14}px`;
    });
    svg.addEventListener("pointerup", (event) => {
      if (!start) return;
      const [px, py] = at(event), [sx, sy] = start;
      start = null; box.setAttribute("visibility", "hidden");
      if (Math.abs(px - sx) < 8 || Math.abs(py - sy) < 8) return;
      panel.view = { x: [X.back(Math.min(px, sx)), X.back(Math.max(px, sx))], y: [Y.back(Math.max(py, sy)), Y.back(Math.min(py, sy))] };
      holder.parentNode.parentNode.querySelector(".reset").hidden = false;
      draw(holder, panel, hidden, tip);
    });
    svg.addEventListener("dblclick", () => { panel.view = null; draw(holder, panel, hidden, tip); });
  }

  for (const figure of document.querySelectorAll("figure.chart")) {
    const panels = JSON.parse(figure.querySelector("script").textContent), hidden = new Set();
    const legend = make("div", { class: "legend" }, figure), row = make("div", { class: "panels" }, figure);
    row.style.setProperty("--least", panels.length === 4 ? "400px" : "280px");
    const tip = make("div", { class: "tip" }, row);
    tip.hidden = true;
    const holders = panels.map(() => make("div", { class: "panel" }, row));
    const redraw = () => panels.forEach((panel, i) => draw(holders[i], panel, hidden, tip));
    const names = new Map(panels.flatMap((panel) => panel.lines.map((line) => [line.name, line.colour])));
    for (const [name, colour] of names) {
      const button = make("button", { type: "button", "aria-pressed": "true" }, legend);
      make("i", { style: `background:${colour}` }, button);
      button.append(name);
      button.addEventListener("click", () => {
        if (!hidden.delete(name)) hidden.add(name);
        button.setAttribute("aria-pressed", String(!hidden.has(name)));
        redraw();
      });
    }
    const reset = make("button", { type: "button", class: "reset" }, legend, "Reset zoom");
    reset.hidden = true;
    reset.addEventListener("click", () => { panels.forEach((panel) => { panel.view = null; }); reset.hidden = true; redraw(); });
    redraw();
    let width = row.clientWidth;
    window.addEventListener("resize", () => { if (row.clientWidth !== width) { width = row.clientWidth; redraw(); } });
  }
})();
