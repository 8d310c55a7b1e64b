"""Arrays and lists of pictures -> how fast a loader brings them, beside a DataLoader and plain reads.

    python -m bench.fields_of_any_shape latents [--samples 4000] [--rounds 5]
    python -m bench.fields_of_any_shape texts [--samples 4000] [--rounds 5]
    python -m bench.fields_of_any_shape pictures PHOTOS [--samples 250] [--rounds 5]

`latents` packs latents of (16, 64, 64) float16, `texts` embeddings of texts, (77, 768) bfloat16. Both compare a loader
of them alone (two threads, batches of 64) with a DataLoader of two workers and `np.load`, with LitData's tensors if it
is installed, and with two threads that only read the same bytes from the page cache into memory of the loader's size.
`pictures` packs 3 to 12 photos a sample, each resized to 448 x 448. It compares with a DataLoader of two workers and
Pillow, from files, from WebDataset's tars and from Hugging Face's `datasets` (`List(Image)`), and with Energon
(`megatron-energon`) if it is installed. The contenders take turns; the table has medians. CPU time is that of the
process and its children.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
import webdataset
from PIL import Image
from torch.utils.data import DataLoader, Dataset

import fastpipe
from bench.contenders import Result, measure

BATCH = 64
# Two bytes a number: float16 and bfloat16.
SHAPES = {"latents": (16, 64, 64), "texts": (77, 768)}
SLOTS = 6  # batches that a loader keeps memory for
SIZE = (448, 448)
PICTURES_IN_BATCH = 16


class ArrayFiles(Dataset[torch.Tensor]):
    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> torch.Tensor:
        return load_array(str(self.paths[number]))


def arrays(folder: Path, kind: str, samples: int) -> dict[str, Callable[[], int]]:
    """The contenders for latents or texts."""
    generator = torch.Generator().manual_seed(0)
    shape = SHAPES[kind]
    dtype = torch.float16 if kind == "latents" else torch.bfloat16
    array_bytes = math.prod(shape) * dtype.itemsize
    paths = []
    with fastpipe.Writer(folder / "packed", {"array": "array"}) as writer:
        for number in range(samples):
            array = torch.randn(shape, generator=generator).to(dtype)
            paths.append(folder / f"{number}.npy")
            # numpy has no bfloat16, so its bits are saved as whole numbers.
            saved = array.view(torch.int16) if dtype == torch.bfloat16 else array
            np.save(paths[-1], saved.numpy())
            writer.add(key=str(number), array=array)
    loader = fastpipe.loader(folder / "packed", BATCH, size=8, fields=["array"], num_workers=2)
    list(loader)
    torch_loader = DataLoader(ArrayFiles(paths), BATCH, shuffle=True, num_workers=2)

    def load() -> int:
        return sum(len(batch["array"]) for batch in loader)

    def load_files() -> int:
        return sum(len(batch) for batch in torch_loader)

    shards = sorted((folder / "packed").glob("*.tar"))
    memory = [bytearray(SLOTS * BATCH * array_bytes) for _ in range(2)]

    def read_shards(thread: int) -> int:
        place = 0
        view = memoryview(memory[thread])
        items = 0
        for shard in shards[thread::2]:
            with shard.open("rb", buffering=0) as file:
                while file.readinto(view[place : place + array_bytes]) == array_bytes:
                    place = (place + array_bytes) % len(view)
                    items += 1
        return items

    def read() -> int:
        with ThreadPoolExecutor(2) as threads:
            return sum(threads.map(read_shards, range(2)))

    contenders = {"fastpipe": load, "DataLoader, np.load": load_files}
    if importlib.util.find_spec("litdata") is not None:
        contenders["LitData"] = litdata_tensors(folder / "chunks", paths)
    return {**contenders, "readinto alone": read}


def load_array(path: str) -> torch.Tensor:
    array = torch.from_numpy(np.load(path))
    return array.view(torch.bfloat16) if array.dtype == torch.int16 else array


def litdata_tensors(folder: Path, paths: list[Path]) -> Callable[[], int]:
    from litdata import StreamingDataLoader, StreamingDataset, optimize

    files = [str(path) for path in paths]
    options: dict[str, Any] = {"chunk_bytes": "64MB", "num_workers": 2, "start_method": "fork"}
    optimize(load_array, files, str(folder), verbose=False, **options)
    tensors = StreamingDataset(str(folder), shuffle=True, drop_last=True)
    torch_loader = StreamingDataLoader(tensors, batch_size=BATCH, num_workers=2)

    def load() -> int:
        return sum(len(batch) for batch in torch_loader)

    return load


class PictureLists(Dataset[list[torch.Tensor]]):
    """Lists of pictures, opened by `open_list`, which gives PIL images."""

    def __init__(self, samples: int, open_list: Callable[[int], list[Image.Image]]) -> None:
        self.samples = samples
        self.open_list = open_list

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, number: int) -> list[torch.Tensor]:
        return [resized(image) for image in self.open_list(number)]


def resized(image: Image.Image) -> torch.Tensor:
    pixels = np.array(image.convert("RGB").resize(SIZE, Image.Resampling.BILINEAR))
    return torch.from_numpy(pixels).permute(2, 0, 1)


def stack(lists: list[list[torch.Tensor]]) -> torch.Tensor:
    return torch.stack([picture for pictures in lists for picture in pictures])


def pictures(folder: Path, photos: Path, samples: int) -> dict[str, Callable[[], int]]:
    """The contenders for lists of photos."""
    import datasets

    files = sorted(path for path in photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    rng = np.random.default_rng(0)
    lists = []
    for _ in range(samples):
        numbers = rng.integers(len(files), size=int(rng.integers(3, 13)))
        lists.append([files[number] for number in numbers])
    with fastpipe.Writer(folder / "packed", {"pictures": "images"}) as writer:
        for number, paths in enumerate(lists):
            writer.add(key=str(number), pictures=paths)

    def rows() -> Iterator[dict[str, Any]]:
        for paths in lists:
            yield {"pictures": [{"bytes": path.read_bytes(), "path": None} for path in paths]}

    features = datasets.Features({"pictures": [datasets.Image()]})
    saved: Any = datasets.Dataset.from_generator(
        rows, features=features, cache_dir=str(folder / "table")
    )

    loader = fastpipe.loader(
        folder / "packed",
        PICTURES_IN_BATCH,
        size=SIZE,
        crop=fastpipe.Resize(),
        hflip=False,
        drop_last=False,
        num_workers=2,
        fields=[fastpipe.Images("pictures", form="flat")],
    )
    sources = {
        "DataLoader, Pillow": lambda number: [Image.open(path) for path in lists[number]],
        "DataLoader, datasets": lambda number: saved[number]["pictures"],
    }
    contenders = {"fastpipe": lambda: sum(len(batch["pictures"]) for batch in loader)}
    for name, open_list in sources.items():
        torch_loader = DataLoader(
            PictureLists(samples, open_list),
            PICTURES_IN_BATCH,
            shuffle=True,
            num_workers=2,
            collate_fn=stack,
        )
        contenders[name] = lambda torch_loader=torch_loader: sum(map(len, torch_loader))
    contenders["DataLoader, WebDataset"] = webdataset_tars(folder / "tars", lists)
    if importlib.util.find_spec("megatron") is not None:
        contenders["Energon"] = energon_tars(folder / "tars")
    return contenders


def webdataset_tars(folder: Path, lists: list[list[Path]]) -> Callable[[], int]:
    """Two tars, one for each worker, with KEY.0.jpg, KEY.1.jpg, ..."""
    folder.mkdir()
    for tar in range(2):
        with webdataset.TarWriter(str(folder / f"{tar}.tar")) as writer:
            for number in range(tar, len(lists), 2):
                members = {
                    f"{place}.jpg": path.read_bytes() for place, path in enumerate(lists[number])
                }
                writer.write({"__key__": str(number), **members})
    tars = [str(folder / f"{tar}.tar") for tar in range(2)]
    samples = webdataset.WebDataset(tars, shardshuffle=False).shuffle(100).map(opened_members)
    torch_loader = DataLoader(samples, PICTURES_IN_BATCH, num_workers=2, collate_fn=stack)

    def load() -> int:
        return sum(map(len, torch_loader))

    return load


def opened_members(sample: dict[str, Any]) -> list[torch.Tensor]:
    names = sorted(name for name in sample if name.endswith(".jpg"))
    return [resized(Image.open(io.BytesIO(sample[name]))) for name in names]


def energon_tars(folder: Path) -> Callable[[], int]:
    """An epoch of the same tars by Energon, with two workers; the pictures are opened by Pillow."""
    from megatron import energon

    command = [str(Path(sys.executable).with_name("energon")), "prepare", str(folder)]
    command += ["--non-interactive", "--split-ratio", "1,0,0", "--sample-type", "CrudeWebdataset"]
    subprocess.run(command, check=True, capture_output=True)

    @energon.stateless
    def open_pictures(sample: dict[str, Any]) -> list[torch.Tensor]:
        return opened_members(sample)

    class Stacked(energon.DefaultTaskEncoder):  # type: ignore[misc, name-defined]
        decoder = None  # the cooker gets bytes
        cookers = (energon.Cooker(open_pictures),)

        @energon.stateless
        def batch(self, samples: list[list[torch.Tensor]]) -> torch.Tensor:
            return stack(samples)

    def load() -> int:
        workers = energon.WorkerConfig(rank=0, world_size=1, num_workers=2)
        tars = energon.get_train_dataset(
            folder,
            worker_config=workers,
            batch_size=PICTURES_IN_BATCH,
            shuffle_buffer_size=100,
            max_samples_per_sequence=None,
            task_encoder=Stacked(),
            repeat=False,
        )
        return sum(map(len, energon.get_loader(tars, worker_config=workers)))

    return load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=(*SHAPES, "pictures"))
    parser.add_argument("photos", type=Path, nargs="?")
    parser.add_argument("--samples", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        if options.what in SHAPES:
            contenders = arrays(Path(folder), options.what, options.samples or 4000)
        else:
            if options.photos is None:
                parser.error("pictures: pass the folder of the photos")
            contenders = pictures(Path(folder), options.photos, options.samples or 250)
        results: dict[str, list[Result]] = {name: [] for name in contenders}
        for _ in range(options.rounds):
            for name, count in contenders.items():
                results[name].append(measure(count))

    out = io.StringIO()
    out.write(f"{options.rounds} rounds, load {os.getloadavg()[0]:.1f}\n\n")
    out.write("| | a second | CPU, us each |\n|---|---|---|\n")
    for name, rounds in results.items():
        items_per_s = statistics.median(result.items_per_s for result in rounds)
        cpu_us = statistics.median(result.cpu_us for result in rounds)
        out.write(f"| {name} | {items_per_s:,.0f} | {cpu_us:,.0f} |\n")
    sys.stdout.write(out.getvalue())


if __name__ == "__main__":
    main()
