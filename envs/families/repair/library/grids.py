"""Functions of grids: lists of rows of equal length."""

from __future__ import annotations


def turned(grid: list[list[int]]) -> list[list[int]]:
    """The grid turned by a quarter, clockwise.

    >>> turned([[1, 2], [3, 4], [5, 6]])
    [[5, 3, 1], [6, 4, 2]]
    """
    if not grid:
        return []
    rows = len(grid)
    return [[grid[rows - 1 - r][c] for r in range(rows)] for c in range(len(grid[0]))]


def spiral(grid: list[list[int]]) -> list[int]:
    """The numbers from the top left corner clockwise inwards.

    >>> spiral([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    [1, 2, 3, 6, 9, 8, 7, 4, 5]
    """
    walked: list[int] = []
    rows = [list(row) for row in grid]
    while rows and rows[0]:
        walked += rows.pop(0)
        rows = [[row[c] for row in rows] for c in range(len(rows[0]) - 1, -1, -1)] if rows else []
    return walked


def living_neighbours(grid: list[list[int]], row: int, column: int) -> int:
    """How many of the up to eight neighbours of a cell are 1.

    >>> living_neighbours([[1, 1, 0], [0, 1, 0], [0, 0, 1]], 1, 1)
    3
    """
    count = 0
    for r in range(row - 1, row + 2):
        for c in range(column - 1, column + 2):
            if (r, c) != (row, column) and 0 <= r < len(grid) and 0 <= c < len(grid[0]):
                count += grid[r][c]
    return count


def islands(grid: list[list[int]]) -> int:
    """How many groups of 1s there are, joined by their sides.

    >>> islands([[1, 1, 0], [0, 0, 1]])
    2
    """
    seen: set[tuple[int, int]] = set()
    count = 0
    for row in range(len(grid)):
        for column in range(len(grid[row])):
            if grid[row][column] == 1 and (row, column) not in seen:
                count += 1
                waiting = [(row, column)]
                while waiting:
                    r, c = waiting.pop()
                    if not (0 <= r < len(grid) and 0 <= c < len(grid[r])):
                        continue
                    if grid[r][c] != 1 or (r, c) in seen:
                        continue
                    seen.add((r, c))
                    waiting += [(r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)]
    return count


def cheapest_path(costs: list[list[int]]) -> int:
    """The smallest sum of costs from the top left to the bottom right cell, going right or down;
    both ends count.

    >>> cheapest_path([[1, 9, 1], [1, 1, 1]])
    4
    """
    best: list[int] = []
    for r, row in enumerate(costs):
        for c, cost in enumerate(row):
            if r == 0 and c == 0:
                best.append(cost)
            elif r == 0:
                best.append(best[c - 1] + cost)
            elif c == 0:
                best[0] += cost
            else:
                best[c] = min(best[c], best[c - 1]) + cost
    return best[-1]


def is_magic(square: list[list[int]]) -> bool:
    """Whether all rows, columns and both diagonals of a square have the same sum.

    >>> is_magic([[2, 7, 6], [9, 5, 1], [4, 3, 8]])
    True
    """
    size = len(square)
    total = sum(square[0])
    for k in range(size):
        if sum(square[k]) != total or sum(row[k] for row in square) != total:
            return False
    falling = sum(square[k][k] for k in range(size))
    rising = sum(square[k][size - 1 - k] for k in range(size))
    return falling == total and rising == total


def saddle_points(grid: list[list[int]]) -> list[list[int]]:
    """The places [row, column] of numbers that are largest in their row and smallest in their
    column.

    >>> saddle_points([[9, 8, 7], [5, 3, 2], [6, 6, 7]])
    [[1, 0]]
    """
    found: list[list[int]] = []
    for r, row in enumerate(grid):
        for c, number in enumerate(row):
            column = [other[c] for other in grid]
            if number == max(row) and number == min(column):
                found.append([r, c])
    return found


def product(one: list[list[int]], other: list[list[int]]) -> list[list[int]]:
    """The product of two matrices. Raises ValueError where their sizes do not fit.

    >>> product([[1, 2]], [[3], [4]])
    [[11]]
    """
    if len(one[0]) != len(other):
        raise ValueError("columns of the one must be rows of the other")
    made: list[list[int]] = []
    for row in one:
        line: list[int] = []
        for c in range(len(other[0])):
            line.append(sum(row[k] * other[k][c] for k in range(len(other))))
        made.append(line)
    return made
