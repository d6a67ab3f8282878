// The table of episodes: of any number, with some forty rows in the document.
const ROW = 28, WINDOW = 100;
const CELLS = [['step', 'step'], ['split', 'split'], ['task', 'task'], ['idx', '#'], ['reward', 'reward'], ['stop', 'ended by'], ['turns', 'turns'], ['tokens', 'tokens'], ['text', 'last answer'], ['kept', 'kept as'], ['windows', 'windows'], ['summaries', 'summaries'], ['calls', 'calls'], ['status', 'status'], ['seconds', 'seconds']];  // widths: .row in page.css

PAGES.episodes = {title: 'Episodes', async draw(page, alive) {
  const query = () => Object.fromEntries(Object.entries(route.query).filter(([name]) => !['runs'].includes(name)).concat([['run', current()]]));
  let total = 0, at = Number(route.query.at || 0), rows = new Map(), asking = new Set(), version = 0;
  const count = el('span', {class: 'dim', 'aria-live': 'polite'});
  const body = el('div', {class: 'rows'}), view = el('div', {class: 'view', tabindex: 0, role: 'grid', 'aria-label': 'episodes', onscroll: () => frame()}, body);
  const fetchWindow = async start => {
    const mine = version;
    if (asking.has(start)) return;
    asking.add(start);
    const told = await get('episodes', {...query(), offset: start, limit: WINDOW});
    if (!alive() || mine !== version) return;
    told.rows.forEach((row, place) => rows.set(start + place, row));
    total = told.total;
    put(count, `${number(total)} of ${number(told.all)} episodes`);
    view.setAttribute('aria-rowcount', total);
    body.style.height = total * ROW + 'px';
    frame();
    return told;
  };
  const frame = () => {
    const from = Math.max(0, Math.floor(view.scrollTop / ROW) - 4), to = Math.min(total, from + Math.ceil((view.clientHeight || 600) / ROW) + 8);
    const nodes = [];
    for (let place = from; place < to; place++) {
      const row = rows.get(place);
      if (row) nodes.push(rowNode(row, place)); else fetchWindow(Math.floor(place / WINDOW) * WINDOW);
    }
    body.replaceChildren(...nodes);
  };
  const rowNode = (row, place) => el('a', {class: 'row' + (place === at ? ' at' : ''), role: 'row', 'aria-rowindex': place + 1, href: address('episode', {id: row.id, at: place, ...filtersOf()}), style: {top: place * ROW + 'px'}},
    CELLS.map(([name]) => el('span', {role: 'gridcell'}, name === 'reward' ? rewardChip(row.reward) : ['turns', 'tokens', 'windows', 'summaries', 'calls', 'step'].includes(name) ? number(row[name]) : name === 'seconds' ? number(row.seconds, 2) : row[name] === '' ? '' : String(row[name]))));
  const again = async () => { version++; rows = new Map(); asking = new Set(); view.scrollTop = 0; at = 0; return fetchWindow(0); };
  const move = by => {
    at = Math.max(0, Math.min(total - 1, at + by));
    if (at * ROW < view.scrollTop) view.scrollTop = at * ROW;
    if ((at + 1) * ROW > view.scrollTop + view.clientHeight) view.scrollTop = (at + 1) * ROW - view.clientHeight;
    frame();
  };
  view.addEventListener('keydown', event => {
    const by = {j: 1, k: -1, ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20, Home: -1e9, End: 1e9}[event.key];
    if (by) { move(by); event.preventDefault(); }
    if (event.key === 'Enter' && rows.get(at)) go('episode', {id: rows.get(at).id, at, ...filtersOf()});
  });
  const headings = el('div', {class: 'row head', role: 'row'}, CELLS.map(([name, words]) => el('button', {onclick: () => { note({sort: route.query.sort === '-' + name ? name : route.query.sort === name ? '' : '-' + name}); mark(); again(); }}, words)));
  const mark = () => [...headings.children].forEach((button, place) => {
    const [name, words] = CELLS[place], sort = route.query.sort;
    put(button, words + (sort === name ? ' ↑' : sort === '-' + name ? ' ↓' : ''));
  });
  const told = await get('episodes', {...query(), offset: 0, limit: WINDOW, choices: 1});
  if (!alive()) return;
  put(page, el('h2', {}, 'Episodes'), filterTools(told.choices, again, count), el('div', {class: 'grid'}, headings, view));
  page.classList.add('fixed');
  mark();
  told.rows.forEach((row, place) => rows.set(place, row));
  total = told.total;
  put(count, `${number(total)} of ${number(told.all)} episodes`);
  view.setAttribute('aria-rowcount', total);
  body.style.height = total * ROW + 'px';
  requestAnimationFrame(() => { if (at) view.scrollTop = Math.max(0, at * ROW - 200); frame(); view.focus({preventScroll: true}); });
  refresh = async () => { const known = total; const new_total = (await get('episodes', {...query(), offset: 0, limit: 1})).total; if (alive() && new_total !== known) { total = new_total; asking = new Set(); body.style.height = total * ROW + 'px'; frame(); } };
}};

function filtersOf() {
  return Object.fromEntries(Object.entries(route.query).filter(([name]) => [...BOOT.filters.equal, ...BOOT.filters.between, 'text', 'sort'].includes(name) || name.startsWith('part:')));
}

function filterTools(choices, again, count) {
  let waiting;
  const later = () => { clearTimeout(waiting); waiting = setTimeout(again, 150); };
  const set = (name, value) => { note({[name]: value, at: ''}); later(); };
  const choose = (name, words) => choices[name] && choices[name].length > 1 ? el('label', {}, words + ' ', el('select', {onchange: event => set(name, event.target.value)}, [['', 'any'], ...choices[name].map(value => [value, value])].map(([value, told]) => {
    const option = el('option', {value}, told);
    option.selected = (route.query[name] || '') === value;
    return option;
  }))) : null;
  const bounds = (name, words) => {
    const [low, high] = (route.query[name] || '').includes('..') ? route.query[name].split('..') : [route.query[name] || '', route.query[name] || ''];
    const from = el('input', {type: 'number', step: 'any', placeholder: 'least', value: low, 'aria-label': `least ${words}`, oninput: () => both()});
    const to = el('input', {type: 'number', step: 'any', placeholder: 'most', value: high, 'aria-label': `most ${words}`, oninput: () => both()});
    const both = () => set(name, from.value || to.value ? `${from.value}..${to.value}` : '');
    return el('label', {class: 'bounds'}, words + ' ', from, to);
  };
  const field = (name, words) => el('input', {type: 'search', placeholder: words, 'aria-label': words, value: route.query[name] || '', oninput: event => set(name, event.target.value)});
  return el('div', {class: 'tools'}, field('text', 'text in the episode'), field('task', 'task'), choose('split', 'split'), choose('stop', 'ended by'), choose('status', 'status'), choose('kept', 'kept as'), bounds('step', 'step'), bounds('reward', 'reward'),
    el('details', {class: 'more'}, el('summary', {}, 'more'), bounds('tokens', 'tokens'), bounds('turns', 'turns'), bounds('summaries', 'summaries'), choices.parts.map(name => bounds('part:' + name, 'part ' + name))),
    el('button', {onclick: () => { location.hash = address('episodes', {run: route.query.run}); }}, 'no filter'), count);
}
