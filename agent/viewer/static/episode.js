// One episode: tokens with overlays, windows, messages, the tree of calls, relatives side by side.
const OVERLAYS = {
  mask: ['trained or not', 'Which tokens count in the loss.'],
  logp: ['log-probability', "Log-probability that the engine reported, in nats. Dark: unlikely."],
  version: ['weights', 'Version of the weights that sampled the token.'],
  advantage: ['advantage', 'What the token has earned: above 0 made likelier (underlined), below 0 less likely (struck through).'],
  gap: ['mismatch', "Distance in nats between the learner's and the engine's log-probability."],
  entropy: ['entropy', "The learner's entropy at the token, in nats."],
};
const MASKS = {shown: 'shown to the policy, not trained', trained: 'sampled and trained', summary: 'a summary, trained', untrained: 'sampled, not trained'};
const TOKENS_AT_ONCE = 3000;

PAGES.episode = {title: 'Episode', async draw(page, alive) {
  const told = await get('episode', {run: current(), id: route.query.id});
  if (!alive()) return;
  if (told.gone) { put(page, el('p', {class: 'problem'}, 'This episode is gone: the run was cut back, or the file has changed.')); return; }
  if (told.left_out) { put(page, el('p', {class: 'problem'}, 'This file has the line of the episode, and not the episode itself. The run folder has it: ', el('code', {}, 'ludus watch RUN'))); return; }
  const turn = async by => {
    const place = Number(route.query.at || 0) + by;
    const next = await get('episodes', {run: current(), ...filtersOf(), offset: place, limit: 1});
    if (place >= 0 && next.rows.length) go('episode', {id: next.rows[0].id, at: place, ...filtersOf()});
  };
  const keys = event => { if (event.target.matches('input, select')) return; if (event.key === 'n') turn(1); if (event.key === 'p') turn(-1); if (event.key === 'g' && told.siblings.length > 1) go('side', {ids: sideIds(told)}); };
  document.addEventListener('keydown', keys);
  leaving.push(() => document.removeEventListener('keydown', keys));
  put(page, el('div', {class: 'tools'}, link('episodes', {...filtersOf(), at: route.query.at}, '← episodes'), el('button', {onclick: () => turn(-1)}, 'previous (p)'), el('button', {onclick: () => turn(1)}, 'next (n)')), episodeNode(told));
  append(page, [relatives(told)]);
}};

PAGES.side = {title: 'Side by side', async draw(page, alive) {
  const ids = (route.query.ids || '').split(',').filter(Boolean).slice(0, 8);
  const all = await Promise.all(ids.map(id => get('episode', {run: current(), id})));
  if (!alive()) return;
  put(page, el('h2', {}, 'Side by side'), el('div', {class: 'side'}, all.map((told, place) => told.row ? episodeNode(told, {quiet: true, heading: link('episode', {id: ids[place]}, `step ${told.row.step}, ${told.row.split}`)}) : el('p', {class: 'problem'}, 'left out'))));
}};

function sideIds(told) { return [told.row.id, ...told.siblings.map(one => one.id).filter(id => id !== told.row.id)].slice(0, 6).join(','); }

function episodeNode(told, options = {}) {
  const row = told.row;
  return el('article', {class: 'episode ' + outcome(row.reward)}, el('h2', {}, row.task || 'no task', ' ', el('span', {class: 'dim'}, '#' + row.idx)), options.heading || null,
    el('p', {class: 'line'}, rewardChip(row.reward), chip(row.stop), chip(`${row.turns} turn${row.turns === 1 ? '' : 's'}`), row.windows > 1 ? chip(`${row.windows} windows`) : null, row.tokens ? chip(`${number(row.tokens)} tokens sampled`) : null, row.kept ? chip(`kept as ${row.kept}`) : null),
    el('p', {class: 'dim'}, [['step', row.step], ['split', row.split], ['group', row.grp], ['seed', told.seed], ['ordinal', row.ordinal >= 0 ? row.ordinal : ''], ['seconds', number(row.seconds)]].filter(([, value]) => value !== '').map(([name, value]) => `${name} ${value}`).join(' · ')),
    told.trajectories.map(trajectory => trajectoryNode(trajectory, told, options)));
}

function chip(text) { return el('span', {class: 'chip'}, text); }

function trajectoryNode(trajectory, told, options) {
  const facts = {status: trajectory.status, return: number(trajectory.return), loss: trajectory.excluded ? 'excluded' : 'counts', baseline: trajectory.baseline ? 'counts' : 'excluded'};
  for (const [name, value] of Object.entries(trajectory.numbers)) facts[name] = number(value);
  return el('section', {}, told.trajectories.length > 1 ? el('h3', {}, 'role: ' + trajectory.role) : null, el('p', {class: 'dim'}, Object.entries(facts).map(([name, value]) => `${name} ${value}`).join(' · ')),
    trajectory.parts.length ? el('table', {}, el('tr', {}, ['part', 'value', 'weight', 'in the reward'].map(name => el('th', {}, name))), trajectory.parts.map(one => el('tr', {}, [one.name, number(one.value), number(one.weight), number(one.value * one.weight)].map(cell => el('td', {}, cell))))) : null,
    trajectory.detail ? el('div', {class: 'evidence'}, el('b', {}, 'verdict '), longText(trajectory.detail)) : null, trajectory.gold !== null ? el('div', {class: 'evidence'}, el('b', {}, 'the answer '), longText(trajectory.gold)) : null,
    tree(trajectory), trajectory.windows.length ? trajectory.windows.map((one, place) => windowNode(one, place, trajectory, told, options)) : el('p', {class: 'dim'}, 'nothing was said'),
    trajectory.closing.map(message => messageNode(message, 'shown', ['at the end'])));
}

/** The windows as a tree, where calls of an agent fork from each other. */
function tree(trajectory) {
  if (!trajectory.windows.some(one => one.parent >= 0)) return null;
  const below = parent => trajectory.windows.map((one, place) => [one, place]).filter(([one, place]) => one.parent === parent && place !== parent);
  const branch = (parent, depth) => depth > 60 ? null : el('ul', {class: 'tree'}, below(parent).map(([one, place]) => el('li', {}, el('a', {href: location.hash, onclick: event => { event.preventDefault(); document.getElementById('window' + place)?.scrollIntoView(); }}, `window ${place + 1}`), ` ${one.cause || 'began'}, ${number(tokensOf(one))} tokens, ${one.turns.length} turn${one.turns.length === 1 ? '' : 's'}${one.ended ? ', ended by ' + one.ended : ''}`, below(place).length ? branch(place, depth + 1) : null)));
  return el('details', {open: true}, el('summary', {}, 'tree of calls and branches'), branch(-1, 0));
}

function tokensOf(one) { return one.spans.reduce((sum, span) => sum + span.ids.length, 0); }

function windowNode(one, place, trajectory, told, options) {
  const total = tokensOf(one), host = el('div');
  const words = [`window ${place + 1} of ${trajectory.windows.length}`, total ? `${number(total)} tokens` : '', one.cause ? 'began by ' + one.cause : '', one.ended ? 'ended by ' + one.ended : ''].filter(Boolean).join(' · ');
  return el('section', {class: 'window', id: 'window' + place}, el('h4', {}, words),
    total ? [el('div', {class: 'strip', role: 'img', 'aria-label': 'spans of the window'}, one.spans.map(span => el('span', {class: span.kind, title: `${span.name}: ${span.ids.length} tokens, ${MASKS[span.kind]}`, style: {flexGrow: span.ids.length}}))),
      el('details', {ontoggle: event => { if (event.target.open && !host.firstChild) tokensNode(host, one, told); }}, el('summary', {}, 'tokens' + (told.decoded ? '' : ' (ids; --tokenizer shows texts)')), host)] : null,
    one.turns.map(turn => turnNode(turn)), one.discarded.length ? el('details', {class: 'gone'}, el('summary', {}, `${one.discarded.length} turns left this window before its summary`), one.discarded.map(turn => turnNode(turn))) : null);
}

/** Tokens of a window, coloured by an overlay, three thousand at a time. */
function tokensNode(host, one, told) {
  const tokens = flattened(one), overlay = el('div', {class: 'tokens'}), say = el('p', {class: 'tip', 'aria-live': 'polite'}, 'Point at a token.');
  const known = {logp: tokens.some(token => token.logp !== undefined), version: tokens.some(token => token.version !== undefined), advantage: tokens.some(token => token.advantage !== undefined), gap: tokens.some(token => token.learner !== undefined), entropy: tokens.some(token => token.entropy !== undefined), mask: true};
  let chosen = known.advantage ? 'advantage' : 'mask', shown_tokens = 0;
  const largest = name => Math.max(1e-9, ...tokens.slice(0, 20000).map(token => Math.abs(valueOf(token, name) || 0)));
  const paint = () => {
    shown_tokens = 0;
    const most = {logp: largest('logp'), gap: Math.max(0.05, largest('gap')), advantage: largest('advantage'), entropy: largest('entropy'), version: largest('version')};
    const versions = tokens.map(token => token.version).filter(value => value !== undefined), first = Math.min(...versions.slice(0, 20000)), last = Math.max(...versions.slice(0, 20000));
    overlay.replaceChildren();
    const more = el('button', {onclick: () => add()}, '');
    const add = () => {
      more.remove();
      const until = Math.min(tokens.length, shown_tokens + TOKENS_AT_ONCE);
      for (; shown_tokens < until; shown_tokens++) overlay.append(tokenNode(tokens[shown_tokens], shown_tokens, chosen, most, first, last));
      if (until < tokens.length) { put(more, `${number(tokens.length - until)} more tokens`); overlay.append(more); }
    };
    add();
  };
  const tell = event => {
    const token = tokens[event.target.dataset && event.target.dataset.at];
    if (!token) return;
    const facts = [`token ${event.target.dataset.at}`, 'id ' + token.ids.join(' '), MASKS[token.kind]];
    if (token.logp !== undefined) facts.push(`log-probability ${number(token.logp, 4)}`);
    if (token.learner !== undefined) facts.push(`learner ${number(token.learner, 4)}, mismatch ${number(Math.abs(token.learner - token.logp), 4)}`);
    if (token.advantage !== undefined) facts.push(`advantage ${number(token.advantage, 4)}`);
    if (token.entropy !== undefined) facts.push(`entropy ${number(token.entropy, 4)}`);
    if (token.version !== undefined) facts.push('weights ' + token.version);
    put(say, facts.join(' · '));
  };
  overlay.addEventListener('mouseover', tell);
  overlay.addEventListener('focusin', tell);
  const buttons = el('div', {class: 'tools', role: 'radiogroup', 'aria-label': 'overlay'}, Object.entries(OVERLAYS).filter(([name]) => known[name]).map(([name, [words, info]]) => {
    const input = el('input', {type: 'radio', name: 'overlay' + Math.random(), onchange: () => { chosen = name; for (const other of buttons.querySelectorAll('input')) other.checked = other === input; put(explained, OVERLAYS[chosen][1]); paint(); }});
    input.checked = name === chosen;
    return el('label', {title: info}, input, ' ' + words);
  }));
  const explained = el('p', {class: 'dim'}, OVERLAYS[chosen][1] + (told.learned ? '' : ' Advantage and mismatch are kept for the chosen episodes of training steps.'));
  put(host, buttons, explained, say, overlay);
  paint();
}

/** The tokens of a window in order; those that share a character are one. */
function flattened(one) {
  const tokens = [], learned = one.learned;
  let trained = 0;
  for (const span of one.spans) {
    const pieces = span.pieces || span.ids.map(id => ['⟨' + id + '⟩', 1]);
    let at = 0;
    for (const [text, count] of pieces) {
      const token = {text, kind: span.kind, ids: span.ids.slice(at, at + count)};
      if (span.logp && span.logp.length > at) token.logp = span.logp[at];
      if (span.versions && span.versions.length > at) token.version = span.versions[at];
      if (span.trained) {
        if (learned.advantage.length > trained) token.advantage = learned.advantage[trained];
        if (learned.logp.length > trained) token.learner = learned.logp[trained];
        if (learned.entropy.length > trained) token.entropy = learned.entropy[trained];
        trained += count;
      }
      tokens.push(token);
      at += count;
    }
  }
  return tokens;
}

function valueOf(token, name) {
  if (name === 'gap') return token.learner === undefined ? undefined : Math.abs(token.learner - token.logp);
  return token[name];
}

function tokenNode(token, at, chosen, most, first, last) {
  const node = el('span', {class: chosen === 'mask' ? token.kind : 'bare', 'data-at': at}, token.text);
  const value = valueOf(token, chosen);
  if (chosen === 'mask' || value === undefined) { if (chosen !== 'mask') node.classList.add('unknown'); return node; }
  const share = Math.min(1, Math.abs(value) / most[chosen]);
  if (chosen === 'version') node.style.background = `hsl(${Math.round(200 + 140 * (last > first ? (value - first) / (last - first) : 0))} 70% 50% / 0.35)`;
  else if (chosen === 'advantage') {
    node.style.background = value > 0 ? `rgb(0 114 178 / ${0.08 + 0.5 * share})` : value < 0 ? `rgb(213 94 0 / ${0.08 + 0.5 * share})` : '';
    node.classList.toggle('up', value > 0); node.classList.toggle('down', value < 0);
  } else node.style.background = `rgb(213 94 0 / ${0.65 * share})`;
  return node;
}

function turnNode(turn) {
  const facts = [];
  if (turn.kind !== 'act') facts.push(turn.kind);
  if (turn.reward) facts.push('reward ' + number(turn.reward));
  if (turn.finish !== 'stop') facts.push('finish ' + turn.finish);
  facts.push(turn.tokens ? `${number(turn.tokens)} tokens` : 'no token ids: not trainable');
  if (turn.logp !== null) facts.push('mean log-probability ' + number(turn.logp));
  if (turn.versions.length) facts.push('version ' + (turn.versions.length > 1 ? `${turn.versions[0]} to ${turn.versions[turn.versions.length - 1]}` : turn.versions[0]));
  if (turn.class === 'untrained') facts.push('not trained');
  return [turn.observation.map(message => messageNode(message, 'shown', [])), turn.message ? messageNode(turn.message, turn.class, facts) : null];
}

function relatives(told) {
  const table = rows => el('table', {class: 'wide'}, el('tr', {}, ['', 'step', 'split', '#', 'reward', 'ended by', 'tokens', 'kept as', 'last answer'].map(name => el('th', {}, name))), rows.map(row => el('tr', {}, el('td', {}, row.id === told.row.id ? 'this' : link('episode', {id: row.id}, 'open')), [row.step, row.split, row.idx].map(cell => el('td', {}, String(cell))), el('td', {}, rewardChip(row.reward), row.best ? ' best' : ''), [row.stop, number(row.tokens), row.kept].map(cell => el('td', {}, cell)), el('td', {class: 'cut'}, row.text))));
  const best = told.siblings.find(one => one.best && one.differs !== null && one.differs !== undefined);
  return [told.siblings.length > 1 ? [el('h3', {}, 'Rollouts of the group ', link('side', {ids: sideIds(told)}, 'side by side (g)')), best ? el('p', {class: 'dim'}, `The best of them differs first at sampled token ${number(best.differs)}.`) : null, table(told.siblings)] : null,
    told.same_task.length ? [el('h3', {}, 'The same task at other steps'), table(told.same_task), el('p', {}, link('side', {ids: [told.same_task[0].id, told.row.id].join(',')}, 'the earliest beside this one'))] : null];
}
