"""The states of a producer, and what leads from one to another. `pending.Mailbox` has the state, and changes
it by this table alone; spec/05-producer.md, 5.2, has it for readers.

    start   the first put, or a with block
    close   `close`, and whatever closes a producer for its caller
    break   a bug in the driver
    end     each user record has its result, and on_undelivered has returned; or the event loop or the
            process of the driver is gone
"""

from __future__ import annotations

from typing import Final, Literal

State = Literal["new", "running", "closing", "closed", "breaking", "broken"]
Event = Literal["start", "close", "break", "end"]

#: The next state by state and event. An event that is not here changes nothing.
NEXT: Final[dict[tuple[State, Event], State]] = {
    ("new", "start"): "running",
    ("new", "close"): "closed",
    ("new", "break"): "breaking",  # Ctrl-C came between the start of the driver and `start`
    ("running", "close"): "closing",
    ("running", "break"): "breaking",
    ("running", "end"): "closed",
    ("closing", "break"): "breaking",
    ("closing", "end"): "closed",
    ("breaking", "end"): "broken",
}
#: States in which a producer takes user records; in which its driver gives results; in which it never will
#: again.
OPEN: Final[frozenset[State]] = frozenset(("new", "running"))
DRIVEN: Final[frozenset[State]] = frozenset(("running", "closing", "breaking"))
ENDED: Final[frozenset[State]] = frozenset(("closed", "broken"))
