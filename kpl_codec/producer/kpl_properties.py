"""The names of the KPL's configuration file, and the settings they stand for.

    # a Java properties file
    RecordMaxBufferedTime = 100
    RecordTtl = 30000

Specification: spec/05-producer.md, PRD-45.
"""

from __future__ import annotations

import re
from typing import Final

#: The KPL's settings that this producer has, too, under the same name in snake case (times with ``_ms``).
TAKEN: Final = frozenset(
    {
        "aggregationenabled", "aggregationmaxcount", "aggregationmaxsize", "collectionmaxcount",
        "collectionmaxsize", "connecttimeout", "failifthrottled", "maxconnections", "ratelimit",
        "recordmaxbufferedtime", "recordttl", "requesttimeout",
    }
)  # fmt: skip
#: Settings that do not exist here: endpoints, credentials, proxies and certificates belong to the client;
#: metrics go to ``observe``; the rest is for the KPL's native process. (For record sizes see
#: max_record_size.)
PASSED_OVER: Final = frozenset(
    {
        "cacertpath", "cloudwatchendpoint", "cloudwatchport", "credentialsrefreshdelay",
        "daemonhealthchecktimeoutms", "enablecoredumps", "enabledaemonhealthcheck",
        "enableoldestfuturetracker", "kinesisendpoint", "kinesisport", "loglevel", "maxuserrecordsize",
        "metricsgranularity", "metricslevel", "metricsnamespace", "metricsuploaddelay", "minconnections",
        "nativeexecutable", "proxyhost", "proxypassword", "proxyport", "proxyusername",
        "recorddistributionstrategydefault", "region", "returnuserrecordinfuture",
        "returnuserrecordonfailure", "stsendpoint", "stsport", "tempdirectory", "threadingmodel",
        "threadpoolsize", "userrecordtimeoutinmillis", "verifycertificate",
    }
)  # fmt: skip
_LINE = re.compile(r"([^=:\s]+)\s*[=:\s]\s*(.*)\Z")


def parse_properties(text: str) -> dict[str, str]:
    """The names and values of a Java properties file, as far as the KPL's settings need it: comments,
    ``=``, ``:`` or a blank between name and value, lines continued with a backslash."""
    settings: dict[str, str] = {}
    for line in re.sub(r"\\\r?\n\s*", "", text).splitlines():
        line = line.strip()
        if line and line[0] not in "#!":
            match = _LINE.match(line)
            name, value = match.groups() if match else (line, "")
            settings[name] = value.strip()
    return settings
