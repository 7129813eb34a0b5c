// The explorer: sliders, four charts, a matrix. Formulas are in theory.js, measured networks in MEASURED.
const Explorer = (() => {
  const WIDTHS = [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
  const INPUTS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 784, 1024];
  const DEPTHS = [...new Set(Array.from({ length: 121 }, (_, i) => Math.round(1000 ** (i / 120))))];
  const START = {
    scheme: "recipe", member: "uniform", activation: "relu", beside: "he", depth: 100, width: 64, inputs: 784,
    mean: 0.13, std: 0.31, seed: 1,
  };
  const SVG = "http://www.w3.org/2000/svg";
  const byId = (id) => document.getElementById(id);
  let state = { ...START };

  const nearest = (list, value) => list.reduce((best, one, i) => (Math.abs(one - value) < Math.abs(list[best] - value) ? i : best), 0);
  const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
  const name = (s) => (s.scheme === "stiefel" && s.member !== "uniform" ? s.member : s.scheme);
  const called = (scheme) => (scheme === "recipe" ? "initialize_" : scheme);
  const short = (value) => (Number.isFinite(value) ? String(Number(value.toPrecision(3))) : "—");

  // State from the address, with anything that makes no sense left at its default.
  function read() {
    const given = new URLSearchParams(location.hash.slice(1)), next = { ...START };
    for (const key of ["scheme", "member", "activation", "beside"]) {
      if ([...byId(key).options].some((option) => option.value === given.get(key))) next[key] = given.get(key);
    }
    for (const [key, list] of [["depth", DEPTHS], ["width", WIDTHS], ["inputs", INPUTS]]) {
      const value = Number(given.get(key));
      if (value > 0) next[key] = list[nearest(list, value)];
    }
    for (const [key, low, high] of [["mean", -6, 12], ["std", 0.01, 2], ["seed", 1, 1e9]]) {
      const text = given.get(key);
      if (text !== null && text !== "" && Number.isFinite(Number(text))) next[key] = clamp(Number(text), low, high);
    }
    next.seed = Math.round(next.seed);
    state = next;
  }

  function address() {
    const pairs = Object.entries(state).filter(([key, value]) => value !== START[key]);
    return pairs.length ? `#${new URLSearchParams(pairs)}` : "#";
  }

  // Controls show the state.
  function show() {
    for (const key of ["scheme", "member", "activation", "beside"]) byId(key).value = state[key];
    byId("member").disabled = state.scheme !== "stiefel";
    byId("depth").max = DEPTHS.length - 1;
    for (const [key, list] of [["depth", DEPTHS], ["width", WIDTHS], ["inputs", INPUTS]]) {
      byId(key).value = nearest(list, state[key]);
      byId(key).setAttribute("aria-valuetext", state[key]);
      byId(`${key}-value`).value = state[key].toLocaleString("en");
    }
    const alpha = state.mean / state.std;
    for (const [key, value] of [["mean", state.mean], ["std", state.std], ["alpha", alpha]]) {
      byId(key).value = value;
      byId(`${key}-value`).value = value.toFixed(key === "alpha" ? 2 : 3);
    }
    byId("preset").value = PRESETS.findIndex((one) => ["inputs", "width", "depth", "mean", "std"].every((key) => one[key] === state[key]));
    if (byId("preset").selectedIndex < 0) byId("preset").selectedIndex = 0;
  }

  const PRESETS = [];
  for (const one of MEASURED.networks) {
    if (!PRESETS.some((known) => known.name === one.name)) PRESETS.push(one);
  }

  // Between the dots of a measured network, along the logarithm of the layer.
  function between(layers, values) {
    const line = new Array(state.depth).fill(NaN);
    for (let k = 0; k + 1 < layers.length; k++) {
      const [a, b] = [layers[k], layers[k + 1]];
      for (let i = a; i <= b; i++) line[i - 1] = values[k] + (values[k + 1] - values[k]) * Math.log(i / a) / Math.log(b / a);
    }
    return line;
  }

  // Curves of one scheme: null if it has no prediction with this activation; of the recipe, what was measured.
  function curves(scheme) {
    const found = measured(scheme), apart = found && found.measured.distinct ? between(found.layers, found.measured.distinct) : [];
    if (scheme === "recipe") {
      if (!found) return null;
      const lines = Object.fromEntries(Object.entries(found.measured).map(([key, values]) => [key, between(found.layers, values)]));
      return { ...lines, mean: lines.mean.map(Math.abs) };
    }
    const widths = [state.inputs, ...new Array(state.depth).fill(state.width)];
    const p = Theory.propagate(widths, { mean: state.mean, std: state.std, scheme, activation: state.activation });
    if (p === null) return null;
    const log = new Array(state.depth);
    let total = 0;
    for (let i = state.depth - 1; i >= 0; i--) {
      total += Math.log(p.gradient_factor[i]);
      log[i] = total - Math.log(p.gains[i]) / 2;
    }
    const top = log[state.depth - 1];
    return { std: p.pre_std, mean: p.pre_mean.map(Math.abs), active: p.active, ratio: p.variance_ratio, gradient: log.map((x) => Math.exp(x - top)), distinct: apart };
  }

  function measured(scheme) {
    return MEASURED.networks.find((one) => one.scheme === scheme && one.activation === state.activation
      && ["inputs", "width", "depth", "mean", "std"].every((key) => one[key] === state[key]));
  }

  const LEFT = 46, RIGHT = 330, TOP = 8, BOTTOM = 180;

  function element(kind, attributes, text) {
    const made = document.createElementNS(SVG, kind);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  // One chart: series are [values, class]; dots are [layers, values].
  function chart(id, series, dots, log, floor) {
    const svg = byId(id), parts = [];
    const all = [...series.flatMap(([values]) => values), ...(dots ? dots[1] : [])]
      .filter((v) => Number.isFinite(v) && (!log || v > 1e-30));
    let low = all.reduce((a, b) => Math.min(a, b), Infinity), high = all.reduce((a, b) => Math.max(a, b), -Infinity);
    if (!all.length) [low, high] = [0.1, 1];
    if (log) {
      [low, high] = [Math.floor(Math.log10(low) + 1e-9), Math.ceil(Math.log10(high) - 1e-9)];
      if (high - low < 1) low = high - 1;
      low = Math.max(low, high - 30);
    } else {
      [low, high] = [Math.min(low, floor[0]), Math.ceil(Math.max(high, floor[1]) * 4 - 1e-9) / 4];
    }
    const scale = (v) => clamp(BOTTOM - ((log ? Math.log10(v) : v) - low) / (high - low) * (BOTTOM - TOP), TOP, BOTTOM);
    const across = (layer) => (state.depth === 1 ? (LEFT + RIGHT) / 2 : LEFT + Math.log(layer) / Math.log(state.depth) * (RIGHT - LEFT));
    const step = log ? Math.max(1, Math.ceil((high - low) / 5)) : high - low <= 2 ? 0.25 : (high - low) / 4;
    for (let tick = low; tick <= high + 1e-9; tick += step) {
      const y = BOTTOM - (tick - low) / (high - low) * (BOTTOM - TOP);
      parts.push(element("line", { class: "grid", x1: LEFT, x2: RIGHT, y1: y, y2: y }));
      parts.push(element("text", { x: LEFT - 5, y: y + 4, "text-anchor": "end" }, log ? (Math.abs(tick) < 4 ? Number((10 ** tick).toPrecision(1)) : `1e${tick}`) : short(tick)));
    }
    for (const layer of [1, 3, 10, 30, 100, 300, 1000].filter((one) => one <= state.depth)) {
      parts.push(element("text", { x: across(layer), y: BOTTOM + 16, "text-anchor": "middle" }, layer));
    }
    parts.push(element("text", { x: RIGHT, y: BOTTOM + 28, "text-anchor": "end" }, "layer"));
    for (const [values, kind] of series) {
      let path = "", pen = "M", last = -1;
      for (let i = 0; i < values.length; i++) {
        const x = across(i + 1), fine = Number.isFinite(values[i]) && (!log || values[i] > 1e-30);
        if (!fine) { pen = "M"; continue; }
        if (pen === "L" && x - last < 0.5 && i + 1 < values.length) continue;
        path += `${pen}${x.toFixed(1)} ${scale(values[i]).toFixed(1)}`;
        [pen, last] = ["L", x];
      }
      parts.push(element("path", { class: kind, d: path || "M0 0" }));
    }
    if (dots) {
      dots[0].forEach((layer, i) => {
        const v = dots[1][i];
        if (v !== null && (!log || v > 1e-30)) parts.push(element("circle", { cx: across(layer), cy: scale(v), r: 3.6 }));
      });
    }
    svg.replaceChildren(...parts);
  }

  function draw() {
    const ours = curves(name(state)), other = state.beside ? curves(state.beside) : null, dots = measured(name(state));
    const at = (key) => dots && dots.measured[key] && [dots.layers, dots.measured[key]];
    const lines = (key) => [...(other ? [[other[key], "line other"]] : []), ...(ours ? [[ours[key], "line"]] : [])];
    const means = [...(other ? [[other.mean, "line other dashed"]] : []), ...(ours ? [[ours.mean, "line dashed"]] : [])]
      .filter(([values]) => values.some((v) => v > 1e-12));
    chart("distinct", lines("distinct"), at("distinct"), false, [0, state.width]);
    chart("signal", [...means, ...lines("std")], at("std"), true);
    chart("active", lines("active"), at("active"), false, [0, 1]);
    chart("gradient", lines("gradient"), at("gradient"), true);
    chart("ratio", lines("ratio"), at("ratio"), false, [0, 1]);
    byId("ours-name").textContent = called(name(state));
    byId("other-name").textContent = called(state.beside);
    byId("beside-key").hidden = !state.beside;
    const end = state.depth - 1;
    const differ = ours && ours.distinct.length
      ? `${short(ours.distinct[end])} of ${state.width} units differ in the last layer${other && other.distinct.length ? ` (${called(state.beside)}: ${short(other.distinct[end])})` : ""}; ` : "";
    byId("said").textContent = ours === null
      ? (name(state) === "recipe"
        ? "initialize_ has no prediction, only measured networks with ReLU; choose one below Measured."
        : `${name(state)} is predicted for ReLU only; choose ReLU, or the uniform member.`)
      : `${called(name(state))}: ${differ}after ${state.depth.toLocaleString("en")} layers the signal has deviation ${short(ours.std[end])} (${short(ours.std[0])} in the first), `
        + `${short(100 * ours.active[end])} % of the units fire, and ${short(ours.gradient[0])} of the gradient reaches the first layer.`
        + (dots ? ` Dots: ${dots.name}.` : " No network was measured at this setting; choose one below Measured.");
  }

  // Random numbers: a 32-bit mixer, and Box and Muller's normals.
  function source(seed) {
    let word = (seed * 0x9e3779b9) >>> 0;
    const uniform = () => {
      word = (word + 0x6d2b79f5) >>> 0;
      let t = Math.imul(word ^ (word >>> 15), word | 1);
      t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
      return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
    };
    const normal = () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
    return { uniform, normal };
  }

  // Rows orthonormalized by Gram and Schmidt, twice; with `ones`, all orthogonal to the all-ones direction.
  function orthonormal(count, size, random, ones) {
    const rows = [];
    for (let i = 0; i < count; i++) {
      const row = Float64Array.from({ length: size }, random.normal);
      for (let pass = 0; pass < 2; pass++) {
        if (ones) {
          const mean = row.reduce((a, b) => a + b, 0) / size;
          for (let k = 0; k < size; k++) row[k] -= mean;
        }
        for (const one of rows) {
          let along = 0;
          for (let k = 0; k < size; k++) along += one[k] * row[k];
          for (let k = 0; k < size; k++) row[k] -= along * one[k];
        }
        const length = Math.hypot(...row);
        for (let k = 0; k < size; k++) row[k] /= length;
      }
      rows.push(row);
    }
    return rows;
  }

  // An m × n matrix of a scheme.
  function matrix(scheme, m, n, seed) {
    const random = source(seed), p = Math.min(m, n), q = Math.max(m, n);
    const blank = () => Array.from({ length: m }, () => new Float64Array(n));
    if (scheme === "lee") return Theory.leeMatrix(m, n);
    const spread = { he: Math.sqrt(2 / n), xavier: Math.sqrt(2 / (m + n)), random: 0.1 }[scheme];
    if (spread) return blank().map((row) => row.map(() => spread * random.normal()));
    let wide;
    if (scheme === "orthogonal") {
      wide = orthonormal(p, q, random, false);
    } else if ((scheme === "permutation" || scheme === "identity") && q % p === 0) {
      const order = Array.from({ length: q }, (_, i) => i);
      if (scheme === "permutation") {
        for (let i = q - 1; i > 0; i--) {
          const j = Math.floor(random.uniform() * (i + 1));
          [order[i], order[j]] = [order[j], order[i]];
        }
      }
      wide = Array.from({ length: p }, () => new Float64Array(q));
      order.forEach((place, i) => { wide[Math.floor(place / (q / p))][i] = Math.sqrt(p / q); });
    } else {
      // ξ_pξ_qᵀ + Uᵀ V: U an orthonormal basis of the complement of the ones, V random orthonormal rows there.
      const left = orthonormal(p - 1, p, random, true), right = orthonormal(p - 1, q, random, true);
      wide = Array.from({ length: p }, (_, i) => Float64Array.from({ length: q }, (_, j) => {
        let sum = 1 / Math.sqrt(p * q);
        for (let k = 0; k < p - 1; k++) sum += left[k][i] * right[k][j];
        return sum;
      }));
    }
    return m <= n ? wide : blank().map((row, i) => row.map((_, j) => wide[j][i]));
  }

  const rgb = (text) => text.match(/\w\w/g).map((pair) => parseInt(pair, 16));

  function picture() {
    const m = Math.min(state.width, 48), n = state.inputs === state.width ? m : Math.min(state.inputs, 72);
    const W = matrix(name(state), m, n, state.seed), canvas = byId("picture"), pen = canvas.getContext("2d");
    const style = getComputedStyle(byId("explorer-tool")), colour = (key) => style.getPropertyValue(key).trim();
    const [low, zero, high] = ["--low", "--zero", "--high"].map((key) => {
      const hex = colour(key).slice(1);
      return rgb(hex.length === 3 ? [...hex].map((c) => c + c).join("") : hex);
    });
    const size = Math.max(1, Math.floor(Math.min(320 / n, 310 / m))), most = Math.max(...W.map((row) => Math.max(...row.map(Math.abs))));
    canvas.height = m * size;  // which clears it, too
    const sums = W.map((row) => row.reduce((a, b) => a + b, 0)), longest = Math.max(...sums.map(Math.abs), 1e-12);
    W.forEach((row, i) => {
      row.forEach((value, j) => {
        const t = value / most, end = t < 0 ? low : high, mixed = zero.map((z, k) => Math.round(z + (end[k] - z) * Math.abs(t)));
        pen.fillStyle = `rgb(${mixed})`;
        pen.fillRect(j * size, i * size, size, size);
      });
      pen.fillStyle = colour(sums[i] < 0 ? "--low" : "--ours");
      const base = n * size + 12 + (sums.some((s) => s < 0) ? 35 : 0), room = sums.some((s) => s < 0) ? 35 : 75;
      const length = sums[i] / longest * room;
      pen.fillRect(Math.min(base, base + length), i * size + 0.5, Math.max(1, Math.abs(length)), Math.max(1, size - 1));
    });
    byId("shape").textContent = `${m} × ${n}`;
    const least = Math.min(...sums), greatest = Math.max(...sums);
    byId("sums").textContent = greatest - least < 1e-9
      ? `All row sums are ${short(sums[0])} = √(${n}/${m}): ones map to ones.`
      : `Row sums lie between ${short(least)} and ${short(greatest)}.`;
  }

  let waiting = 0, drawn = "";
  function update() {
    show();
    draw();
    const wanted = [name(state), state.width, state.inputs, state.seed].join();
    if (wanted !== drawn) picture();
    drawn = wanted;
    clearTimeout(waiting);
    waiting = setTimeout(() => history.replaceState(null, "", address()), 200);
  }

  function begin() {
    PRESETS.forEach((one, i) => byId("preset").add(new Option(one.name, i)));
    for (const key of ["scheme", "member", "activation", "beside"]) {
      byId(key).addEventListener("change", () => { state[key] = byId(key).value; update(); });
    }
    for (const [key, list] of [["depth", DEPTHS], ["width", WIDTHS], ["inputs", INPUTS]]) {
      byId(key).addEventListener("input", () => { state[key] = list[Number(byId(key).value)]; update(); });
    }
    for (const key of ["mean", "std"]) byId(key).addEventListener("input", () => { state[key] = Number(byId(key).value); update(); });
    byId("alpha").addEventListener("input", () => {
      state.mean = Number(clamp(Number(byId("alpha").value) * state.std, -6, 12).toFixed(4));
      update();
    });
    byId("preset").addEventListener("change", () => {
      const one = PRESETS[byId("preset").value];
      if (one) for (const key of ["inputs", "width", "depth", "mean", "std"]) state[key] = one[key];
      update();
    });
    byId("again").addEventListener("click", () => { state.seed += 1; update(); });
    byId("copy").addEventListener("click", async () => {
      const link = location.href.split("#")[0] + address();
      history.replaceState(null, "", address());
      try {
        await navigator.clipboard.writeText(link);
        byId("copied").textContent = "Copied.";
      } catch {
        byId("copied").textContent = "It is in the address bar.";
      }
    });
    byId("explorer-tool").querySelector("form").addEventListener("submit", (event) => event.preventDefault());
    addEventListener("hashchange", () => {
      if (location.hash.includes("=")) { read(); update(); }  // else a heading
    });
    new MutationObserver(picture).observe(document.body, { attributes: true, attributeFilter: ["data-theme"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", picture);
    read();
    update();
  }

  begin();
  return { matrix, set: (values) => { Object.assign(state, values); update(); } };
})();
