"""Programs that run functions of others in processes of their own, and end these without Python's exit
handlers: what delivers there what producers hold, or what the log says. Other processes that end:
`delivery_future`.

Specification: spec/05-producer.md, PRD-61, PRD-77 and PRD-91.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple


class Host(NamedTuple):
    """``here``: whether this is one of the host's processes, and nothing delivers at its end. ``text``: what
    happens to it, and what to do."""

    here: Callable[[], bool]
    text: str


def _loaded(module: str, *beginnings: str) -> bool:
    """Whether ``module`` was imported, and an environment variable has one of these beginnings."""
    return module in sys.modules and any(name.startswith(beginnings) for name in os.environ)


def _run_by_pool(library: str) -> tuple[Any, Any]:
    """What this process runs, if it is one of `multiprocessing` or of `billiard`, and the module of pools of
    that library."""
    process, pool = sys.modules.get(f"{library}.process"), sys.modules.get(f"{library}.pool")
    if process is None or pool is None:
        return None, None
    return getattr(process.current_process(), "_target", None), pool


def _of_pool() -> bool:
    """Whether this is a worker of multiprocessing.Pool."""
    target, pool = _run_by_pool("multiprocessing")
    return target is not None and target is getattr(pool, "worker", None)


def _of_billiards_pool() -> bool:
    """Whether this is a worker of billiard.Pool, and not one of Celery's, which has a function that it calls
    at its end."""
    target, pool = _run_by_pool("billiard")
    return target is not None and isinstance(target, pool.Worker) and target.on_exit is None


def _in_lambda() -> bool:
    """Whether this is a process of Lambda that runs only during invocations."""
    names = {"AWS_LAMBDA_RUNTIME_API", "AWS_LAMBDA_FUNCTION_NAME"} & os.environ.keys()
    return bool(names) and "AWS_LAMBDA_MAX_CONCURRENCY" not in os.environ


def _lambda_clients() -> list[Any]:
    """The classes by which Lambda's Python runtime says that a handler has returned, if it was loaded."""
    module = sys.modules.get("awslambdaric.lambda_runtime_client")
    found = vars(module).values() if module is not None else ()
    return [one for one in found if isinstance(one, type) and "post_invocation_result" in vars(one)]


_HOSTS: Final = (
    Host(
        lambda: _loaded("pyspark", "PYTHON_WORKER_FACTORY_") and _task_context() is None,
        "PySpark ends this process without exit handlers: call flush() or close() before the function"
        " returns",
    ),
    Host(
        lambda: _loaded("rq", "RQ_JOB_ID"),
        "RQ ends this process without exit handlers: call flush() or close() before the job returns",
    ),
    Host(  # Airflow 2; Airflow 3 runs the exit handlers that were registered in the process
        lambda: _loaded("airflow.task.task_runner.standard_task_runner", "AIRFLOW_CTX_TASK_ID"),
        "Airflow ends this process without exit handlers: call flush() or close() before the task returns",
    ),
    Host(  # in a worker; an actor that nobody refers to any more ends by exit handlers
        lambda: _loaded("ray", "RAY_RAYLET_PID"),
        "Ray ends this process without exit handlers when its job has ended: call flush() before the task"
        " returns",
    ),
    Host(
        lambda: _in_lambda() and not _lambda_clients(),
        "Lambda stops this process when the handler returns, and ends it without exit handlers: call flush()"
        " before the handler returns",
    ),
    Host(
        _of_pool,
        "the end of a with block of multiprocessing.Pool, and its terminate(), end this process by SIGTERM:"
        " call flush() before the function returns, or end the pool by close() and join()",
    ),
    Host(
        _of_billiards_pool,
        "billiard.Pool ends this process without exit handlers: call flush() before the function returns",
    ),
)


def text_of_host() -> str | None:
    """What to log about the end of this process; None: what is put will be delivered."""
    return next((host.text for host in _HOSTS if host.here()), None)


def _task_context() -> Any:
    """PySpark's class of a task's context, if this is one of its Python workers and runs a task."""
    context = getattr(sys.modules.get("pyspark.taskcontext"), "TaskContext", None)
    usable = context is not None and hasattr(context, "_setTaskContext") and context.get() is not None
    return context if usable else None


def deliver_with_tasks(deliver: Callable[[], object]) -> None:
    """Have ``deliver`` called at the end of each task of PySpark in this process, if it is one of its Python
    workers, and of each invocation, if it is one of Lambda's. What it raises fails the task."""
    # PRD-77: "In a Python worker of PySpark a task, and in Lambda an invocation, MUST NOT end before each
    # user record that was put in its process has its result."
    # A worker takes its task's context away when the function has returned, before it tells the JVM that the
    # task has ended. Where the function raises, or the JVM takes no more rows, it reports that instead.
    # Nothing later can be relied on: the daemon ends workers by os._exit and SIGKILL.
    if (context := _task_context()) is not None:
        before = context._setTaskContext.__func__
        _replace(context, "_setTaskContext", deliver, before, lambda cls, task: task is None)
        for module in map(sys.modules.get, ("pyspark.worker", "__main__")):
            if (report := getattr(module, "handle_worker_exception", None)) is not None:
                _replace(module, "handle_worker_exception", deliver, report, lambda *_: True)
    # Lambda freezes the process when it has the handler's result, or its error, and may never thaw it.
    for client in _lambda_clients() if _in_lambda() else ():
        for name in ("post_invocation_result", "post_invocation_error"):
            _replace(client, name, deliver, vars(client)[name], lambda *_: True)


def tell_before_end(tell: Callable[[str], object]) -> None:
    """Have ``tell`` called with the name of each function of `os` that ends this process without exit
    handlers, before it does."""
    for name, ends in (("_exit", lambda _: True), ("execv", _is_program), ("execve", _is_program)):
        _replace(os, name, partial(tell, f"os.{name}"), getattr(os, name), ends)


def _is_program(file: Any, *_: Any) -> bool:
    """Whether `os.execv` of this file can end the process: os.execvp tries one in each folder of PATH."""
    return isinstance(file, int) or os.access(file, os.X_OK)


def _replace(
    of: Any, name: str, deliver: Callable[[], object], before: Any, ends: Callable[..., bool]
) -> None:
    """Have ``deliver`` called before a method where a task ``ends``, once however often this is asked for."""
    if hasattr(before, "deliver"):
        return

    def method(*args: Any, **named: Any) -> Any:
        if ends(*args):
            deliver()
        return before(*args, **named)

    method.deliver = deliver  # type: ignore[attr-defined]
    setattr(of, name, classmethod(method) if isinstance(vars(of)[name], classmethod) else method)
