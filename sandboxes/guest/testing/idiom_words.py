"""Words of tests that may look at the solution's process; see `idioms`.

Only tests that use such a word are examined more closely, which saves time for all others.
"""

from __future__ import annotations

WORDS = frozenset(
    """
    redirect_stdout redirect_stderr capsys capfd capsysbinary stdout stderr stdin input print seed
    setstate patch monkeypatch mocker random time builtins
    open tempfile tmp_path tmpdir tmp_path_factory tmpdir_factory shutil Path pathlib glob mock_open
    environ getenv putenv chdir getcwd listdir remove unlink mkdir makedirs rmdir rename walk
    scandir exists isfile isdir argv subprocess Popen system
    warns catch_warnings assertWarns assertWarnsRegex recwarn deprecated_call
    caplog assertLogs assertNoLogs
    getsource getsourcelines getsourcefile getfile isgeneratorfunction iscoroutinefunction
    isasyncgenfunction isfunction ismethod isclass getmembers getmodule get_type_hints stack
    __code__ __closure__ __globals__ __mro__ __bases__ __subclasses__ __slots__ __cause__
    __context__ __traceback__ __notes__
    threading Thread ThreadPoolExecutor ProcessPoolExecutor multiprocessing concurrent
    wait_for timeout timeout_at Event Condition Barrier
    weakref WeakValueDictionary WeakKeyDictionary gc getrefcount tracemalloc
    pickle dumps loads asdict astuple is_dataclass fields
    doctest testmod signal alarm pandas pd DataFrame Series
    append appendleft extend update insert setdefault sort reverse clear popitem popleft remove
    discard Mock MagicMock AsyncMock exception value
    StringIO BytesIO issubclass ExceptionGroup BaseExceptionGroup setrecursionlimit
    """.split()  # noqa: SIM905 - a list literal would take a line a name
)
