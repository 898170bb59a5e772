"""A Lambda function as users write one: the handlers that test_runtime.py runs under awslambdaric.

What they do with user records goes to a file, one JSON line each: the function's side effect.
"""

import json
import os

from kpl_codec.aws_lambda import process_user_records, user_records

FAIL = ""


def dispatch(event, context):
    """The handler that the event names; it fails on the data that the event names."""
    global FAIL
    FAIL = event.pop("fail", "")
    return globals()[event.pop("handler")](event, context)


def write(record):
    if FAIL and record.data.hex() == FAIL:
        raise RuntimeError("asked to fail")
    with open(os.environ["SIDE_EFFECTS"], "a") as out:
        out.write(json.dumps([record.sequence_number, record.sub_sequence_number, record.data.hex()]) + "\n")


def process(event, context):
    return process_user_records(event, write, context=context, reserve_ms=100)


def window(event, context):
    state = event.get("state") or {}
    for record in user_records(event):
        state[record.partition_key] = state.get(record.partition_key, 0) + 1
    return {"state": state}


def firehose(event, context):
    from kpl_codec.aws_lambda.firehose import transform_user_records

    return transform_user_records(event, lambda record: record.data.hex().encode(), delimiter=b"\n")


def asynchronous(event, context):
    from kpl_codec.aws_lambda import aio

    async def handle(record):
        write(record)

    return aio.run(aio.process_user_records(event, handle))


def old_code(event, context):
    """Written for aws_kinesis_agg; one import changed."""
    import base64

    from kpl_codec.compat.aws_kinesis_agg.deaggregator import iter_deaggregate_records

    found = iter_deaggregate_records(event["Records"])
    return [base64.b64decode(record["kinesis"]["data"]).hex() for record in found]
