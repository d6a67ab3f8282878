// Pages of numbers: runs, overview, metrics, accounts, settings, comparison.
const SIGNS = {error: '✕ error', warning: '▲ warning', info: 'i note'};
const STATES = {running: '▶', stalled: '‖', finished: '✓', 'ended early': '■', 'episodes only': '≡', 'without a step': '…'};

PAGES.runs = {title: 'Runs', async draw(page) {
  const draw = async () => {
    const runs = (await get('runs')).runs;
    state.runs = runs;
    put(page, el('h2', {}, 'Runs'), el('p', {class: 'dim'}, `${runs.length} run${runs.length === 1 ? '' : 's'}; tick those that are drawn over each other.`),
      el('div', {class: 'scroll'}, el('table', {class: 'wide'}, el('thead', {}, el('tr', {}, ['', 'run', 'state', 'step', 'reward', 'over the run', 'held-out', 'worst finding', 'recipe', 'seed', 'environment', 'episodes', 'last line'].map(name => el('th', {}, name)))),
        el('tbody', {}, runs.slice().reverse().map(runRow)))));
  };
  refresh = draw;
  await draw();
}};

function runRow(one) {
  const drawn = new Set(overlaid());
  const tick = el('input', {type: 'checkbox', 'aria-label': 'draw ' + one.run, onchange: event => {
    if (event.target.checked) drawn.add(one.run); else drawn.delete(one.run);
    note({runs: [...drawn].join(',')});
  }});
  tick.checked = drawn.has(one.run);
  return el('tr', {}, el('td', {}, tick), el('td', {title: one.path, class: 'tight'}, link('overview', {run: one.run}, one.run)), el('td', {class: 'state'}, (STATES[one.state] || '') + ' ' + one.state),
    el('td', {class: 'tight'}, number(one.step) + (one.steps ? ' / ' + number(one.steps) : '')), el('td', {}, number(one.reward)), el('td', {}, sparkline(one.spark)), el('td', {}, number(one.held_out)),
    el('td', {class: 'sentence'}, one.finding ? [severity(one.finding.severity), ' ', one.finding.sentence] : '–', one.bad_lines ? el('div', {class: 'problem'}, `${one.bad_lines} lines could not be read`) : null),
    el('td', {}, one.recipe), el('td', {}, one.seed === null ? '–' : String(one.seed)), el('td', {class: 'narrow', title: one.env}, one.env.split('?')[0]), el('td', {}, number(one.episodes)), el('td', {class: 'tight'}, ago(one.last)));
}

function severity(name) { return el('b', {class: 'severity ' + name}, SIGNS[name] || name); }

PAGES.overview = {title: 'Overview', async draw(page, alive) {
  const ends = new Map();
  leaving.push(() => { for (const end of ends.values()) end(); });
  const draw = async () => {
    const told = await get('overview', {run: current()});
    const columns = [...new Set(told.charts.flatMap(one => one.columns))];
    const [reply, known] = columns.length ? await Promise.all([get('series', {runs: told.run.run, columns: [...columns, 'eval/standard_error'].join(','), width: 900}), get('columns', {runs: told.run.run})]) : [{series: {}}, {columns: []}];
    if (!alive()) return;
    const open = new Set([...page.querySelectorAll('details[data-keep][open]')].map(node => node.dataset.keep));
    for (const end of ends.values()) end();
    ends.clear();
    const of = Object.fromEntries(known.columns.map(one => [one.name, one]));
    const titles = Object.fromEntries(known.columns.map(one => [one.name, one.title]));
    const marks = told.findings.filter(one => one.severity !== 'info').map(one => ({step: one.since, severity: one.severity}));
    const grid = el('div', {class: 'charts'});
    put(page, BOOT.title ? el('h2', {}, BOOT.title) : el('h2', {}, told.run.run), BOOT.lead ? el('p', {}, BOOT.lead) : null, factsOf(told), findings(told), judges(told.judges), cluster(told.cluster),
      told.charts.length ? el('h2', {}, 'Charts') : el('p', {}, told.run.step ? 'No step has a reward or a loss.' : 'No step was finished.'), grid, examples(told));
    for (const node of page.querySelectorAll('details[data-keep]')) if (open.has(node.dataset.keep)) node.open = true;
    for (const one of told.charts) {
      const card = el('section', {class: 'card'});
      grid.append(card);
      const info = one.columns.map(name => (titles[name] || name) + ': ' + (of[name] ? of[name].info : '')).join(' ');
      ends.set(card, chart(card, linesOf(reply, one.columns, titles), {title: one.title, info, marks}));
    }
  };
  refresh = draw;
  await draw();
}};

function factsOf(told) {
  const run = told.run, facts = [['state', (STATES[run.state] || '') + ' ' + run.state], ['step', number(run.step) + (run.steps ? ' / ' + number(run.steps) : '')], ['reward', number(run.reward)]];
  told.held_out.forEach((one, place) => facts.push([`held-out reward ${place ? 'after' : 'before'}`, number(one.mean) + (one.error === undefined ? '' : ' ± ' + number(one.error, 2))]));
  for (const [name, value] of Object.entries(BOOT.facts || {})) facts.push([name, value]);
  facts.push(['recipe', run.recipe || '–'], ['episodes kept', number(run.episodes)], ['environment', run.env || '–']);
  return el('div', {class: 'facts'}, facts.map(([name, value]) => el('div', {}, el('span', {class: 'dim'}, name), el('b', {}, value))));
}

function findings(told) {
  const open = told.findings.filter(one => one.status === 'open'), closed = told.findings.filter(one => one.status !== 'open');
  const one = finding => el('li', {class: 'finding ' + finding.severity}, severity(finding.severity), finding.state ? el('span', {class: 'chip'}, finding.state) : null, ' ', finding.sentence,
    el('div', {class: 'dim'}, `since step ${number(finding.since)}`, finding.cause ? `, a consequence of ${finding.cause}` : '', finding.status === 'open' ? '' : `, closed at step ${number(finding.step)}`),
    finding.remedy ? el('div', {}, 'To do: ', el('code', {}, finding.remedy)) : null,
    finding.evidence.length ? el('div', {}, 'Evidence: ', finding.evidence.map((name, place) => [place ? ', ' : '', link('metrics', {search: '^(' + finding.evidence.map(escaped).join('|') + ')$'}, name)])) : null);
  return [el('h2', {}, 'Findings'), open.length ? el('ul', {class: 'findings'}, open.map(one)) : el('p', {class: 'dim'}, told.notices.length ? 'An older version made this run: it left notices.' : 'Nothing is found wrong.'),
    closed.length ? el('details', {'data-keep': 'closed'}, el('summary', {}, `${closed.length} closed`), el('ul', {class: 'findings'}, closed.map(one))) : null,
    told.notices.length ? [el('h3', {}, 'Notices'), el('ul', {}, told.notices.map(text => el('li', {}, text)))] : null];
}

function escaped(text) { return text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'); }

function judges(all) {
  if (!all.length) return null;
  return [el('h2', {}, 'Judges'), all.map(({reward, judge}) => judge.measures === null || judge.measures === undefined
    ? el('p', {class: 'problem'}, `The reward ${reward} comes from the model ${judge.model}, whose error was never measured: measure it with `, el('code', {}, 'ludus check-judge URL --model MODEL --out card.json'), " and add card=card.json to the judge's options.")
    : [el('p', {}, `The reward ${reward} comes from the model ${judge.model}. Its measured error:`), el('table', {}, el('tr', {}, ['measure', 'rate', '95% interval', 'cases', 'without error'].map(name => el('th', {}, name))),
      judge.measures.map(one => el('tr', {}, [one.name, one.rate ? number(one.rate.value) : 'not measured', one.rate ? `${number(one.rate.low)} to ${number(one.rate.high)}` : '–', `${one.events} of ${one.trials}`, number(one.ideal)].map(cell => el('td', {}, cell)))))])];
}

function cluster(told) {
  if (!told) return null;
  const row = one => el('tr', {}, [one.name, one.state, one.node || '–', one.pid ? String(one.pid) : '–', number(one.restarts)].map(cell => el('td', {}, cell)));
  return [el('h2', {}, 'On the cluster'), el('p', {}, 'Stage: ', el('b', {}, told.stage)),
    el('div', {class: 'scroll'}, el('table', {class: 'wide'}, el('tr', {}, ['process', 'state', 'node', 'pid', 'restarts'].map(name => el('th', {}, name))), told.processes.map(row))),
    el('details', {'data-keep': 'cluster'}, el('summary', {}, `${told.events.length} events`), el('ul', {}, told.events.slice().reverse().map(one => el('li', {}, el('span', {class: 'dim'}, ago(one.time)), ' ', one.what))))];
}

function examples(told) {
  const pair = one => el('li', {}, link('side', {ids: one.before + ',' + one.after}, one.task), ' ', rewardChip(one.low), ' → ', rewardChip(one.high));
  return [told.instructive.length ? [el('h2', {}, 'Held-out tasks before and after, where the reward rose most'), el('ul', {class: 'plain'}, told.instructive.map(pair))] : null,
    told.kept.length ? [el('h2', {}, 'Kept episodes of the last steps'), el('ul', {class: 'plain'}, told.kept.map(row => el('li', {}, link('episode', {id: row.id}, `${row.kept} of step ${row.step}`), ' ', rewardChip(row.reward), ' ', row.task, ' ', el('span', {class: 'dim'}, row.text))))] : null];
}

PAGES.metrics = {title: 'Metrics', async draw(page, alive) {
  const runs = overlaid().join(','), known = await get('columns', {runs});
  if (!alive()) return;
  const ends = new Map(), due = new Set();
  const settings = {log: route.query.log === '1', smooth: Number(route.query.smooth || 0), seeds: route.query.seeds !== '0'};
  const draw = async card => {
    const name = card.dataset.column, column = card.column;
    const reply = await get('series', {runs, columns: name + (name === 'eval/mean' ? ',eval/standard_error' : ''), width: 400, bands: settings.seeds ? 1 : ''});
    if (!alive()) return;
    await new Promise(requestAnimationFrame);  // what was read and what is drawn are two tasks
    if (ends.has(card)) ends.get(card)();
    const lines = linesOf(reply, [name]);
    ends.set(card, chart(card, settings.seeds ? families(lines, reply) : lines, {title: column.title, info: column.info, name, log: settings.log, smooth: settings.smooth}));
  };
  // One chart a frame, so that a page of a hundred charts never holds the browser.
  let busy = false;
  const work = async () => {
    if (busy) return;
    busy = true;
    for (const card of due) { due.delete(card); await draw(card); await new Promise(requestAnimationFrame); if (!alive()) break; }
    busy = false;
  };
  const seen = new IntersectionObserver(entries => {
    for (const entry of entries) {
      entry.target.seen = entry.isIntersecting;
      if (entry.isIntersecting && !ends.has(entry.target)) due.add(entry.target); else if (!entry.isIntersecting) due.delete(entry.target);
    }
    work();
  }, {rootMargin: '200px'});
  leaving.push(() => { seen.disconnect(); for (const end of ends.values()) end(); });
  const again = () => { for (const [card, end] of ends) { end(); ends.delete(card); if (card.seen) due.add(card); } work(); };
  refresh = () => { for (const card of ends.keys()) if (card.seen) due.add(card); return work(); };

  const cards = known.columns.map(column => {
    const card = el('section', {class: 'card', 'data-column': column.name}, el('h3', {}, column.title), el('div', {class: 'plot empty'}));
    card.column = column;
    return card;
  });
  const sections = known.groups.map(group => el('section', {class: 'group'}, el('h2', {}, group), el('div', {class: 'charts'}, cards.filter(card => card.column.group === group)))).filter(section => section.querySelector('.card'));
  const count = el('span', {class: 'dim'});
  const search = el('input', {type: 'search', placeholder: 'name or pattern', 'aria-label': 'columns', value: route.query.search || '', oninput: () => narrow()});
  const narrow = () => {
    let pattern;
    try { pattern = new RegExp(search.value, 'i'); } catch { pattern = {test: text => text.includes(search.value)}; }
    note({search: search.value});
    let left = 0;
    for (const card of cards) { card.hidden = !(pattern.test(card.column.name) || pattern.test(card.column.title)); left += !card.hidden; }
    for (const section of sections) section.hidden = !section.querySelector('.card:not([hidden])');
    put(count, `${left} of ${cards.length} columns`);
  };
  const box = (name, key, on, off) => {
    const input = el('input', {type: 'checkbox', onchange: () => { settings[key] = input.checked; note({[key]: input.checked ? on : off}); again(); }});
    input.checked = settings[key];
    return el('label', {}, input, ' ' + name);
  };
  const range = el('input', {type: 'range', min: 0, max: 0.98, step: 0.02, value: settings.smooth, 'aria-label': 'smoothing', onchange: () => { settings.smooth = Number(range.value); note({smooth: range.value === '0' ? '' : range.value}); again(); }});
  put(page, el('h2', {}, 'Metrics'), el('div', {class: 'tools'}, search, box('log scale', 'log', '1', ''), box('seeds as a band', 'seeds', '', '0'), el('label', {}, 'smoothing ', range), count, LIVE && state.runs.length > 1 ? link('runs', {}, `${overlaid().length} of ${state.runs.length} runs drawn`) : null), sections.length ? sections : el('p', {class: 'dim'}, 'no metrics'));
  narrow();
  for (const card of cards) seen.observe(card);
}};

PAGES.accounts = {title: 'Accounts', async draw(page) {
  const draw = async () => {
    const told = await get('accounts', {run: current()});
    const law = name => told.law['rollouts/' + name], total = told.fates.reduce((sum, one) => sum + one.count, 0);
    put(page, el('h2', {}, 'Accounts'), el('p', {}, 'At any moment: issued = trained + masked + waiting + in flight, counted in rollouts.'),
      law('issued') === undefined ? null : el('p', {class: 'law'}, `After the last step: ${number(law('issued'))} = ${number(law('trained'))} + ${number(law('masked'))} + ${number(law('waiting'))} + ${number(law('in_flight'))}`),
      told.fates.length ? el('table', {class: 'wide'}, el('tr', {}, ['fate', 'reason', 'rollouts', 'share', 'tokens'].map(name => el('th', {}, name))),
        told.fates.map(one => el('tr', {}, el('td', {}, (one.fate === 'trained' ? '✓ ' : '– ') + one.fate), el('td', {}, one.reason || ''), el('td', {}, number(one.count)), el('td', {}, bar(one.count / total)), el('td', {}, number(one.tokens))))) : el('p', {class: 'dim'}, 'no rollout has a fate yet'),
      told.missing ? el('p', {}, `${number(told.missing)} rollouts up to ordinal ${number(told.issued)} have no fate in the file: waiting or in flight, or lost if the run is over.`) : null);
  };
  refresh = draw;
  await draw();
}};

function bar(share) {
  return el('span', {class: 'share'}, el('span', {class: 'fill', style: {width: 100 * share + 'px'}}), ' ' + (100 * share).toFixed(1) + ' %');
}

PAGES.settings = {title: 'Settings', async draw(page) {
  const told = await get('settings', {runs: overlaid().join(',')});
  const several = told.runs.length > 1;
  const rows = told.settings.map(one => {
    const differs = several && new Set(one.values).size > 1;
    const row = el('tr', {class: differs ? 'differs' : ''}, el('td', {}, differs ? '≠ ' : '', el('code', {}, one.name)), one.values.map(value => el('td', {}, value === null ? '–' : el('code', {}, value))));
    row.differs = differs; row.words = one.name + ' ' + one.values.join(' ');
    return row;
  });
  const search = el('input', {type: 'search', placeholder: 'name or value', 'aria-label': 'settings', oninput: () => narrow()});
  const only = el('input', {type: 'checkbox', onchange: () => narrow()});
  only.checked = several;
  const narrow = () => { for (const row of rows) row.hidden = !row.words.includes(search.value) || (only.checked && !row.differs); };
  put(page, el('h2', {}, 'Settings'), el('div', {class: 'tools'}, search, several ? el('label', {}, only, ' only what differs') : null),
    rows.length ? el('div', {class: 'scroll'}, el('table', {class: 'wide'}, el('tr', {}, el('th', {}, 'setting'), told.runs.map(name => el('th', {}, name))), rows)) : el('p', {class: 'dim'}, 'no settings can be read'),
    Object.entries(told.files).map(([run, files]) => Object.entries(files).filter(([, text]) => text).map(([name, text]) => el('details', {}, el('summary', {}, `${several ? run + ': ' : ''}${name}`), el('pre', {class: 'scroll'}, text)))));
  narrow();
}};

PAGES.compare = {title: 'Compare', async draw(page, alive) {
  const told = await get('compare', {runs: overlaid().join(','), by: route.query.by, column: route.query.column});
  if (!alive()) return;
  const by = el('input', {type: 'search', placeholder: 'every setting that differs', 'aria-label': 'group by a setting', value: route.query.by || '', onchange: () => { note({by: by.value}); show(); }});
  put(page, el('h2', {}, 'Recipes compared over seeds'), LIVE ? el('div', {class: 'tools'}, el('label', {}, 'group by ', by), el('span', {class: 'dim'}, 'such as recipe, or trainer.lr')) : null);
  if (told.refused.length) {
    append(page, [el('p', {class: 'problem'}, 'These runs are not compared:'), el('ul', {}, told.refused.map(why => el('li', {}, why)))]);
    return;
  }
  const letter = recipe => 'ABCDEFGHIJKLMNOPQRSTUVWXYZ'[told.recipes.findIndex(one => one.recipe === recipe)] || recipe;
  const interval = pair => (pair ? `${number(pair[0])} to ${number(pair[1])}` : 'unknown: one seed');
  const low = Math.min(...told.recipes.flatMap(one => [...one.scores, one.iqm])), high = Math.max(...told.recipes.flatMap(one => [...one.scores, one.iqm]));
  append(page, [el('p', {class: 'dim'}, `Scores of ${told.tasks} held-out task${told.tasks === 1 ? '' : 's'} in the last evaluation. IQM: mean of the middle half of all scores. Intervals: 95 %, by drawing runs anew within each task (arXiv 2108.13264).`),
    el('table', {class: 'wide'}, el('tr', {}, ['recipe', 'seeds', 'mean', 'IQM', '95 % interval', 'would reach', 'scores of the runs'].map(name => el('th', {}, name))),
      told.recipes.map(one => el('tr', {}, el('td', {class: 'long'}, el('b', {}, letter(one.recipe)), ' ' + one.recipe), el('td', {}, String(one.runs.length)), el('td', {}, number(one.mean)), el('td', {}, number(one.iqm)), el('td', {}, interval(one.interval)), el('td', {title: 'the top of a sigmoid of reward against steps (ScaleRL)'}, one.reach), el('td', {}, strip(one, low, high))))),
    told.pairs.length ? [el('h3', {}, 'Probability that a run of the first beats a run of the second'), el('table', {}, el('tr', {}, ['first', 'second', 'probability', '95 % interval', 'more seeds (AdaStop)'].map(name => el('th', {}, name))),
      told.pairs.map(one => el('tr', {}, [letter(one.first), letter(one.second), number(one.probability), interval(one.interval), one.enough].map(cell => el('td', {}, cell)))))] : null]);
  const card = el('section', {class: 'card'});
  append(page, [el('h3', {}, 'Performance profile: share of scores above a level'), card]);
  leaving.push(chart(card, told.recipes.map(one => ({name: letter(one.recipe), run: one.recipe, column: 'share', x: told.levels, y: one.profile})), {height: 260}));
}};

/** The scores of runs as dots on a line, with the interval of the IQM as a bar. */
function strip(one, low, high) {
  const at = value => 8 + 184 * (value - low) / (high - low || 1);
  return el('svg', {class: 'strip-plot', viewBox: '0 0 200 22', role: 'img', 'aria-label': one.scores.map(value => number(value)).join(', ')},
    one.interval ? el('line', {x1: at(Math.max(low, one.interval[0])), x2: at(Math.min(high, one.interval[1])), y1: 11, y2: 11, stroke: 'currentColor', 'stroke-width': 5, opacity: 0.25}) : null,
    el('line', {x1: at(one.iqm), x2: at(one.iqm), y1: 3, y2: 19, stroke: 'currentColor', 'stroke-width': 2}),
    one.scores.map(value => el('circle', {cx: at(value), cy: 11, r: 3, fill: 'none', stroke: 'currentColor'})));
}
