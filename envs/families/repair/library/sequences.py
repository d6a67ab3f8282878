"""Functions of lists of numbers."""

from __future__ import annotations


def running_totals(numbers: list[int]) -> list[int]:
    """The sum of all numbers up to each place, that place included.

    >>> running_totals([3, -1, 4])
    [3, 2, 6]
    """
    totals: list[int] = []
    total = 0
    for number in numbers:
        total += number
        totals.append(total)
    return totals


def longest_rise(numbers: list[int]) -> int:
    """The length of the longest stretch of neighbours in which each is greater than the one
    before; 0 for an empty list.

    >>> longest_rise([5, 1, 2, 6, 6, 7])
    3
    >>> longest_rise([4])
    1
    """
    best = 0
    length = 0
    for place, number in enumerate(numbers):
        if place > 0 and number > numbers[place - 1]:
            length += 1
        else:
            length = 1
        best = max(best, length)
    return best


def merge_spans(spans: list[list[int]]) -> list[list[int]]:
    """Spans [first, last] of whole numbers, joined where they overlap or touch end to end, in
    ascending order.

    >>> merge_spans([[6, 8], [1, 3], [3, 5]])
    [[1, 5], [6, 8]]
    """
    merged: list[list[int]] = []
    for first, last in sorted(spans):
        if merged and first <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], last)
        else:
            merged.append([first, last])
    return merged


def place_of(ordered: list[int], wanted: int) -> int:
    """Where to insert a number into an ascending list so that it stays ascending: before any equal
    ones.

    >>> place_of([1, 3, 3, 8], 3)
    1
    >>> place_of([1, 3, 3, 8], 9)
    4
    """
    low, high = 0, len(ordered)
    while low < high:
        middle = (low + high) // 2
        if ordered[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


def rotated(items: list[int], count: int) -> list[int]:
    """The list with its first `count` items moved to the end, again and again if there are more
    than it has.

    >>> rotated([1, 2, 3, 4], 1)
    [2, 3, 4, 1]
    >>> rotated([1, 2, 3], 5)
    [3, 1, 2]
    """
    if not items:
        return []
    cut = count % len(items)
    return items[cut:] + items[:cut]


def pair_with_sum(numbers: list[int], total: int) -> list[int]:
    """The places of the first two numbers that add up to `total`, first by the later place, then
    by the earlier; an empty list if there are none.

    >>> pair_with_sum([4, 9, 1, 6], 10)
    [1, 2]
    >>> pair_with_sum([5], 10)
    []
    """
    for later in range(len(numbers)):
        for earlier in range(later):
            if numbers[earlier] + numbers[later] == total:
                return [earlier, later]
    return []


def best_stretch(numbers: list[int]) -> int:
    """The largest sum of any stretch of neighbours; the empty stretch counts, with sum 0.

    >>> best_stretch([2, -3, 4, -1, 2, -6])
    5
    >>> best_stretch([-2, -1])
    0
    """
    best = 0
    current = 0
    for number in numbers:
        current = max(0, current + number)
        best = max(best, current)
    return best


def without_repeats(numbers: list[int]) -> list[int]:
    """Each number once, in the order of first appearance.

    >>> without_repeats([2, 1, 2, 3, 1])
    [2, 1, 3]
    """
    seen: set[int] = set()
    kept: list[int] = []
    for number in numbers:
        if number not in seen:
            seen.add(number)
            kept.append(number)
    return kept


def chunks(items: list[int], size: int) -> list[list[int]]:
    """The list cut into pieces of `size`, the last one shorter if need be. Raises ValueError for a
    size below 1.

    >>> chunks([1, 2, 3, 4, 5], 2)
    [[1, 2], [3, 4], [5]]
    """
    if size < 1:
        raise ValueError("size must be at least 1")
    pieces: list[list[int]] = []
    for start in range(0, len(items), size):
        pieces.append(items[start : start + size])
    return pieces


def second_largest(numbers: list[int]) -> int | None:
    """The largest number below the maximum; None if there is none.

    >>> second_largest([4, 9, 9, 7])
    7
    """
    largest: int | None = None
    second: int | None = None
    for number in numbers:
        if largest is None or number > largest:
            largest, second = number, largest
        elif number < largest and (second is None or number > second):
            second = number
    return second


def majority(votes: list[int]) -> int | None:
    """The number that more than half of the votes are for; None if there is none.

    >>> majority([2, 1, 2])
    2
    >>> majority([1, 2])
    """
    counts: dict[int, int] = {}
    for vote in votes:
        counts[vote] = counts.get(vote, 0) + 1
    for vote, count in counts.items():
        if 2 * count > len(votes):
            return vote
    return None


def water_held(heights: list[int]) -> int:
    """How much water a row of bars one wide holds after rain.

    >>> water_held([3, 0, 1, 2])
    3
    """
    held = 0
    for place in range(len(heights)):
        left = max(heights[: place + 1])
        right = max(heights[place:])
        held += min(left, right) - heights[place]
    return held
