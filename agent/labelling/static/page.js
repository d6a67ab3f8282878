"use strict";
// Labels by keyboard. A label is shown as given only when the server has written it to its disk; until then
// the page says so and asks again, so that a server that is started again loses nothing.

const byId = (id) => document.getElementById(id);
const REST_MS = 150; // Nobody has read an item after so short a time: a key that bounces labels one item alone.
const state = { item: null, shownAt: 0, hiddenMs: 0, hiddenAt: 0, ranked: [], busy: true };

function element(tag, text, kind) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

// A trajectory is shown as the viewer shows episodes, with thoughts folded and calls apart; a plain answer is text alone.
function fill(place, messages) {
  const plainly = messages.length === 1 && !messages[0].reasoning && !messages[0].calls.length;
  for (const message of messages) {
    if (!plainly) { place.append(messageNode(message, message.role === "assistant" ? "said" : "seen", [])); continue; }
    if (message.text) { const text = element("p", undefined, "message"); append(text, [message.text]); place.append(text); }
    for (const given of message.images) place.append(pictureOf(given));
  }
}

function pictureOf(given) {
  if (!given.data) return element("p", `an image that is not shown: ${given.named}`);
  const image = element("img");
  image.src = given.data;
  image.alt = "an image of the item";
  return image;
}

function show(data) {
  state.item = data.item;
  state.ranked = [];
  state.hiddenMs = 0;
  state.shownAt = performance.now();
  byId("who").textContent = data.annotator;
  const total = data.done + data.left;
  byId("bar").max = Math.max(total, 1);
  byId("bar").value = data.done;
  byId("count").textContent = `${data.done} of ${total}`;
  byId("guidelines").hidden = !data.guidelines;
  byId("guidelines").querySelector("p").textContent = data.guidelines;
  byId("prompt").replaceChildren();
  byId("answers").replaceChildren();
  byId("choices").replaceChildren();
  byId("criterion").hidden = true;
  document.body.dataset.item = data.item ? data.item.id : "";
  setTimeout(() => {
    state.busy = false;
    document.body.dataset.done = data.done;
  }, REST_MS);
  if (!data.item) {
    byId("prompt").append(element("p", "Nothing is left to label. Thank you."));
    keys([["u", "undo"]]);
    return;
  }
  fill(byId("prompt"), data.item.prompt);
  byId("prompt").hidden = data.item.prompt.length === 0;
  if (data.item.criterion) {
    byId("criterion").hidden = false;
    byId("criterion").textContent = data.item.criterion;
  }
  data.item.answers.forEach((messages, place) => {
    const box = element("article", undefined, "answer");
    const several = data.item.answers.length > 1;
    const head = element("h2", several ? `Answer ${place + 1}` : "Answer");
    head.append(element("span", "", "rank"));
    box.append(head);
    fill(box, messages);
    byId("answers").append(box);
  });
  choices(data.item);
  window.scrollTo(0, 0);
}

function choices(item) {
  const offers = {
    pair: [["1", "Answer 1 is better"], ["2", "Answer 2 is better"], ["3", "Neither is better"]],
    rating: [1, 2, 3, 4, 5].map((n) => [String(n), n === 1 ? "1, the worst" : n === 5 ? "5, the best" : String(n)]),
    criterion: [["y", "Met"], ["n", "Not met"]],
    ranking: item.answers.map((_, place) => [String(place + 1), `Answer ${place + 1} is next`]),
  }[item.question];
  for (const [key, text] of offers) {
    const button = element("button", text);
    button.type = "button";
    button.addEventListener("click", () => press(key));
    byId("choices").append(button);
  }
  const more = item.question === "ranking" ? [["Backspace", "take the last back"], ["Enter", "done"]] : [];
  keys([...offers, ...more, ["u", "undo the last item"]]);
}

function keys(rows) {
  byId("keys").replaceChildren(...rows.map(([key, text]) => {
    const made = element("span");
    made.append(element("kbd", key), ` ${text}`);
    return made;
  }));
}

function press(key) {
  if (state.busy) return;
  if (key === "u") { send("/api/undo", {}); return; }
  const item = state.item;
  if (!item) return;
  if (item.question === "pair") {
    const label = { 1: [1, 2], 2: [2, 1], 3: [1, 1], ArrowLeft: [1, 2], ArrowRight: [2, 1], "=": [1, 1] }[key];
    if (label) give(label);
  } else if (item.question === "rating") {
    if (/^[1-5]$/.test(key)) give([Number(key)]);
  } else if (item.question === "criterion") {
    if (key === "y" || key === "n") give([key === "y" ? 1 : 0]);
  } else {
    rank(key);
  }
}

function rank(key) {
  const count = state.item.answers.length;
  const place = Number(key) - 1;
  if (key === "Backspace") state.ranked.pop();
  else if (key === "Enter" && state.ranked.length === count) {
    const label = new Array(count);
    state.ranked.forEach((answer, position) => { label[answer] = position + 1; });
    give(label);
    return;
  } else if (Number.isInteger(place) && place >= 0 && place < count && !state.ranked.includes(place)) {
    state.ranked.push(place);
  } else return;
  [...byId("answers").children].forEach((box, answer) => {
    const position = state.ranked.indexOf(answer);
    box.classList.toggle("chosen", position >= 0);
    box.querySelector(".rank").textContent = position >= 0 ? `${position + 1}.` : "";
  });
}

function give(label) {
  const seconds = (performance.now() - state.shownAt - state.hiddenMs) / 1000;
  send("/api/label", { item: state.item.id, label, seconds });
}

async function send(path, body) {
  state.busy = true;
  for (let wait = 250; ; wait = Math.min(2 * wait, 4000)) {
    let answer = null;
    try {
      answer = await fetch(path, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify(body),
        signal: AbortSignal.timeout(20000),
      });
    } catch { /* the server is away, and is asked again */ }
    if (answer && answer.ok) {
      byId("state").textContent = "";
      show(await answer.json()); // which takes keys again
      return;
    }
    if (answer && answer.status < 500) {
      byId("state").textContent = await answer.text();
      state.busy = false;
      return;
    }
    byId("state").textContent = answer ? await answer.text() : "not saved yet: the server does not answer";
    await new Promise((done) => setTimeout(done, wait));
  }
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  if (event.target.closest("button, summary") && (event.key === "Enter" || event.key === " ")) return;
  press(event.key.length === 1 ? event.key.toLowerCase() : event.key);
  if (event.key === "Backspace") event.preventDefault();
});
document.addEventListener("visibilitychange", () => {
  // Time in another tab is no time with the item.
  if (document.hidden) state.hiddenAt = performance.now();
  else state.hiddenMs += performance.now() - state.hiddenAt;
});
fetch("/api/item").then(async (answer) => {
  if (answer.ok) show(await answer.json());
  else byId("state").textContent = await answer.text();
});
