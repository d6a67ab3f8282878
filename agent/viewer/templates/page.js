const episodes = [...document.querySelectorAll('.episode')];
const words = document.getElementById('words'), left = document.getElementById('left');
const kinds = [...document.querySelectorAll('#tools input[type=checkbox]')];
function show() {
  const asked = words.value.toLowerCase();
  const wanted = new Set(kinds.filter(one => one.checked).map(one => one.value));
  let count = 0;
  for (const one of episodes) {
    const found = wanted.has(one.dataset.kind)
      && (!asked || one.textContent.toLowerCase().includes(asked));
    one.hidden = !found;
    count += found;
  }
  left.textContent = count + ' of ' + episodes.length;
}
for (const one of [words, ...kinds]) one.addEventListener('input', show);
document.getElementById('open').addEventListener('click', () => {
  const some = episodes.filter(one => !one.hidden), all = some.every(one => one.open);
  for (const one of some) one.open = !all;
});
show();
