"""Whether the harness can fail: `wire.h` or `keys.h` with one defect each, every one to be found."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from .build import REPOSITORY, build, run, seeds

#: File, what stands there, the defect.
DEFECTS = [
    ("wire.h", "field->value > (uint64_t)(end - p)", "field->value > (uint64_t)(end - p) + 1"),
    ("wire.h", "p == NULL || value > (uint64_t)(end - p)", "p == NULL || value > (uint64_t)(end - p) + 1"),
    ("wire.h", "open[--depth] != tag - 1", "--depth > 100"),
    ("wire.h", "nesting + depth >= KPL_MAX_NESTING", "nesting + depth > KPL_MAX_NESTING"),
    ("wire.h", "if (tag < 1 << 3 || tag >> 32) return NULL;", "if (tag >> 32) return NULL;"),
    ("wire.h", "p == NULL || field->tag >> 32", "p == NULL"),
    ("wire.h", "field.tag != 0x12", "false"),
    ("wire.h", "last_pk >= c->pks.count - pks", "last_pk > c->pks.count - pks"),
    ("wire.h", "used_ehks > c->ehks.count - ehks", "used_ehks > c->ehks.count - ehks + 1"),
    ("wire.h", "if (row.pk > last_pk) last_pk = row.pk;", "last_pk = row.pk;"),
    ("wire.h", "used_ehks = row.ehk + 1;", "used_ehks = row.ehk;"),
    ("wire.h", "row.pk += pks;", ""),
    ("wire.h", "(uint32_t)p[1] << 7 | (p[0] & 0x7Fu)", "(uint32_t)p[1] << 7 | p[0]"),
    ("wire.h", "p != NULL && (size_t)(end - p) == row->size", "p != NULL"),
    ("wire.h", "(uint32_t)field.value : KPL_NONE - 1", "(uint32_t)field.value : 0"),
    ("wire.h", "field.tag >> 3 <= 4", "field.tag >> 3 <= 3"),
    ("wire.h", "field.tag >> 3 <= 3", "field.tag >> 3 <= 2"),
    ("wire.h", "if (field.tag >> 3 > 2) continue;", "if (field.tag >> 3 > 1 && field.tag != 0x12) continue;"),
    ("wire.h", "!kpl_is_utf8(field.at, field.value, &points)", "!kpl_is_utf8(field.at, 0, &points)"),
    ("wire.h", "if (tag.key == NULL) return KPL_NOT_CERTAIN;", ""),
    ("wire.h", "(uint32_t)c->rows.count, &c->tags", "0, &c->tags"),
    ("wire.h", "c->ehks.at[ehk].size == 0", "c->ehks.at[ehk].size == 1"),
    ("wire.h", "c->tags.count = from.tags.count,", ""),
    ("wire.h", "if (shift == 63 && byte > 1) return NULL;", "if (shift > 63) return NULL;"),
    ("wire.h", "for (int shift = 0; p < end; shift += 7)", "for (int shift = 0; p <= end; shift += 7)"),
    ("keys.h", "if (lead == 0xED) high = 0x9F;", ""),
    ("keys.h", "if (lead == 0xF0) low = 0x90;", ""),
    ("keys.h", "0xC2 <= lead", "0xC0 <= lead"),
    ("keys.h", "end - p < more ||", ""),
    ("keys.h", "points <= KPL_MAX_KEY_POINTS", "points <= KPL_MAX_KEY_POINTS + 1"),
    ("keys.h", "size) <= 0;", "size) < 0;"),
    ("keys.h", "eight + UINT64_C(0x0606060606060606)", "eight"),
    ("keys.h", "number = number * 10 +", "number = number * (10u + (size == 5)) +"),
    ("keys.h", "eight << 8 * (8 - i)", "eight << 8 * (8 - i + (size == 35))"),
    ("keys.h", "return size && *p >= '0' &&", "return size &&"),
    ("keys.h", "if (negative && (*size != 1 || *p != '0')) *size = 0;", ""),
    ("keys.h", "while (*size > 1 && *p == '0') p++, --*size;", ""),
    ("wire.h", "row->data != NULL && row->pk != KPL_NONE ?", "row->pk != KPL_NONE ?"),
    ("wire.h", "t->count == t->room", "t->count > t->room"),
    ("wire.h", "if (moved == NULL) return false;", ""),
    (
        "wire.h",
        "c->rows.count = from.rows.count, c->pks.count = from.pks.count,",
        "c->rows.count = from.rows.count,",
    ),
    ("wire.h", "c->rows.count == from->rows.count ||", ""),
    ("wire.h", "if (!kpl_is_hash_key(p, size)) {", "if (false) {"),
    ("wire.h", "size > KPL_FRAME_OVERHEAD &&", "size > 4 &&"),
]


def main(seconds: float) -> int:
    """Tries every defect for so long; the exit code of the command."""
    inputs = seeds()
    lost = 0
    for number, (name, sound, defect) in enumerate(DEFECTS):
        with tempfile.TemporaryDirectory() as directory:
            root = Path(directory) / "tree"
            for part in ("kpl_codec/_native", "fuzz/native"):
                shutil.copytree(REPOSITORY / part, root / part, ignore=shutil.ignore_patterns("__pycache__"))
            (root / "spec").mkdir()
            shutil.copy(REPOSITORY / "spec" / "kpl.proto", root / "spec")
            header = root / "kpl_codec" / "_native" / name
            text = header.read_text()
            assert text.count(sound) == 1, sound
            header.write_text(text.replace(sound, defect))
            program = build(Path(directory) / "build", root=root)
            found = run(program, Path(directory), inputs, seconds=seconds, seed=number + 1, quiet=True)
        lost += not found
        print(f"{'found' if found else 'NOT FOUND'}: {sound!r} -> {defect!r}", flush=True)
    print(f"{len(DEFECTS) - lost} of {len(DEFECTS)} defects found")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main(60))
