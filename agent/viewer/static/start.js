// The frame of the page, keys, and the first route.
async function start() {
  if (BOOT.dark !== undefined) document.documentElement.dataset.theme = BOOT.dark ? 'dark' : 'light';
  const order = ['runs', 'overview', 'metrics', 'timeline', 'steps', 'tasks', 'episodes', 'accounts', 'settings', 'compare'];
  const names = order.filter(name => !(BOOT.hidden || []).includes(name)).map(name => [name, PAGES[name]]);
  const nav = el('nav', {'aria-label': 'pages'}, el('b', {class: 'brand'}, 'ludus'), names.map(([name, page]) => el('a', {href: '#/' + name, 'data-page': name}, page.title)),
    el('button', {class: 'theme', onclick: () => {
      const root = document.documentElement, dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
      root.dataset.theme = dark ? 'light' : 'dark';
      show();
    }}, 'dark or light'));
  document.body.append(el('a', {class: 'skip', href: '#main', onclick: event => { event.preventDefault(); document.getElementById('main').focus(); }}, 'to the content'), nav, el('div', {id: 'body'}, el('p', {id: 'live', role: 'status'}), el('main', {id: 'main', tabindex: -1})));
  try { state.runs = (await get('runs')).runs; } catch (error) { state.fault = error.message; }
  window.addEventListener('hashchange', show);
  document.addEventListener('keydown', event => {
    if (event.target.matches('input, select, textarea') || event.ctrlKey || event.metaKey || event.altKey) return;
    const place = '123456789'.indexOf(event.key);
    if (place >= 0 && names[place]) go(names[place][0]);
  });
  await show();
  if (LIVE) poll();
}
start();
