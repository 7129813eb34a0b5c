// theory.propagate in plain JavaScript, for one input mean and deviation; tests hold the two equal to 1e-6.
// Names and formulas are those of src/stiefel_init/theory/: see there for the reasons.
"use strict";

const Theory = (() => {
  const ROOT_2PI = Math.sqrt(2 * Math.PI);
  const TAIL = -2, SMALL_STD = 0.5, REACH = 7.5, POINTS = 40, FAR = 9.4;  // enough for 1e-6 after a thousand layers
  const SELU_ALPHA = 1.6732632423543772, SELU_SCALE = 1.0507009873554805;

  const density = (x) => Math.exp(-0.5 * x * x) / ROOT_2PI;

  // erfcx(x) = e^{x²} erfc(x) for x ≥ 0: a series with positive terms for small x, a continued fraction for large ones.
  function erfcx(x) {
    if (x < 2) {
      let term = x, sum = x;
      for (let k = 1; term > 1e-18 * sum && k < 200; k++) sum += term *= (2 * x * x) / (2 * k + 1);
      return Math.exp(x * x) - (2 / Math.sqrt(Math.PI)) * sum;
    }
    let fraction = x;
    for (let k = 60; k > 0; k--) fraction = x + k / 2 / fraction;
    return 1 / (Math.sqrt(Math.PI) * fraction);
  }

  // The standard normal distribution function. Callers ask for Φ(α) and Φ(-α) in turn, so the last tail is kept.
  let tailOf = NaN, tail = NaN;
  function ndtr(a) {
    const x = Math.abs(a);
    if (x !== tailOf) [tailOf, tail] = [x, 0.5 * Math.exp(-0.5 * x * x) * erfcx(x / Math.SQRT2)];
    return a > 0 ? 1 - tail : tail;
  }

  // Gauss–Legendre points and weights on [-1, 1], by Newton's method.
  function legendre(count) {
    const points = [], weights = [];
    for (let i = 0; i < count; i++) {
      let x = -Math.cos((Math.PI * (i + 0.75)) / (count + 0.5)), slope = 1;
      for (let step = 0; step < 100; step++) {
        let before = 1, now = x;
        for (let k = 2; k <= count; k++) [before, now] = [now, ((2 * k - 1) * x * now - (k - 1) * before) / k];
        slope = (count * (x * now - before)) / (x * x - 1);
        const move = now / slope;
        x -= move;
        if (Math.abs(move) < 1e-15) break;
      }
      points.push(x);
      weights.push(2 / ((1 - x * x) * slope * slope));
    }
    return [points, weights];
  }

  const [GAUSS, GAUSS_WEIGHTS] = legendre(POINTS);
  const NODES = GAUSS.map((x) => ((x + 1) / 2) ** 2);  // on [0, 1], denser at 0
  const WEIGHTS = GAUSS.map((x, i) => ((x + 1) / 2) * GAUSS_WEIGHTS[i]);
  const [PANEL_NODES, PANEL_WEIGHTS] = legendre(16);

  // Points x, x + α and weights with ∫₀^∞ h(x) φ(x + α) dx = Σ w h(x). Two are kept, for α and -α.
  const lines = [0, 1].map(() => ({ alpha: NaN, ...Object.fromEntries(["x", "g", "w"].map((k) => [k, new Float64Array(POINTS)])) }));
  function halfLine(alpha) {
    const line = lines[alpha > 0 ? 1 : 0];
    if (line.alpha === alpha) return line;
    line.alpha = alpha;
    const start = Math.max(alpha, -REACH);
    const width = Math.hypot(Math.max(alpha, 0), REACH) - start;
    for (let i = 0; i < POINTS; i++) {
      const step = width * NODES[i];
      line.x[i] = start - alpha + step;
      line.g[i] = start + step;
      line.w[i] = width * WEIGHTS[i] * density(start + step);
    }
    return line;
  }

  // Mean and variance of max(α + g, 0).
  function rectified(alpha) {
    if (alpha < TAIL) {
      const { x, w } = halfLine(-alpha);
      let mean = 0, square = 0;
      for (let i = 0; i < POINTS; i++) {
        mean += w[i] * x[i];
        square += w[i] * x[i] * x[i];
      }
      return [mean, square - mean * mean];
    }
    const above = ndtr(alpha), phi = density(alpha), mean = phi + alpha * above;
    return [mean, above - mean * (phi - alpha * ndtr(-alpha))];
  }

  // E[e^{ky}; y < 0].
  function tilted(alpha, std, k) {
    const c = alpha + k * std;
    if (c > 0) return density(alpha) * erfcx(c / Math.SQRT2) * Math.sqrt(Math.PI / 2);
    return Math.exp(Math.min(k * std * (alpha + (k * std) / 2), 0)) * ndtr(-c);
  }

  const values = new Float64Array(2 * POINTS);

  // (E q/σ, Var q/σ²) of q = 1 - e^{min(y, 0)}.
  function exponentialPart(alpha, std) {
    const above = ndtr(alpha), below = ndtr(-alpha);
    if (std >= SMALL_STD) {
      const first = tilted(alpha, std, 1), second = tilted(alpha, std, 2);
      const variance = alpha < 0
        ? above + second - (above + first) ** 2
        : below - 2 * first + second - (below - first) ** 2;
      return [(below - first) / std, variance / std ** 2];
    }
    const bulk = Math.max(-alpha, 0), upper = Math.expm1(std * Math.min(bulk, 40)) / std;
    const { x, g, w } = halfLine(alpha), at = bulk > 0 ? g : x;
    let mean = 0, centre = above * upper;
    for (let i = 0; i < POINTS; i++) {
      values[i] = Math.expm1(-std * at[i]) / std;
      centre += w[i] * values[i];
      mean -= w[i] * (bulk > 0 ? Math.expm1(-std * x[i]) / std : values[i]);
    }
    let spread = above * (upper - centre) ** 2;
    for (let i = 0; i < POINTS; i++) spread += w[i] * (values[i] - centre) ** 2;
    return [mean, Math.exp(-2 * std * bulk) * spread];
  }

  function piecewise(a) {
    return {
      f: (y) => (y > 0 ? y : a * y) + 0,
      slope: (y) => (y > 0 ? 1 : a),  // of y and, where that saves time, f(y)
      moments(alpha) {
        const [mean, variance] = rectified(alpha);
        if (a === 0) return [mean, variance];
        const [lost, lostVariance] = rectified(-alpha);
        return [mean - a * lost, variance + a * a * lostVariance + 2 * a * mean * lost];
      },
      slopeSquare: (alpha) => ndtr(alpha) + (a && a * a * ndtr(-alpha)),
    };
  }

  function exponential(a, scale) {
    return {
      f: (y) => scale * (y > 0 ? y : a * Math.expm1(y)),
      slope: (y, f) => (y > 0 ? scale : f + scale * a),
      moments(alpha, std) {
        const [mean, variance] = rectified(alpha), [q, qVariance] = exponentialPart(alpha, std);
        return [scale * (mean - a * q), scale * scale * (variance + a * a * qVariance + 2 * a * mean * q)];
      },
      slopeSquare: (alpha, std) => scale * scale * (ndtr(alpha) + a * a * tilted(alpha, std, 2)),
    };
  }

  // tanh; its moments by quadrature over both half lines.
  const tanh = {
    f: Math.tanh,
    slope: (y, f) => 1 - f * f,
    moments(alpha, std) {
      // At α = 0 both lines are one.
      const above = halfLine(-alpha), below = alpha === 0 ? above : halfLine(alpha);
      let mean = 0, square = 0, variance = 0;
      for (let i = 0; i < POINTS; i++) {
        values[i] = Math.tanh(std * above.x[i]);
        values[POINTS + i] = alpha === 0 ? -values[i] : -Math.tanh(std * below.x[i]);
        mean += above.w[i] * values[i] + below.w[i] * values[POINTS + i];
      }
      for (let i = 0; i < POINTS; i++) {
        variance += above.w[i] * (values[i] - mean) ** 2 + below.w[i] * (values[POINTS + i] - mean) ** 2;
        square += above.w[i] * (1 - values[i] ** 2) ** 2 + below.w[i] * (1 - values[POINTS + i] ** 2) ** 2;
      }
      tanh.square = square;
      return [mean / std, variance / std ** 2];
    },
    slopeSquare: () => tanh.square,  // of the moments just asked for
  };

  const ACTIVATIONS = {
    relu: piecewise(0),
    leaky_relu: piecewise(0.01),
    prelu: piecewise(0.25),
    elu: exponential(1, 1),
    selu: exponential(SELU_ALPHA, SELU_SCALE),
    tanh,
  };

  const member = (grouped) => (m, n) => ({
    aligned: true, nonNegative: grouped && Math.max(m, n) % Math.min(m, n) === 0,
  });
  const LAWS = {
    stiefel: member(false),
    permutation: member(true),
    identity: member(true),
    he: (m, n) => ({ variance: 2 / n }),
    xavier: (m, n) => ({ variance: 2 / (m + n) }),
    orthogonal: (m, n) => ({ variance: 1 / Math.max(m, n) }),
    random: () => ({ variance: 0.01 }),
  };
  const SCHEMES = ["stiefel", "permutation", "identity", "lee", "he", "xavier", "orthogonal", "random"];

  // Active share, E f'², mean and deviation of f, for one Gaussian.
  function activate(activation, mean, std) {
    if (!(std > 1e-300 * Math.abs(mean))) {
      const f = activation.f(mean);
      return [mean > 0 ? 1 : 0, activation.slope(mean, f) ** 2, f, 0];
    }
    const alpha = mean / std, [unit, variance] = activation.moments(alpha, std);
    return [ndtr(alpha), activation.slopeSquare(alpha, std), std * unit, std * Math.sqrt(variance)];
  }

  // Rows of pre-activation mean and deviation, active share, mean and deviation after, gradient factor.
  function follow(laws, widths, mean, std, activation) {
    const rows = laws.map(() => new Array(6).fill(NaN)), gains = [], squares = [];
    let active = 1;
    for (let i = 0; i < laws.length; i++) {
      const n = widths[i], m = widths[i + 1], law = laws[i], row = rows[i];
      let gain;
      if (law.aligned) {
        gain = Math.min(n / m, 1);
        [mean, std] = [mean * Math.sqrt(n / m), std * Math.sqrt(gain)];
      } else {
        gain = n * law.variance;
        [mean, std] = [0, Math.sqrt(gain) * Math.hypot(mean, std)];
      }
      if (!Number.isFinite(mean + std)) break;
      [row[0], row[1]] = [mean, std];
      let square;
      if (law.nonNegative) {
        const before = active;
        active = 1 - (1 - active) ** Math.max(Math.floor(n / m), 1);
        squares[i - 1] = before / active;
        square = active;
      } else {
        [active, square, mean, std] = activate(activation, mean, std);
      }
      [row[2], row[3], row[4]] = [active, mean, std];
      gains.push(gain);
      squares.push(square);
    }
    gains.forEach((gain, i) => { rows[i][5] = Math.sqrt(gain * squares[i]); });
    return rows;
  }

  // The first columns of Q_k in Lee's matrix.
  function leeFactor(k, columns) {
    const epsilon = 0.1, q = [];
    for (let i = 0; i < k; i++) q.push(new Float64Array(columns));
    for (let j = 1; j <= columns; j++) {
      const diagonal = epsilon * (j + epsilon) + (j - 1) * (k + epsilon);
      const length = Math.sqrt((j - 1) * (k + epsilon) ** 2 + diagonal ** 2 + (k - j) * epsilon ** 2);
      for (let i = 0; i < k; i++) q[i][j - 1] = (i < j - 1 ? -(k + epsilon) : i === j - 1 ? diagonal : epsilon) / length;
    }
    return q;
  }

  function leeMatrix(m, n, rows = m) {
    const p = Math.min(m, n), left = leeFactor(m, p), right = leeFactor(n, p), matrix = [];
    for (let i = 0; i < rows; i++) {
      const row = new Float64Array(n);
      for (let j = 0; j < n; j++) {
        let sum = 0;
        for (let k = 0; k < p; k++) sum += left[i][k] * right[j][k];
        row[j] = m === n ? Number(i === j) : sum;
      }
      matrix.push(row);
    }
    return matrix;
  }

  // What Lee's first layer makes of independent inputs: each unit's mean and variance.
  const leeUnits = new Map();
  function leeSums(m, n) {
    const key = `${m} ${n}`;
    if (!leeUnits.has(key)) {
      const units = Math.min(m, n + 1);
      const sums = leeMatrix(m, n, units).map((row) => [
        row.reduce((sum, w) => sum + w, 0), row.reduce((sum, w) => sum + w * w, 0),
      ]);
      leeUnits.set(key, sums);
    }
    return leeUnits.get(key);
  }

  // Points y and weights of the mixture of the units' normal laws, all units together.
  function mixture(units, shares) {
    const least = Math.min(...units.map(([, std]) => std));
    const most = Math.max(...units.map(([mean]) => Math.abs(mean)));
    if (least <= 1e-12 * most) return [units.map(([mean]) => mean), shares];
    const spans = units.map(([mean, std]) => [mean - FAR * std, mean + FAR * std]).sort((a, b) => a[0] - b[0]);
    const joined = [];
    for (const [low, high] of spans) {
      const last = joined[joined.length - 1];
      if (last && low <= last[1]) last[1] = Math.max(last[1], high);
      else joined.push([low, high]);
    }
    const step = 3 * least, points = [], weights = [];
    for (const [a, b] of joined) {
      const ends = [a, b];
      for (let k = 1; a + k * step < b; k++) ends.push(a + k * step);
      for (let bend = -39; bend <= 0; bend += 3) if (bend > a && bend < b) ends.push(bend);
      ends.sort((x, y) => x - y);
      for (let e = 0; e + 1 < ends.length; e++) {
        const half = (ends[e + 1] - ends[e]) / 2, middle = (ends[e + 1] + ends[e]) / 2;
        for (let i = 0; half > 0 && i < PANEL_NODES.length; i++) {
          const y = middle + half * PANEL_NODES[i];
          let weight = 0;
          units.forEach(([mean, std], u) => { weight += (shares[u] * density((y - mean) / std)) / std; });
          weight *= half * PANEL_WEIGHTS[i];
          points.push(y);
          weights.push(weight);
        }
      }
    }
    return [points, weights];
  }

  function pooled(points, weights) {
    let mean = 0, spread = 0;
    for (let i = 0; i < points.length; i++) mean += weights[i] * points[i];
    for (let i = 0; i < points.length; i++) spread += weights[i] * (points[i] - mean) ** 2;
    return [mean, Math.sqrt(spread)];
  }

  // Lee's initialization in a network whose only rectangular layer is the first.
  function leeRows(widths, mean, std, activation) {
    const [n, m] = widths, layers = widths.length - 1;
    if (widths.slice(2).some((width) => width !== m)) throw new Error("lee: hidden layers of one width only");
    let units = [[mean, std]], shares = [1];
    if (m !== n) {
      const sums = leeSums(m, n), last = m - sums.length + 1;
      const seen = new Map();  // units with one law count as one
      sums.forEach(([sum, square], i) => {
        const key = `${(sum * mean).toPrecision(13)} ${(square * std * std).toPrecision(13)}`;
        const found = seen.get(key) || [sum * mean, std * Math.sqrt(square), 0];
        found[2] += (i === sums.length - 1 ? last : 1) / m;
        seen.set(key, found);
      });
      units = [...seen.values()].map(([a, b]) => [a, b]);
      shares = [...seen.values()].map((found) => found[2]);
    }
    const [points, weights] = mixture(units, shares).map((list) => Float64Array.from(list));
    const rows = [], squares = [], count = points.length;
    let before = pooled(points, weights), fixed = false;
    for (let layer = 0; layer < layers; layer++) {
      if (fixed) {  // nothing changes any more
        rows.push([before[0], before[1], rows[layer - 1][2], before[0], before[1], NaN]);
        squares.push(squares[layer - 1]);
        continue;
      }
      let active = 0, moved = 0;
      const square = new Float64Array(count);
      for (let i = 0; i < count; i++) {
        const y = points[i], after = activation.f(y);
        if (y > 0) active += weights[i];
        const slope = activation.slope(y, after);
        square[i] = slope * slope;
        if (after !== y) moved = 1;
        points[i] = after;
      }
      squares.push(square);
      fixed = !moved;
      const after = pooled(points, weights);
      rows.push([...before, active, ...after, NaN]);
      before = after;
    }
    const left = Float64Array.from(weights);
    for (let layer = layers - 1; layer >= 0; layer--) {
      let total = 0;
      for (let i = 0; i < count; i++) total += left[i] *= squares[layer][i];
      for (let i = 0; i < count; i++) left[i] /= total || 1;
      rows[layer][5] = Math.sqrt(total);
    }
    rows[0][5] *= Math.sqrt(Math.min(n / m, 1));
    return rows;
  }

  // As stiefel_init.theory.propagate: an object with an array per column.
  function propagate(widths, { mean, std, scheme = "stiefel", activation = "relu" }) {
    const f = ACTIVATIONS[activation];
    let rows;
    if (scheme === "lee") {
      rows = leeRows(widths, mean, std, f);
    } else {
      const laws = widths.slice(1).map((m, i) => LAWS[scheme](m, widths[i]));
      if (activation !== "relu" && laws.some((law) => law.nonNegative)) return null;
      laws[0] = { ...laws[0], nonNegative: false };
      rows = follow(laws, widths, mean, std, f);
    }
    const column = (i) => rows.map((row) => row[i]);
    const post = column(4);
    // What a layer's weights do to the mean square of a gradient.
    const gains = widths.slice(1).map((m, i) => {
      const n = widths[i], law = scheme === "lee" ? { aligned: true } : LAWS[scheme](m, n);
      return law.aligned ? Math.min(n / m, 1) : n * law.variance;
    });
    return {
      gains, pre_mean: column(0), pre_std: column(1), alpha: rows.map((row) => row[0] / row[1]), active: column(2),
      post_mean: column(3), post_std: post,
      variance_ratio: post.map((value, i) => (value / (i ? post[i - 1] : std)) ** 2),
      gradient_factor: column(5),
    };
  }

  return { propagate, leeMatrix, ACTIVATIONS: Object.keys(ACTIVATIONS), SCHEMES };
})();
