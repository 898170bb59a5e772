"""Has the Kinesis API changed since this library was last held against it? `python -m tests.service_model`.

Compares the operations and fields that the installed botocore knows with those of botocore `HELD_AGAINST`,
which pip brings into a scratch folder, and prints each difference. Exit status 1 if there is one. Somebody
then reads what is new, decides what it means for this library, and raises `HELD_AGAINST`.
"""

from __future__ import annotations

import difflib
import json
import subprocess
import sys
import tempfile

import botocore
import botocore.loaders

#: The botocore whose Kinesis API somebody has read whole.
HELD_AGAINST = "1.43.117"


def service_model(folder: str | None = None) -> list[str]:
    """Operations and shapes as lines of JSON, without their texts. ``folder``: has a botocore to read them
    from; without it, the installed one."""
    paths = [f"{folder}/botocore/data"] if folder else []
    loader = botocore.loaders.Loader(extra_search_paths=paths, include_default_search_paths=not folder)
    model = loader.load_service_model("kinesis", "service-2")
    text = json.dumps({name: model[name] for name in ("operations", "shapes")})

    def without_texts(fields: dict[str, object]) -> dict[str, object]:
        return {name: value for name, value in fields.items() if name != "documentation"}

    return json.dumps(json.loads(text, object_hook=without_texts), indent=1, sort_keys=True).splitlines()


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder]
        subprocess.run([*command, f"botocore=={HELD_AGAINST}"], check=True)
        before = service_model(folder)
    installed = botocore.__version__
    lines = list(difflib.unified_diff(before, service_model(), HELD_AGAINST, installed, "", "", 8))
    print("\n".join(lines) or f"The Kinesis API of botocore {installed} is that of {HELD_AGAINST}.")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
