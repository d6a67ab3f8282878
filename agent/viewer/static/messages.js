// Nodes, and messages of an episode; the page of labels shows these too. Whatever is shown becomes a text node;
// nothing is ever parsed as HTML.
const FOLD_LINES = 40, FOLD_CHARACTERS = 8000;
const INVISIBLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff\u{e0000}-\u{e0fff}]/gu;

const ANY_INVISIBLE = new RegExp(INVISIBLE.source, 'u');

/** Text with its invisible and direction-changing characters written out, inside of marks. */
function shown(text) {
  text = String(text);
  if (!ANY_INVISIBLE.test(text)) return document.createTextNode(text);
  const whole = document.createDocumentFragment();
  let from = 0;
  for (const match of text.matchAll(INVISIBLE)) {
    whole.append(text.slice(from, match.index));
    const mark = document.createElement('mark');
    const code = match[0].codePointAt(0), digits = code.toString(16);
    mark.textContent = code < 256 ? '\\x' + digits.padStart(2, '0') : '\\u' + digits.padStart(4, '0');
    whole.append(mark);
    from = match.index + match[0].length;
  }
  whole.append(text.slice(from));
  return whole;
}

/** The same as plain text, for attributes. */
function plain(text) {
  text = String(text);
  return !ANY_INVISIBLE.test(text) ? text : text.replace(INVISIBLE, sign => '\\u' + sign.codePointAt(0).toString(16).padStart(4, '0'));
}

const SVG = new Set(['svg', 'polyline', 'rect', 'line', 'circle', 'path']);
/** A node. `on...` are listeners, `style` is an object, other properties are attributes. */
function el(tag, props = {}, ...children) {
  const node = SVG.has(tag) ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (name === 'style') Object.assign(node.style, value);
    else node.setAttribute(name, value === true ? '' : plain(value));
  }
  append(node, children);
  return node;
}

function append(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : shown(child));
  }
}

function put(node, ...children) { node.replaceChildren(); append(node, children); }

function number(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–';
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toLocaleString('en');
  const size = Math.abs(value);
  return size >= 1e6 || size < 1e-4 ? value.toExponential(2) : Number(value.toPrecision(digits + 1)).toLocaleString('en', {maximumFractionDigits: 6});
}

function messageNode(message, kind, facts) {
  return el('article', {class: 'message ' + kind}, el('header', {}, message.role + (message.name ? ' ' + message.name : ''), ' ', el('i', {}, facts.join(' · '))),
    message.reasoning ? el('details', {}, el('summary', {}, 'thoughts: ' + message.reasoning.slice(0, 90).replace(/\s+/g, ' ')), longText(message.reasoning)) : null,
    message.text ? longText(message.text) : null,
    message.images.map(image => (image.data ? el('img', {src: image.data, alt: 'image of the episode'}) : el('p', {class: 'dim'}, 'image at ' + image.named))),
    message.calls.map(call => el('div', {class: 'call'}, el('b', {}, call.name || 'unreadable call'), ' ', el('i', {class: 'dim'}, call.id), el('dl', {}, Object.entries(call.arguments).map(([name, value]) => [el('dt', {}, name), el('dd', {}, longText(value))])), call.error ? el('p', {class: 'problem'}, 'not executed: ' + call.error) : null)),
    message.text || message.reasoning || message.calls.length || message.images.length ? null : el('p', {class: 'dim'}, 'empty'));
}

/** Text that is folded where it is long; all of it can be opened, a part at a time. */
function longText(text) {
  const lines = text.split('\n', FOLD_LINES + 1);
  if (lines.length <= FOLD_LINES && text.length <= FOLD_CHARACTERS) return el('pre', {}, text);
  let at = Math.min(FOLD_CHARACTERS, lines.slice(0, FOLD_LINES).join('\n').length);
  const pre = el('pre', {}, text.slice(0, at));
  const button = el('button', {onclick: () => {
    const until = Math.min(text.length, at + 100000);
    pre.append(shown(text.slice(at, until)));
    at = until;
    if (at >= text.length) button.remove(); else put(button, `${number(text.length - at)} more characters`);
  }}, `${number(text.length - at)} more characters`);
  return el('div', {}, pre, button);
}
