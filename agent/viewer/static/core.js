// Routes and data.
const BOOT = JSON.parse(document.getElementById('boot').textContent);
const LIVE = !BOOT.data;
// --- numbers in words ----------------------------------------------------------------------------

function seconds(value) {
  if (!Number.isFinite(value)) return '–';
  if (value < 120) return number(value) + ' s';
  return value < 7200 ? (value / 60).toFixed(1) + ' min' : (value / 3600).toFixed(1) + ' h';
}

function ago(time) {
  return time ? seconds(Math.max(0, Math.round(Date.now() / 1000 - time))) + ' ago' : '–';
}

function bytes(value) {
  return value < 1e6 ? (value / 1e3).toFixed(0) + ' kB' : (value / 1e6).toFixed(1) + ' MB';
}

const OUTCOMES = {good: ['●', 'reward 1 or more'], between: ['◐', 'between'], bad: ['○', 'reward 0 or less'], lost: ['×', 'no reward']};
function outcome(reward) {
  return reward === null || reward === undefined ? 'lost' : reward >= 1 ? 'good' : reward <= 0 ? 'bad' : 'between';
}
/** A reward as sign and number, so that it is read without colour. */
function rewardChip(reward) {
  const kind = outcome(reward);
  return el('span', {class: 'chip ' + kind, title: OUTCOMES[kind][1]}, OUTCOMES[kind][0] + ' ' + (kind === 'lost' ? 'none' : number(reward)));
}

// --- data ----------------------------------------------------------------------------------------

class Gone extends Error {}

/** A view: from the server, or from the data of this file. */
async function get(view, query = {}) {
  const words = Object.entries(query).filter(([, value]) => value !== '' && value !== undefined && value !== null);
  if (!LIVE) return stored(view, Object.fromEntries(words));
  const response = await fetch(BOOT.prefix + 'api/' + view + '?' + new URLSearchParams(words));
  if (!response.ok) throw new Gone((await response.text()).slice(0, 500) || 'the server answers ' + response.status);
  return response.json();
}

/** A view out of the data of this file, which has fewer points and fewer episodes than the run. */
function stored(view, query) {
  const run = BOOT.data.runs[query.run] || Object.values(BOOT.data.runs)[0];
  if (view === 'runs') return {runs: Object.values(BOOT.data.runs).map(one => one.overview.run)};
  if (view === 'series') {
    const asked = query.columns.split(','), series = {};
    for (const [name, one] of Object.entries(BOOT.data.runs)) {
      for (const column of asked) if (one.series[column]) (series[column] ||= {})[name] = one.series[column];
    }
    return {series, bands: {}};
  }
  if (view === 'columns' || view === 'settings' || view === 'compare') return BOOT.data[view];
  if (view === 'episode') return run.episode[query.id] || {left_out: true};
  if (view === 'episodes') return filtered(run.episodes, query);
  if (view === 'steps') return run.steps[query.step] || Object.values(run.steps).pop() || {step: null, groups: []};
  return run[view];
}

/** The episodes of this file that pass the filters, as the server would choose them. */
function filtered(table, query) {
  const {equal, between} = BOOT.filters;
  const passes = row => Object.entries(query).every(([name, given]) => {
    if (equal.includes(name)) return name === 'task' ? row.task === given : given.split(',').includes(String(row[name]));
    if (name === 'text') return (row.text + ' ' + row.task).includes(given);
    const value = name.startsWith('part:') ? row.parts[name.slice(5)] : between.includes(name) ? row[name] : undefined;
    if (value === undefined && !name.startsWith('part:') && !between.includes(name)) return true;
    const [low, high] = given.includes('..') ? given.split('..') : [given, given];
    return value !== null && value !== undefined && !(low !== '' && value < Number(low)) && !(high !== '' && value > Number(high));
  });
  let rows = table.rows.filter(passes);
  if (query.sort) {
    const name = query.sort.replace(/^-/, ''), sign = query.sort.startsWith('-') ? -1 : 1;
    rows = rows.slice().sort((a, b) => (a[name] === b[name] ? 0 : (a[name] ?? -Infinity) < (b[name] ?? -Infinity) ? -sign : sign));
  }
  const offset = Number(query.offset || 0);
  return {...table, total: rows.length, rows: rows.slice(offset, offset + Number(query.limit || 200))};
}

// --- routes --------------------------------------------------------------------------------------

const PAGES = {};
let route = {page: '', query: {}};
let generation = 0;
let leaving = [];  // what ends when the page is left: observers, charts
let refresh = null;  // what the page does when the runs have changed

/** Name the page in the address; it is shown when the address has changed. */
function go(page, query = {}) { location.hash = address(page, query); }

function address(page, query = {}) {
  const words = Object.entries({run: route.query.run, runs: route.query.runs, ...query}).filter(([, value]) => value !== '' && value !== undefined && value !== null);
  const text = new URLSearchParams(words).toString();
  return '#/' + page + (text ? '?' + text : '');
}

function link(page, query, ...children) {
  return el('a', {href: address(page, query)}, ...children);
}

/** Replace words of the query without another entry in the history, and without a new page. */
function note(words) {
  Object.assign(route.query, words);
  for (const name of Object.keys(words)) if (!words[name]) delete route.query[name];
  history.replaceState(null, '', address(route.page, route.query));
}

async function show() {
  const [page, words] = location.hash.replace(/^#\/?/, '').split('?');
  const query = Object.fromEntries(new URLSearchParams(words || ''));
  if (query.run !== undefined) query.run = query.run || undefined;
  route = {page: PAGES[page] ? page : BOOT.first || (state.runs.length > 1 ? 'runs' : 'overview'), query};
  for (const end of leaving) end();
  leaving = []; refresh = null;
  const mine = ++generation, main = document.getElementById('main');
  for (const one of document.querySelectorAll('nav a')) one.toggleAttribute('aria-current', one.dataset.page === route.page);
  for (const one of document.querySelectorAll('nav a')) one.href = address(one.dataset.page, {});
  const page_node = el('div', {class: 'page'});
  try {
    await PAGES[route.page].draw(page_node, () => mine === generation);
  } catch (error) {
    put(page_node, el('p', {class: 'problem', role: 'alert'}, error.message || String(error)));
  }
  if (mine !== generation) return;  // a later page was asked for meanwhile
  document.title = PAGES[route.page].title + ' · ludus';
  put(main, page_node);
  main.scrollTop = 0;
  headline();
}

const state = {runs: [], cursor: '', at: 0};

/** The run of the page: the one of the address, else the newest. */
function current() {
  return route.query.run || (state.runs.length ? state.runs[state.runs.length - 1].run : '');
}

/** The runs that are drawn over each other. */
function overlaid() {
  if (route.query.runs) return route.query.runs.split(',');
  return state.runs.length <= 12 ? state.runs.map(one => one.run) : [current()];
}

async function poll() {
  try {
    const response = await fetch(BOOT.prefix + 'api/since?cursor=' + encodeURIComponent(state.cursor));
    if (response.status === 200) {
      const told = await response.json();
      const first = state.cursor === '';
      state.cursor = told.cursor;
      if (!first) {
        state.runs = (await get('runs')).runs;
        if (refresh) await refresh();
      }
    } else if (response.status !== 304) throw new Error('the server answers ' + response.status);
    state.at = Date.now(); state.fault = '';
  } catch (error) { state.fault = error.message; }
  headline();
  setTimeout(poll, document.hidden ? 15000 : 2000);
}

function headline() {
  const line = document.getElementById('live');
  const one = state.runs.find(run => run.run === current());
  if (!LIVE) put(line, 'A file of ' + BOOT.made + '. ' + BOOT.left_out.join(' '));
  else if (state.fault) put(line, '✕ not connected: ' + state.fault);
  else put(line, one ? `${one.run} · ${one.state} · step ${number(one.step)}${one.steps ? ' of ' + number(one.steps) : ''}` : '');
}
