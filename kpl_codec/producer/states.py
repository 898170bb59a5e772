"""The states of a producer and of a user record in it, and what leads from one to another: two tables, which
nothing else repeats. spec/05-producer.md, 5.2, has both for readers.

A producer: `mailbox.Mailbox` has its state, and changes it by `NEXT` alone.

    start   a with block, or `start`
    close   `close`, and whatever closes a producer for its caller
    break   a bug in the driver
    end     each user record has its result, and on_undelivered has returned
    fork    it is in a forked child

A user record: it has the state of its Kinesis record while it is in one, which changes by `MOVES` alone; else
that of the place that holds it. `core.ProducerCore.places` gives all.

    put        taken by the core, or out of its place to be placed anew   core
    waiting    without a map                                              Routing
    held       behind others of its key, in strict order                  StrictOrder
    open       in an open aggregate of its shard                          Lanes
    queued     in the queue of its shard                                  Lanes
    next       in the next call, or in one of its own                     Lanes
    in-flight  in a call that is under way                                core
    stored     on the stream, without a verdict                           Answers
    ended      it has its result                                          `results`, then the driver
"""

from __future__ import annotations

from typing import Final, Literal

State = Literal["new", "running", "closing", "closed", "breaking", "broken"]
Event = Literal["start", "close", "break", "end", "fork"]

#: The next state by state and event. An event that is not here changes nothing.
NEXT: Final[dict[tuple[State, Event], State]] = {
    ("new", "start"): "running",
    ("new", "close"): "closed",
    ("new", "break"): "breaking",  # Ctrl-C came between the start of the driver and `start`
    ("running", "close"): "closing",
    ("running", "break"): "breaking",
    ("running", "end"): "closed",
    ("running", "fork"): "new",
    ("closing", "break"): "breaking",
    ("closing", "end"): "closed",
    ("closing", "fork"): "closed",
    ("breaking", "end"): "broken",
    ("breaking", "fork"): "broken",
}
#: States in which a producer takes user records; in which its driver gives results; in which it never will
#: again.
OPEN: Final[frozenset[State]] = frozenset(("running",))
DRIVEN: Final[frozenset[State]] = frozenset(("running", "closing", "breaking"))
ENDED: Final[frozenset[State]] = frozenset(("closed", "broken"))

RecordState = Literal["put", "waiting", "held", "open", "queued", "next", "in-flight", "stored", "ended"]

#: The states that a user record may have next, by its state. Any other move is a bug.
MOVES: Final[dict[RecordState, frozenset[RecordState]]] = {
    "put": frozenset(("waiting", "held", "open", "ended")),
    "waiting": frozenset(("put", "ended")),
    "held": frozenset(("waiting", "open", "ended")),
    "open": frozenset(("queued", "put", "ended")),
    "queued": frozenset(("next", "put", "ended")),
    "next": frozenset(("in-flight", "put", "ended")),
    "in-flight": frozenset(("stored", "queued", "next", "put", "ended")),
    "stored": frozenset(("put", "ended")),
    "ended": frozenset(),
}
