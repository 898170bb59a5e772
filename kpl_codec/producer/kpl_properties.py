"""Reads a configuration of the KPL: a Java properties file. Specification: spec/05-producer.md, PRD-45."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Final

_LINE: Final = re.compile(r"([^=:\s]+)\s*[=:\s]\s*(.*)\Z")
#: Settings of the KPL that have no counterpart here.
_ONLY_OF_THE_KPL: Final = """
CaCertPath CloudwatchEndpoint CloudwatchPort CredentialsProvider CredentialsRefreshDelay EnableCoreDumps
GlueSchemaRegistryConfiguration GlueSchemaRegistryCredentialsProvider KinesisEndpoint KinesisPort LogLevel
MaxUserRecordSize MetricsCredentialsProvider MetricsGranularity MetricsLevel MetricsNamespace
MetricsUploadDelay MinConnections NativeExecutable ProxyHost ProxyPassword ProxyPort ProxyUserName Region
ReturnUserRecordOnFailure StsEndpoint StsPort TempDirectory ThreadingModel ThreadPoolSize
UserRecordTimeoutInMillis VerifyCertificate
"""


def read_properties(properties: str | os.PathLike[str], settings: Iterable[str]) -> dict[str, object]:
    """The values of a KPL configuration, by the names in ``settings``; warns of each kind of other names.
    ``properties``: the path of its file, or the file's text. Raises OSError and ValueError for a file that
    cannot be read."""
    ours = {_plain(name): name for name in settings}
    kpl_names = {_plain(name): name for name in _ONLY_OF_THE_KPL.split()}
    kpl_names |= {plain: name.removesuffix("_ms").title().replace("_", "") for plain, name in ours.items()}
    values = _parse(_text_of(properties, kpl_names))
    names = {_plain(name): name for name in values}
    # PRD-45: "A configuration of the KPL MUST give the same settings here; what is no setting here MUST be
    # ignored with a warning. Region and KinesisEndpoint, the KPL's other settings, and names that are none of
    # the KPL's MUST each have a warning of their own. A file that cannot be read MUST be refused."
    unknown = [name for plain, name in names.items() if plain not in kpl_names]
    where = _client_settings({plain: values[name] for plain, name in names.items()})
    mapped = ("region", "kinesisendpoint", "kinesisport" if "endpoint_url" in where else "", *ours)
    ignored = [name for plain, name in names.items() if plain not in mapped and name not in unknown]
    hints = [_with_hint(name, kpl_names) for name in unknown]
    for text, about in (
        ("where to write is no setting here: give the producer client_settings={}", where),
        ("settings of the KPL that have no counterpart here, ignored: {}", ", ".join(ignored)),
        ("no settings of the KPL, ignored: {}", ", ".join(hints)),
    ):
        if about:
            warnings.warn(text.format(about), stacklevel=3)
    return {ours[plain]: values[name] for plain, name in names.items() if plain in ours}


def _plain(name: str) -> str:
    return name.removesuffix("_ms").replace("_", "").lower()


def _text_of(properties: str | os.PathLike[str], kpl_names: Mapping[str, str]) -> str:
    """The text of a properties file, given as text or as a path: a single line that sets nothing is a
    path."""
    if isinstance(properties, str):
        line = properties.strip()
        sets = "=" in line or ": " in line or _plain(line.partition(" ")[0]) in kpl_names
        if not line or "\n" in line or line[0] in "#!" or (sets and not os.path.isfile(line)):
            return properties
    return Path(properties).read_text("latin-1")


def _client_settings(values: Mapping[str, object]) -> dict[str, object]:
    """The ``client_settings`` for the settings that say where the KPL writes. ``values``: by names as
    `_plain` makes them."""
    settings: dict[str, object] = {}
    if "region" in values:
        settings["region"] = values["region"]
    if "kinesisendpoint" in values:
        port = f":{values['kinesisport']}" if "kinesisport" in values else ""
        settings["endpoint_url"] = f"https://{values['kinesisendpoint']}{port}"
    return settings


def _with_hint(name: str, kpl_names: Mapping[str, str]) -> str:
    near = get_close_matches(_plain(name), kpl_names, 1, 0.75)
    return f"{name} (did you mean {kpl_names[near[0]]}?)" if near else name


def _parse(text: str) -> dict[str, object]:
    """The names and values of a properties file, as far as the KPL's settings need its format."""
    values: dict[str, object] = {}
    for line in _logical_lines(text):
        match = _LINE.match(line)
        name, value = match.groups() if match else (line, "")
        value = re.sub(r"\\(.)", r"\1", value.strip())
        values[name] = int(value) if value.isascii() and value.isdigit() else value
        if value.lower() in ("true", "false"):
            values[name] = value.lower() == "true"
    return values


def _logical_lines(text: str) -> Iterator[str]:
    """The lines that set something, each with those that continue it. As in Java an odd number of
    backslashes continues a line, and none a comment."""
    line = ""
    for part in [*re.split(r"\r\n|\r|\n", text), ""]:
        part = part.lstrip()
        if not line and part.startswith(("#", "!")):
            continue
        line += part
        if (len(line) - len(line.rstrip("\\"))) % 2:
            line = line[:-1]
        elif line.strip():
            yield line.strip()
            line = ""
