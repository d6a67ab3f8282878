// Charts. A line is told apart by dashes and by its name in the legend, not by its colour alone.
const COLOURS = ['#0072b2', '#d55e00', '#009e73', '#cc79a7', '#b08900', '#56b4e9', '#8a5cd0', '#7a7a7a'];
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [4, 4], [14, 4], [1, 2], [6, 2, 1, 2]];

function styleOf(place) {
  return {stroke: COLOURS[place % COLOURS.length], dash: DASHES[(place + Math.floor(place / COLOURS.length)) % DASHES.length]};
}

function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim(); }

/** An exponential mean that starts at the first value; missing values stay missing. */
function smoothed(values, weight) {
  if (!weight) return values;
  let mean = 0, count = 0;
  return values.map(value => {
    if (value === null || value === undefined) return value;
    mean = weight * mean + (1 - weight) * value; count++;
    return mean / (1 - Math.pow(weight, count));
  });
}

/** Points with a gap where steps are missing: nothing is drawn that was not measured. */
function gapped(x, y) {
  const differences = x.slice(1).map((step, place) => step - x[place]).filter(one => one > 0).sort((a, b) => a - b);
  const usual = differences[Math.floor(differences.length / 2)] || 1;
  const steps = [], values = [];
  for (let place = 0; place < x.length; place++) {
    const before = steps.length - 1;
    if (before >= 0 && x[place] - steps[before] > 1.5 * usual) { steps.push(steps[before] + usual); values.push(null); }
    if (before >= 0 && x[place] === steps[steps.length - 1]) values[values.length - 1] = y[place];
    else { steps.push(x[place]); values.push(y[place]); }
  }
  return [steps, values];
}

/** Lines whose runs are seeds of one recipe become one line with a band, which the server has computed. */
function families(lines, reply) {
  const bands = Object.values(reply.bands || {}).flatMap(Object.values), inside = new Set(bands.flatMap(band => band.runs));
  return [...Object.entries(reply.bands || {}).flatMap(([column, of]) => Object.values(of).map(band => ({...band, column, run: band.runs[0], name: `${band.runs[0]} and ${band.runs.length - 1} more seeds`}))), ...lines.filter(line => !inside.has(line.run))];
}

/** A held-out mean gets its standard error as a band. */
function withErrors(line, errors) {
  if (line.column !== 'eval/mean' || !errors) return line;
  const known = new Map(errors.x.map((step, place) => [step, errors.y[place]]));
  const shift = sign => line.y.map((value, place) => value + sign * (known.get(line.x[place]) ?? 0));
  return {...line, low: shift(-1), high: shift(1)};
}

/** Labels of the ticks of an axis: as few digits as place each label within a hundredth of a step. */
function tickLabels(plot, ticks) {
  const shown = ticks.filter(value => value !== null);
  const gaps = shown.slice(1).map((value, place) => value - shown[place]);
  const step = Math.min(...[...gaps, ...shown.filter(Boolean)].map(Math.abs)); // a lone tick has no gap
  const rounded = (value, digits) => Number(value.toPrecision(digits));
  let digits = 1;
  while (digits < 17 && shown.some(value => Math.abs(rounded(value, digits) - value) > step / 100)) digits++;
  return ticks.map(value => {
    if (value === null) return '';
    const size = Math.abs(value), label = rounded(value, digits);
    return value && (size >= 1e6 || size < 1e-4) ? label.toExponential() : label.toLocaleString('en', {maximumFractionDigits: 20});
  });
}

/** Pixels beside a plot for the labels of its axis; the third round of the layout changes nothing. */
function roomFor(plot, labels, index, round) {
  const axis = plot.axes[index];
  if (round > 1) return axis._size;
  plot.ctx.font = axis.font[0];
  return Math.max(40, 18 + Math.max(0, ...(labels || []).map(label => plot.ctx.measureText(label).width / uPlot.pxRatio)));
}

/**
 * Draw lines into a node.
 * lines: {name, run, column, x, y, low, high}; options: {title, info, log, smooth, height, marks}
 * marks: steps at which a finding opened or closed.
 */
function chart(host, lines, options = {}) {
  const legend = el('div', {class: 'legend'}), plot = el('div', {class: 'plot'}), behind = el('div');
  const table = el('details', {class: 'behind'}, el('summary', {}, 'values'), behind);
  put(host, options.title ? heading(options) : null, plot, legend, table);
  if (!lines.length) { put(plot, el('p', {class: 'dim'}, 'no values')); return () => {}; }
  const tables = [], series = [{}], bands = [], names = [];
  lines.forEach((line, place) => {
    const style = styleOf(place), drawn = value => (options.log && !(value > 0) ? null : value);
    const few = line.x.length < 60, [x, y] = gapped(line.x, smoothed(line.y, options.smooth || 0).map(drawn));
    tables.push([x, y]);
    series.push({...style, width: 1.6, points: {show: (few && line.column !== 'share') || line.column === 'eval/mean', size: 5}, spanGaps: false});
    names.push({name: line.name, index: series.length - 1, style});
    if (line.low) {
      tables.push([line.x, line.high.map(drawn)], [line.x, line.low.map(drawn)]);
      for (let side = 0; side < 2; side++) series.push({stroke: style.stroke + '66', width: 0.5, points: {show: false}});
      bands.push({series: [series.length - 2, series.length - 1], fill: style.stroke + '2a'});
    }
  });
  const data = tables.length === 1 ? tables[0] : uPlot.join(tables);
  const ink = colour('dim'), grid = {stroke: colour('line'), width: 1};
  const values = names.map(one => {
    const value = el('b'), box = el('span', {class: 'key'}, swatch(one.style), one.name, ' ', value);
    legend.append(box);
    return value;
  });
  const told = place => names.forEach((one, at) => {
    const column = data[one.index];
    let from = place === null || place === undefined ? column.length - 1 : place;
    if (place === null || place === undefined) while (from > 0 && (column[from] === null || column[from] === undefined)) from--;
    put(values[at], number(column[from]));
  });
  const size = () => ({width: Math.max(200, plot.clientWidth || options.width || 480), height: options.height || 190});
  const drawn = new uPlot({
    ...size(), legend: {show: false}, bands, padding: [8, 16, 0, 0],
    scales: {x: {time: false}, y: options.log ? {distr: 3} : {range: (self, low, high) => (low === null ? [0, 1] : low === high ? [Math.min(0, low), low === 0 ? 1 : Math.max(0, low * 1.1)] : uPlot.rangeNum(low, high, 0.1, true))}},
    cursor: {drag: {x: true, y: false}, y: false},
    series,
    axes: [
      {stroke: ink, grid, ticks: grid, size: 30, font: '11px system-ui', values: tickLabels},
      {stroke: ink, grid, ticks: grid, size: roomFor, font: '11px system-ui', values: tickLabels},
    ],
    hooks: {
      setCursor: [self => told(self.cursor.idx)],
      draw: [self => marked(self, options.marks || [])],
    },
  }, data, plot);
  told(null);
  table.addEventListener('toggle', () => { if (table.open) put(behind, valuesTable(lines)); });
  let wide = plot.clientWidth;
  const watching = new ResizeObserver(() => { if (plot.clientWidth && plot.clientWidth !== wide) { wide = plot.clientWidth; drawn.setSize(size()); } });
  watching.observe(plot);
  return () => { watching.disconnect(); drawn.destroy(); };
}

/** A title with a button that shows how the number is computed. */
function heading(options) {
  const text = el('p', {class: 'explained', hidden: true}, options.info || '');
  const toggle = event => {
    text.hidden = !text.hidden;
    event.currentTarget.setAttribute('aria-expanded', String(!text.hidden));
  };
  const button = el('button', {class: 'info', 'aria-label': 'how it is computed', 'aria-expanded': 'false', onclick: toggle}, 'i');
  return [el('h3', {}, options.title, options.info ? [' ', button] : null, options.name ? [' ', el('code', {class: 'dim'}, options.name)] : null), text];
}

function swatch(style) {
  return el('svg', {class: 'swatch', viewBox: '0 0 28 8', 'aria-hidden': 'true'}, el('line', {x1: 0, y1: 4, x2: 28, y2: 4, stroke: style.stroke, 'stroke-width': 2.5, 'stroke-dasharray': style.dash.join(' ') || null}));
}

function marked(plot, marks) {
  const context = plot.ctx;
  context.save();
  for (const mark of marks) {
    const x = plot.valToPos(mark.step, 'x', true);
    if (x < plot.bbox.left || x > plot.bbox.left + plot.bbox.width) continue;
    context.strokeStyle = colour(mark.severity === 'error' ? 'bad' : 'between');
    context.setLineDash([3, 3]);
    context.beginPath(); context.moveTo(x, plot.bbox.top); context.lineTo(x, plot.bbox.top + plot.bbox.height); context.stroke();
  }
  context.restore();
}

function valuesTable(lines) {
  const rows = new Map();
  lines.forEach((line, place) => line.x.forEach((step, at) => {
    const row = rows.get(step) || rows.set(step, []).get(step);
    row[place] = line.y[at];
  }));
  const steps = [...rows.keys()].sort((a, b) => a - b), every = Math.ceil(steps.length / 200);
  return el('div', {class: 'scroll'}, el('table', {}, el('tr', {}, el('th', {}, 'step'), lines.map(line => el('th', {}, line.name))),
    steps.filter((_, place) => place % every === 0).map(step => el('tr', {}, el('td', {}, number(step)), lines.map((_, place) => el('td', {}, number(rows.get(step)[place])))))),
    every > 1 ? el('p', {class: 'dim'}, `every ${every}th of ${steps.length} steps`) : null);
}

function sparkline(values) {
  const known = values.filter(value => value !== null);
  if (known.length < 2) return el('span', {class: 'dim'}, '–');
  const low = Math.min(...known), high = Math.max(...known), span = high - low || 1;
  const points = values.map((value, place) => `${(100 * place / (values.length - 1)).toFixed(1)},${(20 - 18 * (value - low) / span).toFixed(1)}`);
  return el('svg', {class: 'spark', viewBox: '0 0 100 22', role: 'img', 'aria-label': `reward from ${number(known[0])} to ${number(known[known.length - 1])}`}, el('polyline', {points: points.join(' '), fill: 'none', stroke: 'currentColor', 'stroke-width': 1.5}));
}

/** Lines of columns for runs, from a reply of the view `series`. */
function linesOf(reply, columns, titles = {}) {
  const lines = [];
  for (const column of columns) {
    for (const [run, line] of Object.entries(reply.series[column] || {})) {
      const many = new Set(columns.flatMap(name => Object.keys(reply.series[name] || {}))).size > 1;
      const name = columns.length > 1 ? (titles[column] || column) + (many ? ' · ' + run : '') : run;
      lines.push(withErrors({name, run, column, x: line.x, y: line.y}, (reply.series['eval/standard_error'] || {})[run]));
    }
  }
  return lines;
}
