"""The channels of a stream. A channel delivers the stream's records to Iceberg tables or S3, and does not
unpack aggregated records.

    channel_findings(find_subscribers(client, "orders"), aggregated_records=120)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ..findings import Finding
from .calls import call_errors, failure_of, stream_for


class Channel(NamedTuple):
    """``record_format``: JSON, GSR_JSON, STRING, BYTE_ARRAY; None where the role may not read it."""

    name: str
    destination: str
    record_format: str | None


class Subscribers(NamedTuple):
    """Queues and channels of a stream. ``unreadable_count``: of the channels that the role may not describe;
    ``why``: the error."""

    channels: list[Channel]
    queue_count: int = 0
    unreadable_count: int = 0
    why: str = ""


def find_subscribers(client: Any, stream: str) -> Subscribers:
    """The queues and channels of a stream. It counts channels that the role may not read, or that botocore is
    too old for (1.43 has them), and raises nothing."""
    channels: list[Channel] = []
    count = queues = 0
    why = ""
    argument = stream_for(client, stream).argument
    try:
        summary = client.describe_stream_summary(**argument)["StreamDescriptionSummary"]
        count, queues = int(summary.get("ChannelCount") or 0), int(summary.get("QueueCount") or 0)
        token: dict[str, str] = {}
        while len(channels) < count:
            response = client.list_channels(StreamFilter=[{"StreamARN": summary["StreamARN"]}], **token)
            channels += [_channel(client, item) for item in response["ChannelSummaries"]]
            if not response.get("NextToken"):
                break
            token = {"NextToken": response["NextToken"]}
    except call_errors() as error:
        failure = failure_of(error)
        why = f"{failure.code}: {failure.reason}"
    except AttributeError as error:
        why = f"botocore is too old: {error}"
    except KeyError as error:  # of a truncated response (MAP-14)
        why = f"IncompleteAnswer: an answer without {error.args[0]}"
    return Subscribers(channels, queues, max(0, count - len(channels)), why)


def _channel(client: Any, summary: dict[str, Any]) -> Channel:
    description = client.describe_channel(ChannelARN=summary["ChannelARN"])["ChannelDescription"]
    formats = [
        stream.get("RecordConfiguration", {}).get("RecordFormatType")
        for stream in description.get("StreamConfigurationList", ())
    ]
    return Channel(
        summary["ChannelName"], summary.get("ChannelDestinationType", ""), formats[0] if formats else None
    )


def channel_findings(subscribers: Subscribers, aggregated_records: int) -> Iterator[Finding]:
    # CHN-1: "A channel of a format that aggregated records cannot have MUST be a finding where aggregated
    # records were seen, reported as following from the documentation."
    if not aggregated_records:
        return
    proof = f"aggregated records seen: {aggregated_records:,}"
    for channel in subscribers.channels:
        unopened = channel.record_format in ("BYTE_ARRAY", None)
        yield Finding(
            kind="channel-bytes" if unopened else "channel-aggregates",
            aggregates=aggregated_records,
            detail=f"channel {channel.name}: {channel.destination}, format {channel.record_format}; {proof}",
        )
    if subscribers.unreadable_count:
        count = f"{subscribers.unreadable_count}; {proof}"
        detail = f"channels whose format is not known ({subscribers.why}): {count}"
        yield Finding(kind="channel-bytes", aggregates=aggregated_records, detail=detail)
