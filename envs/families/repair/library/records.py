"""Functions of dictionaries, queues and plans."""

from __future__ import annotations


def inverted(names: dict[str, int]) -> dict[int, list[str]]:
    """Which names have each number, in alphabetical order.

    >>> inverted({"b": 1, "a": 1, "c": 2})
    {1: ['a', 'b'], 2: ['c']}
    """
    by_number: dict[int, list[str]] = {}
    for name in sorted(names):
        by_number.setdefault(names[name], []).append(name)
    return by_number


def ranked(scores: dict[str, int]) -> list[str]:
    """Names by falling score, those of equal score in alphabetical order.

    >>> ranked({"ann": 3, "bob": 5, "cy": 3})
    ['bob', 'ann', 'cy']
    """
    return sorted(scores, key=lambda name: (-scores[name], name))


def added(stock: dict[str, int], change: dict[str, int]) -> dict[str, int]:
    """The stock after a change; what comes to 0 or below is left out.

    >>> added({"nut": 2, "bolt": 1}, {"nut": -2, "gear": 4})
    {'bolt': 1, 'gear': 4}
    """
    total = dict(stock)
    for name, count in change.items():
        total[name] = total.get(name, 0) + count
    return {name: count for name, count in total.items() if count > 0}


def in_order(needs: dict[str, list[str]]) -> list[str]:
    """Tasks so that each comes after what it needs, the alphabetically first of those that can be
    done next; an empty list if they need each other in a circle.

    >>> in_order({"wear": ["wash"], "wash": [], "iron": ["wash"]})
    ['wash', 'iron', 'wear']
    """
    done: list[str] = []
    while len(done) < len(needs):
        ready = [
            task
            for task in sorted(needs)
            if task not in done and all(need in done for need in needs[task])
        ]
        if not ready:
            return []
        done.append(ready[0])
    return done


def steps_apart(links: dict[str, list[str]], start: str, goal: str) -> int:
    """The fewest links to follow from one place to another; -1 if there is no way.

    >>> steps_apart({"a": ["b"], "b": ["c"], "c": []}, "a", "c")
    2
    """
    distance = {start: 0}
    queue = [start]
    while queue:
        place = queue.pop(0)
        if place == goal:
            return distance[place]
        for following in links.get(place, []):
            if following not in distance:
                distance[following] = distance[place] + 1
                queue.append(following)
    return -1


def most_at_once(visits: list[list[int]]) -> int:
    """The most guests at the same time, given [arrival, departure] of each; who leaves at a time
    makes room for who arrives then.

    >>> most_at_once([[1, 4], [2, 3], [3, 5]])
    2
    """
    changes: list[tuple[int, int]] = []
    for arrival, departure in visits:
        changes.append((arrival, 1))
        changes.append((departure, -1))
    here = 0
    most = 0
    for _, change in sorted(changes):
        here += change
        most = max(most, here)
    return most


def kept_pages(requests: list[int], room: int) -> list[int]:
    """The pages in a cache that drops the one unused longest when it is full, longest unused
    first.

    >>> kept_pages([1, 2, 1, 3], 2)
    [1, 3]
    """
    pages: list[int] = []
    for page in requests:
        if page in pages:
            pages.remove(page)
        elif len(pages) >= room:
            pages.pop(0)
        pages.append(page)
    return pages


def evaluated(tokens: list[str]) -> int:
    """The value of an expression in postfix notation, of whole numbers and + - *.

    >>> evaluated(["2", "3", "4", "*", "+"])
    14
    """
    values: list[int] = []
    for token in tokens:
        if token in ("+", "-", "*"):
            right = values.pop()
            left = values.pop()
            if token == "+":
                values.append(left + right)
            elif token == "-":
                values.append(left - right)
            else:
                values.append(left * right)
        else:
            values.append(int(token))
    return values[0]


def balance_after(moves: list[list[str]]) -> int:
    """The balance after moves ["in", amount], ["out", amount]; an "out" above the balance is
    skipped.

    >>> balance_after([["in", "5"], ["out", "7"], ["out", "2"]])
    3
    """
    balance = 0
    for kind, amount in moves:
        change = int(amount)
        if kind == "in":
            balance += change
        elif change <= balance:
            balance -= change
    return balance


def grouped(words: list[str]) -> list[list[str]]:
    """Words that are made of the same letters, together; groups and words in the order of first
    appearance.

    >>> grouped(["tea", "tan", "ate", "nat"])
    [['tea', 'ate'], ['tan', 'nat']]
    """
    groups: dict[str, list[str]] = {}
    for word in words:
        letters = "".join(sorted(word))
        if letters not in groups:
            groups[letters] = []
        groups[letters].append(word)
    return list(groups.values())
