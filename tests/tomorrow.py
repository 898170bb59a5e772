"""A plugin of pytest, ``-p tests.tomorrow``: the clock is a day ahead from before the first import."""

from __future__ import annotations

import datetime

import time_machine

time_machine.travel(datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=1)).start()
