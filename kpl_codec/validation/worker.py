"""A worker process of the local engine: reads the work, then task numbers, pickled, from standard input;
answers each number with None or the error."""

import os
import pickle
import sys
from contextlib import suppress
from typing import Any


def main() -> None:
    # Output of libraries must not mix with the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    given = sys.stdin.buffer
    with suppress(EOFError, pickle.UnpicklingError):  # the process that started us ended
        work: Any = pickle.load(given)
        while True:
            number, error = pickle.load(given), None
            try:
                work.run(number)
            except Exception as caught:  # noqa: BLE001  raised where the job was started
                error = caught
            try:
                answer = pickle.dumps(error)
            except Exception:  # noqa: BLE001  an error that cannot be pickled
                answer = pickle.dumps(RuntimeError(repr(error)))
            try:
                answers.write(answer)
                answers.flush()
            except BrokenPipeError:  # the process that started us was killed
                os._exit(1)


if __name__ == "__main__":
    main()
