# What boto3-stubs has of this name, as far as the tests here need it.

class KinesisClient:
    def put_record(self, *, StreamName: str, PartitionKey: str, Data: bytes) -> dict[str, str]: ...
