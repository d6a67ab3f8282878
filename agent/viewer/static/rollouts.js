// Pages of rollouts: timeline with swimlanes, the groups of a step, tasks.
const PHASES = {queue: ['waits', '#9a9a9a'], generate: ['generates', ''], tool: ['environment', '#b08900'], verify: ['is scored', '#8a5cd0'], ready: ['waits for the learner', '#cccccc']};
const STAGES = {generate: '#0072b2', update: '#d55e00', publish: '#009e73'};

PAGES.timeline = {title: 'Timeline', async draw(page, alive) {
  const settings = {sort: route.query.sort || 'issue', most: Number(route.query.most || 256)};
  const draw = async () => {
    const told = await get('lanes', {run: current(), step: route.query.step, most: settings.most});
    if (!alive()) return;
    const choose = (name, values, key, after) => el('label', {}, name + ' ', el('select', {onchange: event => { settings[key] = event.target.value; note({[key]: event.target.value}); after(); }}, values.map(value => {
      const option = el('option', {value}, String(value));
      option.selected = String(settings[key]) === String(value);
      return option;
    })));
    const lanes = el('div', {class: 'lanes'}), step = el('input', {type: 'number', min: 1, max: told.last || 1, value: told.step || '', 'aria-label': 'last step', onchange: () => { note({step: step.value}); draw(); }});
    put(page, el('h2', {}, 'Timeline'),
      el('h3', {}, 'Stages of each step, seconds'), stageBars(told.steps),
      el('h3', {}, 'Rollouts by wall clock'),
      el('div', {class: 'tools'}, el('label', {}, 'up to step ', step), choose('rollouts', [64, 256, 512, 2000], 'most', draw), choose('order', ['issue', 'staleness', 'span', 'reward', 'tokens'], 'sort', () => swimlanes(lanes, told, settings.sort)), laneKeys(told)), lanes);
    swimlanes(lanes, told, settings.sort);
  };
  refresh = route.query.step ? null : draw;
  await draw();
}};

function stageBars(steps) {
  const last = steps.slice(-40), longest = Math.max(1e-9, ...last.map(one => Object.values(one.seconds).reduce((a, b) => a + b, 0)));
  const names = [...new Set(last.flatMap(one => Object.keys(one.seconds)))];
  const fill = name => STAGES[name] || COLOURS[(names.indexOf(name) + 3) % COLOURS.length];
  if (!last.length) return el('p', {class: 'dim'}, 'no step');
  return [el('p', {class: 'keys'}, names.map((name, place) => el('span', {class: 'key'}, el('span', {class: 'block pattern' + place % 4, style: {background: fill(name)}}), ' ' + name))),
    el('table', {class: 'stages'}, last.map(one => el('tr', {}, el('th', {}, number(one.step)), el('td', {}, el('div', {class: 'stack'}, names.filter(name => one.seconds[name]).map(name => el('span', {class: 'pattern' + names.indexOf(name) % 4, title: `${name}: ${seconds(one.seconds[name])}`, style: {background: fill(name), width: 100 * one.seconds[name] / longest + '%'}})))),
      el('td', {class: 'dim'}, seconds(Object.values(one.seconds).reduce((a, b) => a + b, 0))))))];
}

function versionHue(version, first, last) {
  return `hsl(${Math.round(200 + 140 * (last > first ? (version - first) / (last - first) : 0))} 65% 45%)`;
}

function laneKeys(told) {
  const versions = told.rollouts.map(one => one.newest).filter(one => one !== null), first = Math.min(...versions), last = Math.max(...versions);
  return el('span', {class: 'keys'}, Object.entries(PHASES).map(([name, [words, fill]]) => el('span', {class: 'key'}, el('span', {class: 'block', style: {background: fill || versionHue(last, first, last)}}), ' ' + words)),
    Number.isFinite(first) ? el('span', {class: 'dim'}, `hue: weights of version ${first} to ${last}`) : null);
}

/** A row for each rollout, from its issue to the step that used it. */
function swimlanes(host, told, order) {
  const ends = new Map(told.steps.map(one => [one.step, one.end]));
  const rows = told.rollouts.map(one => {
    const played = one.spans.reduce((sum, [, length]) => sum + length, 0) || one.seconds;
    return {...one, end: one.started + played, used: Math.max(ends.get(one.step) || 0, one.started + played)};
  });
  const sorts = {issue: one => one.started, staleness: one => -((one.step - 1) - (one.oldest ?? one.step - 1)), span: one => -(one.end - one.started), reward: one => one.reward ?? -Infinity, tokens: one => -(one.tokens || 0)};
  rows.sort((a, b) => sorts[order](a) - sorts[order](b) || a.ordinal - b.ordinal);
  if (!rows.length) { put(host, el('p', {class: 'dim'}, 'No rollout has a start time: this run was made by an older version, or has no step.')); return; }
  const first = Math.min(...rows.map(one => one.started)), last = Math.max(...rows.map(one => one.used));
  const height = rows.length <= 48 ? 16 : rows.length <= 512 ? 4 : 2, width = Math.max(400, host.clientWidth || document.getElementById('main').clientWidth - 40), left = height > 8 ? 170 : 6;
  const versions = rows.map(one => one.newest).filter(one => one !== null), low = Math.min(...versions), high = Math.max(...versions);
  const canvas = el('canvas', {tabindex: 0, role: 'img', 'aria-label': `${rows.length} rollouts over ${seconds(last - first)}; the table under it has the same`});
  const scale = window.devicePixelRatio || 1;
  canvas.width = width * scale; canvas.height = (rows.length * height + 22) * scale;
  Object.assign(canvas.style, {width: width + 'px', height: rows.length * height + 22 + 'px'});
  const context = canvas.getContext('2d'), x = time => left + (width - left - 8) * (time - first) / (last - first || 1);
  context.scale(scale, scale);
  context.font = '11px system-ui';
  for (const one of told.steps) if (one.end && one.end >= first) {
    context.fillStyle = colour('line'); context.fillRect(x(one.end), 0, 1, rows.length * height);
    const update = one.seconds.update || 0;
    context.fillStyle = colour('band'); context.fillRect(x(one.end - update - (one.seconds.publish || 0)), 0, Math.max(1, x(one.end) - x(one.end - update)), rows.length * height);
  }
  rows.forEach((one, row) => {
    const y = row * height, thick = Math.max(1, height - (height > 3 ? 1 : 0));
    let at = one.started;
    const block = (name, length) => {
      const from = x(at), wide = Math.max(0.6, x(at + length) - from);
      context.fillStyle = PHASES[name] && PHASES[name][1] || (one.newest === null ? '#777' : versionHue(one.newest, low, high));
      const slim = name === 'queue' || name === 'ready';
      context.fillRect(from, y + (slim ? thick * 0.35 : 0), wide, slim ? Math.max(1, thick * 0.3) : thick);
      at += length;
    };
    for (const [name, length] of one.spans.length ? one.spans : [['generate', one.seconds]]) block(name, length);
    block('ready', Math.max(0, one.used - at));
    if (height > 8) { context.fillStyle = colour('ink'); context.fillText(`${one.ordinal} ${plain(one.task)}`.slice(0, 26), 2, y + 12); }
  });
  context.fillStyle = colour('dim');
  for (let tick = 0; tick <= 6; tick++) context.fillText(seconds(Math.round((last - first) * tick / 6 * 10) / 10), Math.min(width - 44, x(first + (last - first) * tick / 6)), rows.length * height + 14);
  const tip = el('p', {class: 'tip', 'aria-live': 'polite'}, 'Point at a rollout, or use the arrow keys.');
  let at = -1;
  const tell = row => {
    at = Math.max(0, Math.min(rows.length - 1, row));
    const one = rows[at], phases = {};
    for (const [name, length] of one.spans) phases[name] = (phases[name] || 0) + length;
    put(tip, `rollout ${one.ordinal} of group ${one.grp}, ${one.task}: step ${one.step}, ${one.fate}${one.reason ? ' (' + one.reason + ')' : ''}, reward ${number(one.reward)}, ${number(one.tokens)} tokens, versions ${number(one.oldest)} to ${number(one.newest)}; `,
      Object.entries(phases).map(([name, length]) => `${PHASES[name] ? PHASES[name][0] : name} ${seconds(length)}`).join(', '), '. ', link('steps', {step: one.step}, 'its step'));
  };
  canvas.addEventListener('mousemove', event => tell(Math.floor(event.offsetY / height)));
  canvas.addEventListener('keydown', event => { const by = {ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20}[event.key]; if (by) { tell(at + by); event.preventDefault(); } });
  put(host, tip, canvas);
}

PAGES.steps = {title: 'Steps', async draw(page, alive) {
  const draw = async () => {
    const told = await get('steps', {run: current(), step: route.query.step});
    if (!alive()) return;
    if (told.step === null || told.step === undefined) { put(page, el('h2', {}, 'Steps'), el('p', {class: 'dim'}, 'no rollout has a fate yet')); return; }
    const turn = by => { const next = Math.max(told.first, Math.min(told.last, told.step + by)); note({step: next}); draw(); };
    const input = el('input', {type: 'number', min: told.first, max: told.last, value: told.step, 'aria-label': 'step', onchange: () => { note({step: input.value}); draw(); }});
    put(page, el('h2', {}, `Groups of step ${told.step}`), el('div', {class: 'tools'}, LIVE ? [el('button', {onclick: () => turn(-1)}, '← before'), input, el('button', {onclick: () => turn(1)}, 'next →')] : null,
      el('span', {class: 'dim'}, `A row is a group: rollouts of one task. ${OUTCOMES.good[0]} reward 1 or more, ${OUTCOMES.between[0]} between, ${OUTCOMES.bad[0]} 0 or less, ${OUTCOMES.lost[0]} none. A frame: kept, and opens.`)),
      el('div', {class: 'scroll'}, el('table', {class: 'wide'}, el('tr', {}, ['group', 'task', 'mean', 'rollouts'].map(name => el('th', {}, name))), told.groups.map(groupRow))));
  };
  refresh = route.query.step ? null : draw;
  await draw();
}};

function groupRow(group) {
  const kept = group.rollouts.filter(one => one.episode);
  return el('tr', {}, el('td', {}, String(group.group)), el('td', {}, kept.length > 1 ? link('side', {ids: kept.map(one => one.episode).slice(0, 6).join(',')}, group.task) : group.task), el('td', {}, number(group.mean), group.equal ? el('span', {class: 'dim', title: 'all rewards are the same: nothing to compare'}, ' =') : null),
    el('td', {class: 'cells'}, group.rollouts.map(one => {
      const kind = outcome(one.reward), words = `rollout ${one.ordinal}: reward ${number(one.reward)}, ${one.fate}${one.reason ? ', ' + one.reason : ''}, ${number(one.tokens)} tokens, ${seconds(one.seconds)}, versions ${number(one.oldest)} to ${number(one.newest)}`;
      const cell = el(one.episode ? 'a' : 'span', {class: `cell ${kind}${one.fate === 'trained' ? '' : ' masked'}${one.episode ? ' kept' : ''}`, title: words, href: one.episode ? address('episode', {id: one.episode}) : null}, OUTCOMES[kind][0] + (one.reward === null ? '' : ' ' + number(one.reward, 1)));
      return cell;
    })));
}

PAGES.tasks = {title: 'Tasks', async draw(page, alive) {
  const draw = async () => {
    const told = await get('tasks', {run: current(), passing: route.query.passing});
    if (!alive()) return;
    const search = el('input', {type: 'search', placeholder: 'task', 'aria-label': 'task', oninput: () => fill()});
    const order = el('select', {'aria-label': 'order', onchange: () => fill()}, [['worst', 'lost most'], ['gained', 'gained most'], ['hard', 'solved least'], ['plays', 'played most']].map(([value, words]) => el('option', {value}, words)));
    const body = el('tbody'), left = el('span', {class: 'dim'});
    const sorts = {worst: one => one.late - one.early, gained: one => one.early - one.late, hard: one => one.solved / one.plays, plays: one => -one.plays};
    const fill = () => {
      const rows = told.tasks.filter(one => one.task.includes(search.value)).sort((a, b) => sorts[order.value](a) - sorts[order.value](b)).slice(0, 300);
      put(left, `${rows.length} of ${told.count} tasks`);
      put(body, rows.map(one => el('tr', {}, el('td', {}, link('episodes', {task: one.task}, one.task)), el('td', {}, number(one.plays)), el('td', {}, bar(one.solved / one.plays)), el('td', {}, bar(one.early)), el('td', {}, one.first === one.last ? '' : one.late > one.early ? '↑' : one.late < one.early ? '↓' : '='), el('td', {}, bar(one.late)), el('td', {}, number(one.mean)), el('td', {}, `${one.first} to ${one.last}`))));
    };
    put(page, el('h2', {}, 'Tasks'), el('p', {}, `${number(told.count)} tasks: ${number(told.always)} always solved, ${number(told.never)} never, ${number(told.forgotten)} solved in the first half of their steps and not in the last. Solved: a reward above 0.`), el('div', {class: 'tools'}, search, order, left),
      el('table', {class: 'wide'}, el('thead', {}, el('tr', {}, ['task', 'plays', 'solved', 'first steps', '', 'last steps', 'mean reward', 'steps'].map(name => el('th', {}, name)))), body));
    fill();
  };
  refresh = null;
  await draw();
}};
