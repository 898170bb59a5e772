"""What a parameter of a public function takes, by its name: one row each. `check_arguments` refuses what does
not fit where the function is called: before a handler runs, a call is made or a file is written;
`check_keywords` refuses a name that the function does not have. What an option needs beside it stands in
`NEEDS`. The law over all public functions: tests/base/test_arguments.py.

Functions that run for each record have no check: they turn the TypeError or AttributeError that a wrong value
causes into `argument_error`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from typing import Any

#: What is wrong with a value: TypeError, ValueError, or None where it fits.
Wrong = Callable[[Any], "type[Exception] | None"]
#: Flags of a code object (documented in `inspect`, which is slow to import).
_VARARGS, _GENERATORS, _COROUTINE = 0x04, 0x20 | 0x200, 0x80
#: The longest time that locks and sockets take, in seconds: 30 years.
_LONGEST = 1e9


def whole_number(low: int, high: int = sys.maxsize) -> Wrong:
    """An int, or what counts as one (of numpy); no bool."""

    def wrong(value: Any) -> type[Exception] | None:
        if isinstance(value, bool) or not hasattr(type(value), "__index__"):
            return TypeError
        return None if low <= value <= high else ValueError

    return wrong


def number(low: float, high: float, *, above: bool = False) -> Wrong:
    """A number from ``low`` (or above it) to ``high``; no bool, no NaN."""

    def wrong(value: Any) -> type[Exception] | None:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return TypeError
        return None if low <= value <= high and not (above and value == low) else ValueError

    return wrong


def one_of(*words: str) -> Wrong:
    def wrong(value: Any) -> type[Exception] | None:
        return TypeError if not isinstance(value, str) else None if value in words else ValueError

    return wrong


def instance(*kinds: type) -> Wrong:
    return lambda value: None if isinstance(value, kinds) else TypeError


def has(*members: str) -> Wrong:
    """An object with one of these members: users and tests have objects of their own. Never a class."""

    def wrong(value: Any) -> type[Exception] | None:
        fits = not isinstance(value, type) and any(hasattr(value, member) for member in members)
        return None if fits else TypeError

    return wrong


def _botocore_config(value: Any) -> type[Exception] | None:
    # (aiobotocore's has a connector, which boto3 cannot use.)
    return TypeError if hasattr(value, "connector_args") else has("merge")(value)


def text(begins: tuple[str, ...] = ("",), contains: str = "", digits: bool = False) -> Wrong:
    """A line of text that is not empty."""

    def wrong(value: Any) -> type[Exception] | None:
        if not isinstance(value, str):
            return TypeError
        fits = value.startswith(begins) and contains in value and value.isprintable()
        return None if value and fits and (value.isdecimal() or not digits) else ValueError

    return wrong


def folder(value: Any, also: tuple[str, ...] = ()) -> type[Exception] | None:
    """Where files can be written: a folder of this machine or of S3, or what begins with one of ``also``.
    Another URI, and ~, would become a folder of that name."""
    of_object = getattr(type(value), "__fspath__", None)  # `os` is the system's, which no core asks
    path = value if of_object is None else of_object(value)
    if not isinstance(path, str):
        return TypeError
    if path.startswith(also):
        return None
    other = path.startswith("~") or re.match("[A-Za-z][A-Za-z0-9+.-]+:", path)
    return None if re.match("s3://[^/]", path) or (path and not other) else ValueError


def output_folder(value: Any) -> type[Exception] | None:
    """`folder`, with the names that Spark and Hadoop have for both. A Location of captures fits."""
    return None if hasattr(value, "filesystem") else folder(value, ("file:/", "s3a://", "s3n://"))


def texts(value: Any) -> type[Exception] | None:
    """Several texts; no text itself, whose items would be its letters."""
    if isinstance(value, (str, bytes, Mapping, type)) or not isinstance(value, Iterable):
        return TypeError
    items = value if isinstance(value, Collection) else ()  # an iterator gives its items once
    return None if all(isinstance(item, str) for item in items) else TypeError


def all_or_several(value: Any) -> type[Exception] | None:
    # ARG-12: "What chooses the records that are read MUST refuse None, and an option of a command an empty
    # text: a look-up that found nothing would read everything."
    several = isinstance(value, Collection) and not isinstance(value, (str, bytes, Mapping, type))
    return None if several or (isinstance(value, str) and value == "all") else TypeError


def all_or_texts(value: Any) -> type[Exception] | None:
    return all_or_several(value) if isinstance(value, str) else texts(value)


def _model(value: Any) -> type[Exception] | None:
    return None if isinstance(value, type) and hasattr(value, "model_validate") else TypeError


def wrong_function(value: Any, arity: int, awaits: bool) -> bool:
    """Whether ``value`` is no function of so many arguments. ``awaits``: it may be a coroutine function. What
    does not say its arguments (built-in, or of compiled code) fits."""
    if not callable(value) or isinstance(value, type):
        return True
    function = getattr(value, "__func__", value)
    code = getattr(function, "__code__", None)
    bound = function is not value
    if code is None and type(value).__name__ == "partial" and hasattr(value, "func"):
        inner = getattr(getattr(value.func, "__func__", value.func), "__code__", None)
        return inner is not None and not _may_run(inner.co_flags, awaits)
    if code is None:
        function, bound = getattr(type(value), "__call__", None), True  # noqa: B004 - its code is asked for
        code = getattr(function, "__code__", None)
    if code is None or not hasattr(code, "co_flags"):
        return False
    most = code.co_argcount - bound
    least = most - len(getattr(function, "__defaults__", None) or ())
    named = code.co_kwonlyargcount - len(getattr(function, "__kwdefaults__", None) or ())
    takes = least <= arity and (arity <= most or code.co_flags & _VARARGS) and not named
    return not takes or not _may_run(code.co_flags, awaits)


def _may_run(flags: int, awaits: bool) -> bool:
    return not flags & _GENERATORS and (awaits or not flags & _COROUTINE)


class Row:
    """What the parameters of one name take. ``kind``: a `Wrong`, or the number of arguments of a function;
    ``give``: what to give, for the error; ``optional``: None fits."""

    __slots__ = ("give", "kind", "optional")

    def __init__(self, kind: Wrong | int, give: str, *, optional: bool = False) -> None:
        self.kind, self.give, self.optional = kind, give, optional


FOLDER = "s3://BUCKET/PREFIX, or a folder (./a:b if it has a colon; ~ is not replaced)"
#: Rows that `add_row` was given.
_ADDED: dict[str, Row] = {}


@cache
def _rows() -> dict[str, Row]:
    """By name of a parameter; by "NAME of FUNCTION" where one function means something else by it. Words
    whose home is another module are added there, by `add_row`. Made at the first check: no import waits."""
    a_text, seconds, boolean = text(), number(0, _LONGEST), instance(bool)
    above_0, count = number(0, _LONGEST, above=True), whole_number(1)
    a_context = has("get_remaining_time_in_millis")
    size = whole_number(1, 1 << 128)  # however large: then there is no limit
    botocore = Row(_botocore_config, "a Config of botocore", optional=True)
    map_ = Row(has("shard_for"), "a ShardMap, as fetch_shard_map(client, stream) gives it", optional=True)
    maps = Row(has("shard_for", "shard_map"), "a ShardMap or a ShardMapCache", optional=True)
    # ARG-3: "A parameter of one name MUST take the same kind of value in every function." (Each exception is
    # a row.)
    return {
        "access_key_id": Row(a_text, "a text that is not empty", optional=True),
        "after_failure": Row(one_of("stop", "continue"), '"stop" or "continue"'),
        "batch": Row(count, "a number of user records, 1 or more", optional=True),
        "before": Row(boolean, "True or False"),
        "blocking": Row(2, "the once of kpl_codec.aws_lambda.powertools"),
        "client": Row(
            has("get_records", "put_records", "list_shards"),
            'a client of Kinesis, as boto3.client("kinesis")',
        ),
        "client_settings": Row(
            instance(Mapping), '{"region": ...}, the arguments of kinesis_client', optional=True
        ),
        "columns": Row(texts, "a list of names of columns", optional=True),
        "compress": Row(boolean, "True or False"),
        "concurrency": Row(count, "a number of tasks, 1 or more"),
        "config": Row(has("ttl_seconds"), "ProducerConfig(...)", optional=True),
        "config of client_settings of AsyncProducer": botocore,
        "config of client_settings of Producer": botocore,
        "config of kinesis_client": botocore,
        "config of once": Row(has("register_lambda_context"), "IdempotencyConfig(...)", optional=True),
        "context": Row(a_context, "the context that Lambda gives", optional=True),
        "context of once": Row(
            lambda value: above_0(value) if isinstance(value, (int, float)) else a_context(value),
            "the context that Lambda gives, or seconds above 0",
            optional=True,
        ),
        "cores": Row(count, "a number of processes, 1 or more", optional=True),
        "delimiter": Row(instance(bytes), 'bytes, as b"\\n"'),
        "delivery_stream_arn": Row(text(("arn:",)), "the ARN of a delivery stream"),
        "dump": Row(boolean, "True or False"),
        "endpoint_url": Row(a_text, "a URL, as http://localhost:4567", optional=True),
        "engine": Row(has("run"), "LocalEngine()"),
        "exit_timeout": Row(seconds, "seconds, 0 or more", optional=True),
        "fn": Row(1, "a function that takes a future"),
        "follow": Row(boolean, "True or False"),
        "fraction": Row(number(0, 1), "a number from 0 to 1"),
        "handler": Row(
            1,
            "a function that takes a user record "
            "(async functions: the function of this name in its module aio)",
        ),
        "hash_key_range": Row(has("overlaps"), "HashKeyRange(first, last)", optional=True),
        "inputs": Row(texts, 'a list of paths, as ["captures/"]'),
        "key_prefix": Row(a_text, "a text that is not empty", optional=True),
        "ledger": Row(has("writer"), "Ledger(...)", optional=True),
        "logger": Row(has("debug"), "a Logger, as logging or Powertools has it", optional=True),
        "max_age": Row(seconds, "seconds, 0 or more"),
        "max_batch_bytes": Row(count, "a number of bytes, 1 or more"),
        "max_decompressed_size": Row(size, "a size of at least 1 byte", optional=True),
        "max_nodes": Row(count, "a number of nodes, 1 or more"),
        "max_size of AggregatedRecordBuilder": Row(
            whole_number(0, 1 << 128), "a number of bytes, 0 or more", optional=True
        ),
        "max_size": Row(size, "a size of at least 1 byte", optional=True),
        "memory_bytes": Row(count, "a number of bytes, 1 or more", optional=True),
        "model": Row(_model, "a class of pydantic, as those of kpl_codec.aws_lambda.parser", optional=True),
        "meter": Row(has("create_counter"), "a meter of OpenTelemetry", optional=True),
        "observe": Row(3, "a function that takes name, value and attributes", optional=True),
        "only": Row(all_or_several, 'a list that find_sequence_numbers gives, or "all"'),
        "on_drop": Row(1, "a function that takes a Drop", optional=True),
        "on_poison": Row(1, "a function that takes a Poison", optional=True),
        "on_undelivered": Row(1, "a function that takes a DeliveryError", optional=True),
        "once": Row(2, "a function that takes a key and a function to call", optional=True),
        "output": Row(output_folder, FOLDER),
        "partition_key": Row(instance(str), "a text", optional=True),
        "patience": Row(seconds, "seconds, 0 or more"),
        "persistence_store": Row(has("save_inprogress"), "a persistence layer of Powertools"),
        "place": Row(
            lambda value: None if callable(value) else folder(value),
            f"{FOLDER}, or a function that takes a line of text",
        ),
        "poll_interval": Row(above_0, "seconds above 0"),
        "processor_factory": Row(
            lambda value: None if callable(value) or hasattr(value, "shard_record_processor") else TypeError,
            "the class of your record processor, or a function that makes one",
        ),
        "producer": Row(has("_driver"), 'a Producer or an AsyncProducer, as Producer("orders")'),
        "profile": Row(a_text, "the name of a profile", optional=True),
        "quick_start": Row(boolean, "True or False"),
        "raise_on_entire_batch_failure": Row(boolean, "True or False"),
        "rate": Row(number(0, 1), "a number from 0 to 1"),
        "read_on": Row(whole_number(1, 10_000), "a number of records, 1 to 10000"),
        "region": Row(a_text, "the name of a region", optional=True),
        "reserve_ms": Row(whole_number(0), "milliseconds, 0 or more"),
        "role_arn": Row(text(("arn:",), ":role/"), "the ARN of a role", optional=True),
        "role_external_id": Row(a_text, "a text that is not empty", optional=True),
        "role_session_name": Row(a_text, "a text that is not empty"),
        "seconds": Row(seconds, "seconds, 0 or more"),
        "secret_access_key": Row(a_text, "a text that is not empty", optional=True),
        "sequence_number": Row(text(digits=True), "the sequence number's digits, as text"),
        "session_token": Row(a_text, "a text that is not empty", optional=True),
        "shard_id": Row(a_text, "a shard id", optional=True),
        "shard_ids": Row(all_or_texts, 'a list of shard ids, or "all"'),
        "shard_map": map_,
        "shard_map of UserRecordBatchProcessor": maps,
        "shard_map of process_user_records": maps,
        "side": Row(one_of("produced", "handled"), '"produced" or "handled"'),
        "source_stream_arn": Row(text(("arn:",)), "the ARN of a stream", optional=True),
        "stream": Row(instance(str), "a stream's name or ARN"),
        "stream of captured": Row(instance(str), "a stream's name or ARN", optional=True),
        "stream of kinesis_records": Row(instance(str), "a stream's name or ARN", optional=True),
        "stream_arn": Row(text(("arn:",)), "the ARN of a stream"),
        "sts_endpoint_url": Row(a_text, "a URL", optional=True),
        "tags": Row(boolean, "True or False"),
        "task_bytes": Row(count, "a number of bytes, 1 or more", optional=True),
        "threads": Row(count, "a number of threads, 1 or more", optional=True),
        "timeout": Row(number(0, float("inf")), "seconds, 0 or more", optional=True),
        "user_records": Row(boolean, "True or False"),
        "verify": Row(
            instance(bool, str), "True, False or the path of a bundle of certificates", optional=True
        ),
        "wait": Row(boolean, "True or False"),
    }


#: Texts that no error may show.
_SECRETS = frozenset(("access_key_id", "secret_access_key", "session_token", "role_external_id"))
#: Functions that a caller on asyncio may give as coroutine functions.
AWAITED = frozenset(("handler", "once", "on_undelivered"))
#: An option that does nothing without another one, or without a value of it.
NEEDS: dict[str, str] = {
    "access_key_id": "secret_access_key",
    "secret_access_key": "access_key_id",
    "session_token": "access_key_id",
    "role_external_id": "role_arn",
    "role_session_name": "role_arn",
    "sts_endpoint_url": "role_arn",
    "reserve_ms": "context",
}


def add_row(name: str, kind: Wrong | int, give: str, *, optional: bool = False) -> None:
    """For the module that is the home of the words or the type that a parameter takes."""
    _ADDED[name] = Row(kind, give, optional=optional)
    row_of.cache_clear()


@cache
def row_of(name: str, function: str) -> Row | None:
    """The row of the parameter ``name`` of ``function``; None if it has none."""
    for key in (f"{name} of {function}", name):
        row = _ADDED.get(key) or _rows().get(key)
        if row is not None:
            return row
    return None


def check_arguments(
    function: str, given: Mapping[str, Any], *, required: Collection[str] = (), awaits: bool = False
) -> None:
    """Raise TypeError or ValueError for the first of the arguments ``given``, by name, that does not fit its
    row. ``required``: names whose None does not fit here. ``awaits``: the function is one of asyncio."""
    # ARG-1: "What can be known to be wrong at the call MUST be refused at the call, with a TypeError or
    # ValueError that begins with the parameter and the function and says what to give, before a handler runs,
    # a call is made or a file is written."
    for name, value in given.items():
        row = row_of(name, function)
        if row is None or (value is None and row.optional and name not in required):
            continue
        kind, wrong = row.kind, None
        if not isinstance(kind, int):
            wrong = kind(value)
        elif wrong_function(value, kind, awaits and name in AWAITED):
            wrong = TypeError
        if wrong is not None:
            give = row.give + ", or None" * (row.optional and name not in required)
            raise argument_error(function, name, value, wrong, give)


def argument_error(
    function: str, name: str, value: Any, kind: type[Exception] = TypeError, give: str = "", at: str = ""
) -> Exception:
    """The error for an argument that does not fit, or for its item ``value``: ``at`` says which, as "in item
    0". It shows no text that may be data or a secret."""
    word = kind is ValueError and isinstance(value, str) and value and name not in _SECRETS
    shown = repr(value)[:60] if word else _shown(value)
    return kind(f"{name} of {function} is {shown}{at and f' {at}'}, give {give}")


def checked_items(function: str, name: str, values: Any, member: str, give: str) -> list[Any]:
    """The items of ``values``, each of which has this ``member``."""
    if isinstance(values, Mapping) or not isinstance(values, Iterable):
        raise argument_error(function, name, values, give=give)
    items = [*values]
    for number, item in enumerate(items):
        if not hasattr(item, member):
            raise argument_error(function, name, item, give=give, at=f"in item {number}")
    return items


def check_needs(function: str, given: Mapping[str, Any], defaults: Mapping[str, Any] = {}) -> None:
    """Raise ValueError for an option that has no effect, because what it needs is not given. ``defaults``:
    values that count as not given; others are None."""
    # ARG-2: "An option that does nothing without another one MUST be refused without it."
    for name, value in given.items():
        other = NEEDS.get(name)
        if other is not None and value != defaults.get(name) and given.get(other) is None:
            raise ValueError(
                f"{name} of {function} is given without {other}, give both: alone it does nothing"
            )


def _shown(value: Any) -> str:
    """``value`` in a few words, without what it holds."""
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)[:40]
    if isinstance(value, type):
        return f"the class {value.__name__}"
    code = getattr(getattr(value, "__func__", value), "__code__", None)
    flags = getattr(code, "co_flags", None)
    if isinstance(flags, int):
        if flags & _GENERATORS:
            return "a generator function"
        many = "async function" if flags & _COROUTINE else "function"
        return f"a {many} with other arguments" if many == "function" else f"an {many}"
    if isinstance(value, str) and not value:
        return "an empty text"
    return f"of type {type(value).__name__}"


def check_keywords(name: str, options: Iterable[str], *takers: Callable[..., Any]) -> None:
    """Raise TypeError if ``options``, the keywords of a call of the function ``name``, has one that no
    function or TypedDict in ``takers`` has. The text names the function that the user called."""
    known: set[str] = set()
    for taker in takers:
        if isinstance(taker, type):
            known.update(taker.__annotations__)
        else:
            code: Any = taker.__code__
            last = code.co_argcount + code.co_kwonlyargcount
            known.update(code.co_varnames[code.co_posonlyargcount : last])
    for option in options:
        if option not in known:
            from difflib import get_close_matches  # slow to import

            parts = [one for one in known if one in option]
            near = get_close_matches(option, known, 1, 0.75) or sorted(parts, key=len, reverse=True)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise TypeError(f"{name}() has no argument {option!r}{hint}")
