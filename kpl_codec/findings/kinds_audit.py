"""Kinds of findings that the audit makes: of what was put, what was not handled."""

from __future__ import annotations

from .kind import NOBODY, ONLY_THE_CHECK, Kind

_ITS_READERS = "Whoever relies on the consumer's output: it lacks these user records."
_PUT_AGAIN = (
    "`kpl-codec repair` puts them again, from the folder that the audit wrote with --stream and --output."
)


def _lost(name: str, title: str, meaning: str, todo: str) -> Kind:
    return Kind(name, "critical", title, meaning, _ITS_READERS, todo, "AUD-16")


AUDIT = (
    _lost(
        "audit-missing",
        "Put and never handled",
        "The service has stored these user records, the consumer has handled later ones of the shard, and "
        "these never. Where the stream was looked at, they are sound.",
        f"Look at the consumer: checkpoints, poison records, filters, its errors then. {_PUT_AGAIN}",
    ),
    _lost(
        "audit-dropped",
        "Put, and dropped by the KCL's rule",
        "Their aggregate has user records outside the shard's range, so the KCL drops it whole, in silence.",
        f"Fix the writer: aggregate per shard. {_PUT_AGAIN}",
    ),
    _lost(
        "audit-broken",
        "Put, and cannot be opened",
        "The bytes on the stream are broken, so consumers fail on them, or skip them.",
        "Fix the writer. `kpl-codec inspect` shows what is wrong with the record.",
    ),
    _lost(
        "audit-expired",
        "Put, not handled, and past retention",
        "The stream does not hold them any more, so nobody can say why they were not handled.",
        "Raise the stream's retention, and audit oftener. Only who put them has their data.",
    ),
    _lost(
        "audit-unread",
        "On a shard that the consumer never read",
        "No user record of this shard was ever handled.",
        f"Look at the consumer's leases: does a worker hold one of this shard? {_PUT_AGAIN}",
    ),
    Kind(
        "audit-unknown",
        "warning",
        "Not handled, or its note is lost",
        "No note says that these user records were handled, but notes of the consumer are lost.",
        ONLY_THE_CHECK,
        "Find the missing segments of the consumer's ledger, and audit again.",
        "AUD-12",
    ),
    Kind(
        "audit-incomplete",
        "warning",
        "A producer's ledger is not whole",
        "A producer still runs, has crashed, or part of its ledger is lost. What it lacks is not known.",
        ONLY_THE_CHECK,
        "Audit again when the producer is closed. After a crash, ask its callers what had no result.",
        "AUD-10",
    ),
    Kind(
        "audit-twice",
        "warning",
        "Handled oftener than once",
        "The consumer took them again, or got copies: the detail says which, and where.",
        "Consumers whose effects are not idempotent.",
        "Deduplicate on shard, sequence number and sub-sequence number; look at checkpoints and retries.",
        "AUD-13",
    ),
    Kind(
        "audit-unclaimed",
        "warning",
        "Handled, and in no ledger",
        "A writer without a ledger has put them, or an attempt that got no answer was stored all the same.",
        NOBODY,
        "Give every writer a ledger, and name all ledgers to the audit.",
        "AUD-14",
    ),
    Kind(
        "audit-refused",
        "warning",
        "Not delivered, and its producer was told so",
        "Their futures failed: expired, refused, or given up when the producer was closed.",
        "The application that put them, if it did not look at the result.",
        "See the code in the detail. Put them again if they matter.",
        "AUD-10",
    ),
    Kind(
        "audit-not-yet",
        "info",
        "Too early to say",
        "The consumer has not handled anything later of the shard, so it may still come to them.",
        NOBODY,
        "Audit again later; or say with --until that they must be handled by now.",
        "AUD-11",
    ),
)
