"""Idioms of tests that look at the solution's process, by the words that show them (`idioms`)."""

from __future__ import annotations

FILES = "share files with the solution, which has a file system of its own"
_BY_REASON = {
    FILES: """
        tempfile. shutil. glob. open builtins.open io.open codecs.open mock_open
        tmp_path tmpdir tmp_path_factory tmpdir_factory
        os.chdir os.getcwd os.listdir os.remove os.unlink os.mkdir os.makedirs os.rmdir os.rename
        os.walk os.scandir os.stat path.exists path.isfile path.isdir
    """,
    "start programs": "subprocess. os.system os.popen",
    "set the arguments of a program": "sys.argv",
    "set or read the environment of the solution": "os.environ os.getenv os.putenv",
    "call the solution from other processes": "multiprocessing.",
    "call the solution from several threads": "threading. concurrent.",
    "rely on the solution's tasks running beside the tests'": """
        asyncio.wait_for asyncio.timeout asyncio.timeout_at asyncio.Event asyncio.Condition
        asyncio.Barrier asyncio.Queue
    """,
    "watch the memory of the solution": "weakref. gc. tracemalloc. getrefcount",
    "pickle objects of the solution": "pickle.",
    "run the solution's doctests": "doctest.",
    "use signals": "signal.",
    "use pandas, whose objects do not cross": "pandas.",
    "patch the solution's process": "mocker",
    "watch the solution's warnings": """
        warns catch_warnings assertWarns recwarn assertWarnsRegex deprecated_call
    """,
    "read the solution's log": "caplog assertLogs assertNoLogs",
    "read the solution's type hints": "get_type_hints",
    "set the recursion limit": "setrecursionlimit",
    "use groups of exceptions": "ExceptionGroup BaseExceptionGroup",
    "inspect the solution's code": """
        getsource getsourcelines getsourcefile getfile isgeneratorfunction iscoroutinefunction
        isasyncgenfunction isfunction ismethod isclass getmembers getmodule
    """,
    "look into the solution's objects": """
        __code__ __closure__ __globals__ __mro__ __bases__ __subclasses__ __slots__ __traceback__
        __notes__ dataclasses.asdict dataclasses.astuple
        dataclasses.is_dataclass dataclasses.fields dataclasses.replace
    """,
}
REFUSED = {
    word: f"{reason} ({word.strip('.')})"
    for reason, words in _BY_REASON.items()
    for word in words.split()
}
"""Word -> why tests with it cannot be judged. A word is a name or attribute, `module.` for an
import, or `base.name` for a name of a module.
"""


def _by_name(table: dict[str, str]) -> dict[str, str]:
    return {name: module for module, names in table.items() for name in names.split()}


JUDGES = _by_name({
    "math": "isclose isnan isinf isfinite",
    "copy": "deepcopy",
    "functools": "cmp_to_key",
    "operator": "eq ne",
    "pytest": "approx raises",
    "unittest": "TestCase",
    "numpy": "allclose array_equal array_equiv",
    "numpy.testing": """
        assert_allclose assert_array_equal assert_almost_equal assert_array_almost_equal
        assert_equal assert_array_less assert_approx_equal
    """,
})  # fmt: skip
"""Functions by which tests judge -> the module to import from, whatever the solution offers.

They are the solution's where they are the entry point, or where the tests use nothing else of it.
"""
HELPERS = JUDGES | _by_name({
    "math": """
        pi tau inf nan sqrt exp sin cos tan radians degrees fabs floor ceil factorial
        gcd hypot log2 log10 prod dist fsum isqrt
    """,
    "collections": "Counter deque defaultdict OrderedDict",
    "decimal": "Decimal",
    "fractions": "Fraction",
    "functools": "reduce",
    "itertools": "permutations combinations product chain accumulate islice groupby zip_longest",
    "json": "loads dumps",
    "re": "fullmatch match search findall",
    "statistics": "mean median fmean",
    "operator": "itemgetter attrgetter",
})  # fmt: skip
"""Likewise what tests calculate with, where the task names another entry point or has a reference
that does not define it.
"""

OF_THE_TESTS = (
    *("StringIO", "BytesIO", "Random", "default_rng", "RandomState", "getLogger", "Lock"),
    "approx",
)
"""What makes objects with a state that the solution would need, or that are equal to others."""
