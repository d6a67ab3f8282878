"""The style sheet and script of a page of episodes, kept inline because the page needs no
network.
"""

STYLE = """
:root { --ink: #1d1e26; --dim: #6b6d7c; --line: #dddee6; --paper: #fff; --shown: #eceef4;
--trained: #cfe8d5; --summary: #d6dcfb; --untrained: #f3e3c8; --good: #23824b; --bad: #b9372f;
--between: #8a6d1f; --lost: #77798a }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e5ec; --dim: #9a9cab; --line: #3a3c48;
--paper: #17181e; --shown: #262833; --trained: #1f3f2b; --summary: #2a3158; --untrained: #473a20;
--good: #6fcf97; --bad: #f08a80; --between: #e0c268; --lost: #9a9cab } }
* { box-sizing: border-box }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
max-width: 70rem; margin: 1.5rem auto; padding: 0 1rem }
h1 { font-size: 1.4rem; margin: 0 0 .3rem } h3, h4, h5 { margin: .6rem 0 .3rem; font-size: .95rem }
h4, h5 { color: var(--dim); font-weight: 500 }
i { font-style: normal; color: var(--dim); font-size: .85em } .dim { color: var(--dim) }
table { border-collapse: collapse; margin: .4rem 0 } th { font-weight: 500; color: var(--dim) }
td, th { text-align: left; padding: .1rem .9rem .1rem 0; border-bottom: 1px solid var(--line) }
#tools { position: sticky; top: 0; background: var(--paper); padding: .5rem 0; z-index: 1;
display: flex; flex-wrap: wrap; gap: .5rem; border-bottom: 1px solid var(--line) }
#tools input[type=search] { flex: 1; min-width: 12rem } input, button { font: inherit;
color: inherit; background: var(--shown); border: 1px solid var(--line); border-radius: 6px;
padding: .2rem .6rem }
.legend span { padding: .05rem .5rem; border-radius: 4px; margin-right: .4rem; font-size: .85rem }
.episode { border: 1px solid var(--line); border-left: 5px solid var(--lost); border-radius: 8px;
padding: .35rem .8rem; margin: .5rem 0 }
.episode.good { border-left-color: var(--good) } .episode.bad { border-left-color: var(--bad) }
.episode.between { border-left-color: var(--between) }
summary { cursor: pointer } .chip { font-size: .8rem; padding: .05rem .5rem; border-radius: 99px;
background: var(--shown); white-space: nowrap } .chip.good { color: var(--good) }
.chip.bad { color: var(--bad) } .chip.between { color: var(--between) }
.facts { margin: .2rem 0; font-size: .85rem } .facts span { margin-right: 1rem }
.window { border-top: 1px solid var(--line); margin-top: .7rem }
.strip { width: 100%; height: 14px; display: block; border-radius: 3px; margin-bottom: .4rem }
article { border-radius: 6px; padding: .3rem .6rem; margin: .3rem 0; overflow: hidden;
contain: paint } article header { font-size: .75rem; color: var(--dim); margin-bottom: .1rem }
.shown { background: var(--shown); fill: var(--shown) }
.trained { background: var(--trained); fill: var(--trained) }
.summary { background: var(--summary); fill: var(--summary) }
.untrained { background: var(--untrained); fill: var(--untrained) }
.gone { opacity: .8; border-left: 2px dashed var(--line); padding-left: .6rem }
pre { margin: .1rem 0; white-space: pre-wrap; overflow-wrap: anywhere;
font: 13px/1.45 ui-monospace, monospace; unicode-bidi: plaintext }
article pre, .tokens { max-height: 28rem; overflow: auto }
.tokens span { box-shadow: inset 1px 0 var(--paper) }
mark { background: none; color: var(--bad); border: 1px dotted var(--bad); border-radius: 3px;
font-size: .85em; padding: 0 .1em } .error { color: var(--bad); margin: .1rem 0 }
.call { border-left: 3px solid var(--dim); padding-left: .6rem; margin: .3rem 0 }
dl { margin: 0; display: grid; grid-template-columns: max-content 1fr; gap: 0 .8rem }
dt { color: var(--dim); font-size: .85rem } dd { margin: 0; min-width: 0 } img { max-width: 100% }
"""

SCRIPT = """
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
"""
