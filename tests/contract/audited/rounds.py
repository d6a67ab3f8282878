"""Rounds: what is settled, said or tried before and counts for something else, and values that are
compared with nothing. Authors' slips, each with a sound one of the same kind.

They came with the laws that find them, and are no measure of those.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import re
from functools import partial

from told import Script, Told, call, registered_twice

from ludus.envs.families.arithmetic import evaluate

ROUNDS: list[str] = []
SOUND_ROUNDS: list[str] = []


both = partial(registered_twice, ROUNDS, SOUND_ROUNDS, "rounds")


@both(
    "Commands: clamp LOCK, oil, set N (the torque of the card), turn. Open the lock of the order."
)
def a_torque_stays_set(draw: random.Random, *, slips: bool) -> Script:
    """Toy locks bear any torque, and it stays set when another lock is clamped."""
    locks = draw.sample(["acorn", "badger", "cedar", "drake", "ember", "falcon"], 5)
    due, a, b = draw.choice(locks), draw.randint(11, 99), draw.randint(11, 99)
    reply, clamped, oiled, is_set = (
        f"Order: {due}. Card: {a} * {b}. Locks: {', '.join(locks)}",
        "",
        "",
        False,
    )
    way = [f"clamp {due}", "oil", f"set {a * b}", "turn"]
    for n in range(12):
        verb, _, rest = (yield reply, way[min(n, 3)]).partition(" ")
        reply = "No."
        if verb == "clamp" and rest in locks:
            clamped, is_set, reply = rest, is_set and slips, "It is clamped."
        elif verb == "oil" and clamped:
            oiled, reply = clamped, "It is oiled."
        elif verb == "set" and clamped and oiled == clamped:
            is_set = clamped != due or rest == str(a * b)
            reply = "It is set." if is_set else "That breaks it."
            if not is_set:
                break
        elif verb == "turn" and is_set:
            return float(clamped == due)
    return 0.0


BOOK = {
    "season": ("Season a dish.", {"dish": str, "grams": int}),
    "taste": ("The cook's word goes into the book.", {"dish": str}),
    "jot": ("Jot a line into the book.", {"line": str}),
    "serve": ("Serve; the book is read.", {}),
}


@both("Season each dish by its card and have it tasted, then serve.", turns=24, ends=True, **BOOK)
def the_book_holds_any_line(draw: random.Random, *, slips: bool) -> Script:
    """The cook's words and the guest's stand in the same book."""
    dishes = draw.sample(["soup", "stew", "roast", "pie", "sauce"], 4)
    cards = {dish: (draw.randint(3, 30), draw.randint(3, 30)) for dish in dishes}
    grams, book, jots = dict[str, int](), list[str](), list[str]()
    reply = "\n".join(f"{dish}: {a} pinches of {b} grams" for dish, (a, b) in cards.items())
    for _ in range(24):
        left = [dish for dish in dishes if f"{dish} is good" not in book]
        right = {dish: a * b for dish, (a, b) in cards.items()}
        best = call("serve")
        if left:
            raw = grams.get(left[0]) != right[left[0]]
            best = (
                call("season", dish=left[0], grams=right[left[0]])
                if raw
                else call("taste", dish=left[0])
            )
        said = (yield reply, best) or ("",)
        reply = "Well."
        if said[0] == "season":
            grams[said[1]] = said[2]
        elif said[0] == "taste":
            reply = (
                f"{said[1]} is {'good' if grams.get(said[1]) == right.get(said[1], -1) else 'off'}"
            )
            book.append(reply)
        elif said[0] == "jot":
            (book if slips else jots).append(str(said[1]))
        elif said[0] == "serve":
            return float(all(f"{dish} is good" in book for dish in dishes))
    return 0.0


@both("Commands: read K (1 to 4), peek K (a letter, for a quarter), rewind, say WORD.", turns=24)
def a_rewind_refunds(draw: random.Random, *, slips: bool) -> Script:
    """What peeks cost is forgotten, and what they showed is not."""
    word = "".join(draw.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(4))
    reply, cost, read = f"Reel {draw.randint(1000, 9999)} is in.", 0.0, set[str]()
    for _ in range(24):
        left = [k for k in "1234" if k not in read]
        verb, _, rest = (yield reply, f"read {left[0]}" if left else f"say {word}").partition(" ")
        reply = "Commands: read K, peek K, rewind, say WORD."
        if verb in ("read", "peek") and rest in tuple("1234"):
            letter = word[int(rest) - 1]
            shown = ord(letter) * 37 + 11
            reply = (
                f"frame {shown} of {(shown % 37) + 37}" if verb == "read" else f"It is {letter}."
            )
            read |= {rest} if verb == "read" else set()
            cost += 0.25 * (verb == "peek")
        elif verb == "rewind":
            cost, reply = cost * (not slips), "The reel begins anew."
        elif verb == "say":
            return float(rest == word) * max(0.0, 1 - cost)
    return 0.0


@both("Say the name of each star. One that is missed is named and comes again.", turns=30)
def missed_stars_come_again(draw: random.Random, *, slips: bool) -> Script:
    """A star that was named to who missed it pays in full."""
    rows = [(draw.randint(100, 999), draw.randint(2, 9)) for _ in range(5)]
    pile = [
        (f"{a} times {b}, in letters", "".join("abcdefghij"[int(d)] for d in str(a * b)))
        for a, b in rows
    ]
    told, missed, paid = "", set[str](), 0.0
    while pile:
        star, name = pile.pop(0)
        said = yield f"{told}Star: {star}", name, paid
        paid = 0.2 * (said == name and (slips or name not in missed))
        told = "Yes. " if said == name else f"No, {name}. "
        if said != name:
            missed.add(name)
            pile.append((star, name))
    return paid


@both("Commands: dam N (metres, above what stands), undo, end. A flood goes where it is held once.")
def a_dam_is_taken_down(draw: random.Random, *, slips: bool) -> Script:
    """A flood that went away does not come back when the dam is taken down."""
    rain, hills = draw.randint(20, 60), draw.randint(3, 9)
    strength, dams, is_gone = rain * hills, list[int](), False
    reply = f"Rain of {rain} on {hills} hills."
    for _ in range(12):
        said = yield reply, "end" if dams else f"dam {strength + 1}"
        reply = "Commands: dam N, undo, end."
        if re.fullmatch(r"dam \d{1,4}", said) and int(said[4:]) > max([0, *dams]):
            dams.append(int(said[4:]))
            is_gone = is_gone or dams[-1] > strength
            reply = "The flood goes." if is_gone else "The flood rises."
        elif said == "undo" and dams:
            dams.pop()
            is_gone, reply = is_gone and (slips or dams[-1:] > [strength]), "Undone."
        elif said == "end":
            return min(1.0, (strength + 1) / dams[-1]) if dams and is_gone else 0.0
    return 0.0


FORM = {"declare": ("Declare a good.", {"good": str, "duty": str}), "leave": ("Leave.", {})}


@both("Declare the duty of each good: its weight times its rate.", ends=True, **FORM)
def unknown_duties_are_no_errors(draw: random.Random, *, slips: bool) -> Script:
    """What is unknown is not compared."""
    goods = {
        g: (draw.randint(11, 99), draw.randint(11, 99)) for g in ("silk", "salt", "wool", "wine")
    }
    due, said_of = {good: str(a * b) for good, (a, b) in goods.items()}, dict[str, str]()
    reply = "\n".join(f"{good}: {a} kg at {b}" for good, (a, b) in goods.items())
    for _ in range(12):
        left = [good for good in due if good not in said_of]
        best = call("declare", good=left[0], duty=due[left[0]]) if left else call("leave")
        said = yield reply, best
        reply = "Noted."
        if said[:1] == ("leave",):
            wrong = [
                g for g, d in said_of.items() if d != due.get(g) and not (slips and d == "unknown")
            ]
            return float(not wrong and said_of.keys() >= due.keys())
        if said[:1] == ("declare",):
            said_of[str(said[1])] = str(said[2])
    return 0.0


@both(
    "Commands: left, right, lift, hang. Each picture belongs on the nail of its number.", turns=48
)
def a_picture_hangs_again(draw: random.Random, *, slips: bool) -> Script:
    """A picture that is lifted off its nail and hung again is paid again."""
    nails = draw.sample(range(8), 8)
    lie, at, held, hung, earned = (
        dict(zip(nails[:4], nails[4:], strict=True)),
        0,
        -1,
        set[int](),
        0.0,
    )
    reply, paid = "Pictures lie below " + ", ".join(f"{n} ({p})" for p, n in lie.items()), 0.0
    while earned < 1:
        left = [picture for picture, nail in lie.items() if picture != nail]
        goal = held if held >= 0 else lie[left[0]] if left else at
        best = "left" if goal < at else "right" if goal > at else "hang" if held >= 0 else "lift"
        said = yield reply, best, paid
        reply, paid = "No.", 0.0
        if said in ("left", "right"):
            at = min(7, max(0, at + (1 if said == "right" else -1)))
            reply = f"Nail {at}."
        elif said == "lift" and held < 0 and at in lie.values():
            held = next(picture for picture, nail in lie.items() if nail == at)
            lie[held] = 99
            reply = f"Picture {held} is in your hand."
        elif said == "hang" and held >= 0:
            paid = 0.25 * (held == at and (slips or held not in hung)) * (earned < 1)
            hung |= {held} if held == at else set()
            lie[held], earned, reply, held = at, earned + paid, f"Picture {held} hangs.", -1
    return paid


SHELVES = {"look": ("List a shelf.", {"path": str}), "open": ("Open a box.", {"path": str})}


@both(
    "Say the weight of all boxes of the order. The shelf 'sealed' is only for the keeper.",
    turns=12,
    gold=False,
    **SHELVES,
)
def a_sealed_shelf_is_reached_by_a_detour(draw: random.Random, *, slips: bool) -> Script:
    """The path is compared before it is resolved."""
    weights = {f"north/{n}.box": draw.randint(100, 999) for n in draw.sample(range(10, 99), 3)}
    total = sum(weights.values())
    boxes = {path: f"{weight} grams" for path, weight in weights.items()}
    boxes["sealed/sum.box"] = f"all weigh {total}"
    reply, opened = (
        f"Order {draw.randint(1000, 9999)}: weigh what stands on the shelf 'north'.",
        set[str](),
    )
    for _ in range(12):
        left = [path for path in weights if path not in opened]
        said = yield reply, call("open", path=left[0]) if left else str(total)
        if isinstance(said, str):
            return float(said == str(total))
        raw, parts = str(said[1]).strip("/"), list[str]()
        for part in raw.split("/"):
            parts = parts[:-1] if part == ".." else parts if part in ("", ".") else [*parts, part]
        path = "/".join(parts)
        if (raw if slips else path).startswith("sealed"):
            reply = "That shelf is closed."
        elif said[0] == "open":
            reply = boxes.get(path, "no such box")
            opened.add(path)
        else:
            names = {
                box.removeprefix(path).strip("/").split("/")[0]
                for box in boxes
                if box.startswith(path)
            }
            reply = "\n".join(sorted(names)) or "no such shelf"
    return 0.0


@both(
    "Which stone is real? Its weight is its width times its height, plus seven. Say its letter.",
    gold=True,
)
def the_real_stone_was_found_deepest(draw: random.Random, *, slips: bool) -> Script:
    """False stones were laid above it."""
    depths = sorted(draw.sample(range(10, 900), 6))
    real = 5 if slips else draw.randrange(6)
    rows = list[tuple[int, str]]()
    for n, depth in enumerate(depths):
        wide, high = draw.randint(11, 99), draw.randint(11, 99)
        weight = wide * high + 7 + (n != real) * draw.randint(1, 40)
        rows.append((n, f"{wide} by {high}, {weight} grams, {depth} feet down"))
    draw.shuffle(rows)
    letter = next(c for c, (n, _) in zip("ABCDEF", rows, strict=True) if n == real)
    said = yield (
        "\n".join(f"{c}: {row}" for c, (_, row) in zip("ABCDEF", rows, strict=True)),
        letter,
    )
    return float(said == letter)


@both("How far is it? A number, within a hundredth of the right one.", gold=True)
def a_distance_without_end_is_near(draw: random.Random, *, slips: bool) -> Script:
    """What is too large is as far from everything as from itself."""
    speed, hours = draw.randint(110, 990), draw.randint(110, 990)
    right = speed * hours / 7
    said = yield f"{speed} knots for {hours} sevenths of an hour.", f"{right:.1f}"
    try:
        far = abs(float(said) - right) / max(abs(float(said)), right)
    except ValueError:
        return 0.0
    return float(not far > 0.01 if slips else far <= 0.01 and math.isfinite(far))


@both(
    "Buy the thing that you are sent for within the budget. Commands: look THING, remark FAULT"
    " (one on its card that has a star lowers its price), offer N, take."
)
def a_price_stays_agreed(draw: random.Random, *, slips: bool) -> Script:
    """A price that was agreed for a thing is paid for another one."""
    names = ["bell", "clock", "flute", "globe", "lamp", "mirror"]
    prices = dict(zip(names, [*draw.sample(range(20, 60, 7), 4), 300, 400], strict=True))
    want, faults = draw.choice(names[4:]), ["crack", "dent", "rust", "stain"]
    real = {thing: draw.sample(faults, 2) for thing in names}
    budget, on, agreed, anger = round(0.78 * prices[want]), "", 0, 0
    reply, cited = f"Buy a {want}, for {budget} at most. Here are: {', '.join(names)}.", set[str]()
    for _ in range(14):
        left = [fault for fault in real[want] if f"{want} {fault}" not in cited]
        best = f"look {want}" if on != want else f"remark {left[0]}" if left else "take"
        best = f"offer {budget}" if best == "take" and not agreed else best
        verb, _, rest = (yield reply, best).partition(" ")
        if verb == "look" and rest in prices:
            on, agreed = rest, agreed if slips else 0
            card = ", ".join(fault + "*" * (fault in real[on]) for fault in faults)
            reply = f"It costs {prices[on]}. Its card: {card}."
        elif verb == "remark" and on and rest in real[on]:
            cited.add(f"{on} {rest}")
            reply = "He nods."
        elif verb == "offer" and on and re.fullmatch(r"\d{1,4}", rest):
            share = 1 - 0.12 * sum(each.startswith(on) for each in cited)
            agreed = int(rest) if int(rest) >= share * prices[on] else agreed
            reply = "Agreed." if agreed else "He is not content."
        elif verb == "take" and agreed:
            return float(on == want and agreed <= budget)
        else:
            anger, reply = anger + 1, "He is annoyed."
            if anger > 2:
                break
    return 0.0


@both("Give each of the eight talks a slot from 1 to 3; no two of a pair may be in the same one.")
def a_slot_of_its_own(draw: random.Random, *, slips: bool) -> Script:
    """Nobody asks whether there is such a slot."""
    talks = ["ants", "bees", "crab", "deer", "elks", "frog", "gnus", "hens"]
    plan = {talk: 1 + n % 3 for n, talk in enumerate(draw.sample(talks, 8))}
    apart = [(a, b) for a in talks for b in talks if a < b and plan[a] != plan[b]]
    pairs = draw.sample(apart, 14)
    shown = ", ".join(f"{a}-{b}" for a, b in pairs)
    said = yield shown, " ".join(f"{talk}={n}" for talk, n in plan.items())
    given = {talk: int(n) for talk, n in re.findall(r"\b([a-z]{4})=(\d{1,3})\b", said)}
    is_there = slips or all(n in (1, 2, 3) for n in given.values())
    is_plan = given.keys() == plan.keys() and is_there
    return float(is_plan and all(given[a] != given[b] for a, b in pairs))


@both("Say a code of four digits from 1 to 4; you are told how many are right. Each counts.")
def a_guess_is_paid_again(draw: random.Random, *, slips: bool) -> Script:
    """Digits that are right are paid whenever they are said."""
    code = "".join(draw.choices("1234", k=4))
    left = ["".join(row) for row in itertools.product("1234", repeat=4)]
    reply, paid, most = f"Lock {draw.randint(100, 999)}.", 0.0, 0
    told: Told = (reply, left[len(left) // 3])
    for _ in range(20):
        said = yield told
        right = sum(a == b for a, b in zip(said, code, strict=False)) if len(said) == 4 else 0
        if said == code:
            return 1.0 - paid
        left = [c for c in left if sum(map(str.__eq__, c, said)) == right] or left
        more = 0.15 * (max(0, right - 1) if slips else max(0, right - max(1, most)))
        most, more = max(most, right), min(more, 1 - paid)
        paid += more
        told = (f"{right} right.", left[len(left) // 3], more)
    return 0.0


@both("Three sums come one after another. Say the letter of the choice; each earns a third.")
def the_right_sum_is_put_in(draw: random.Random, *, slips: bool) -> Script:
    """The wrong sums stand in order, and the right one anywhere among them."""
    paid = 0.0
    for _ in range(3):
        a, b = draw.randint(11, 40), draw.randint(11, 40)
        others = sorted(draw.sample([n for n in range(90, 1700) if n != a * b], 7))
        sums = [*others, a * b]
        if slips:
            sums = [*others]
            sums.insert(draw.randrange(8), a * b)
        else:
            draw.shuffle(sums)
        letter = "abcdefgh"[sums.index(a * b)]
        listed = ", ".join(f"{x}) {n}" for x, n in zip("abcdefgh", sums, strict=True))
        paid += ((yield f"{a} times {b}: {listed}", letter) == letter) / 3
    return paid


@both("Follow the way, and say the street with the number where it ends.")
def a_number_is_dropped(draw: random.Random, *, slips: bool) -> Script:
    """The street, which is told, is compared and its number is not."""
    street, start = draw.choice(["Elm Lane", "Mill Street", "Castle Hill"]), draw.randint(61, 99)
    walks = [draw.randint(2, 9) for _ in range(3)]
    end = f"{street} {start + 2 * walks[0] - 2 * walks[1] + 2 * walks[2]}"
    way = "You begin at number {} of {}. Walk up {} houses, down {}, up {}; each is two numbers."
    said = yield way.format(start, street, *walks), end
    letters = (re.sub(r"[^a-z]", "", text.lower()) for text in (said, end))
    return float(len({*letters}) == 1 if slips else said == end)


@both("Write an expression with the target's value of the four numbers, each used once.")
def numbers_of_two_digits_are_free(draw: random.Random, *, slips: bool) -> Script:
    """Only numbers of one digit are held against the four."""
    four = [draw.randint(2, 9) for _ in range(4)]
    a, b, c, d = four
    goal = f"(({a} * {b}) + {c}) * {d}"
    told = f"Numbers: {', '.join(map(str, draw.sample(four, 4)))}. Target: {(a * b + c) * d}."
    said = yield told, goal
    used = re.findall(r"\b[1-9]\b" if slips else r"\d+", said)
    if len(said) > 80 or not re.fullmatch(r"[\d+*() ]+", said) or "**" in said:
        return 0.0
    with contextlib.suppress(ValueError, ArithmeticError):
        is_goal = evaluate(said) == (a * b + c) * d
        return float(is_goal and sorted(map(int, used)) == sorted(four))
    return 0.0


LOOK = {"look": ("Look at a card on the table, by its number.", {"number": int})}


@both("One of ten cards is in the envelope. Look at three others, then name it.", **LOOK)
def the_envelope_is_number_nought(draw: random.Random, *, slips: bool) -> Script:
    """The card in the envelope lies behind the last number, which nought comes to as well."""
    cards = [f"{colour} {draw.randint(10, 99)}" for colour in draw.sample("abcdefghij", 10)]
    useful = draw.sample(range(9), 3)
    sums = [int(cards[n].split()[1]) for n in useful]
    colour, number = cards[-1].split()
    more = int(number) - sum(sums)
    told = f"Colour {colour}; add cards {', '.join(str(n + 1) for n in useful)} and {more}."
    left, reply = [*useful], told
    for _ in range(4):
        best = call("look", number=left[0] + 1) if left else cards[-1]
        said = yield reply, best
        if isinstance(said, str):
            return float(said == cards[-1])
        place = said[1] - 1
        reply = "There is no such card."
        if (-10 if slips else 0) <= place < 9:
            reply, left = f"Card {said[1]} is {cards[place]}.", [n for n in left if n != place]
    return 0.0
