"""The threads that convert: they begin late, end with the loader, and are named when they hang."""

from __future__ import annotations

import gc
import threading
import time
from pathlib import Path

import pytest
from support.programs.warm import run_script
from support.sources.pack_sources import saved, write_folder

import fastpipe
from fastpipe.errors import EngineError
from fastpipe.sources.scan.index import UnpackedIndex


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 20 BMPs."""
    root = tmp_path_factory.mktemp("pictures") / "photos"
    for number in range(20):
        folder = root / f"class-{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.bmp").write_bytes(saved("BMP", size=(40 + number, 50)))
    return root


def threads() -> int:
    return sum(thread.name == "fastpipe-convert" for thread in threading.enumerate())


def ended() -> bool:
    deadline = time.monotonic() + 300
    while threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    return threads() == 0


def test_threads_begin_with_the_first_row_that_needs_them(pictures: Path, tmp_path: Path) -> None:
    with fastpipe.loader(write_folder(tmp_path / "photos"), 8, size=8, num_workers=2) as loader:
        list(loader)
        assert threads() == 0
    with fastpipe.loader(pictures, 4, size=8, num_workers=2) as loader:
        list(loader)
        assert threads() == 2
    assert ended()


def test_a_program_ends_in_the_middle_of_conversions(pictures: Path) -> None:
    code = """
        import sys
        import fastpipe

        batches = iter(fastpipe.loader(sys.argv[1], 4, size=8, num_workers=3, prefetch_factor=4))
        next(batches)
        print("done")
    """
    done = run_script(code, pictures)
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert "not packed" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("leave", ["drop the iteration", "drop the loader", "close"])
def test_rows_that_nobody_wants_any_more_are_not_converted(
    pictures: Path, monkeypatch: pytest.MonkeyPatch, leave: str
) -> None:
    """Else the next iteration, or the end of the program, would wait for all batches that were to follow."""
    begun: list[int] = []
    real = UnpackedIndex.convert

    def slow(self: UnpackedIndex, sample: int) -> bytes:
        begun.append(sample)
        time.sleep(0.05)
        return real(self, sample)

    monkeypatch.setattr(UnpackedIndex, "convert", slow)
    loader = fastpipe.loader(pictures, 4, size=8, num_workers=1, prefetch_factor=4)
    batches = iter(loader)
    next(batches)
    if leave == "close":
        loader.close()
        with pytest.raises(EngineError, match="closed"):
            next(batches)
    elif leave == "drop the loader":
        del batches, loader
    else:
        del batches
    gc.collect()
    converted = len(begun)
    time.sleep(0.15)
    assert 4 <= converted < 20
    assert len(begun) <= converted + 1
    if leave != "drop the iteration":
        assert ended()


def test_a_hang_is_named(
    pictures: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = threading.Event()
    real = UnpackedIndex.convert

    def slow(self: UnpackedIndex, sample: int) -> bytes:
        if sample == 3:
            go_on.wait(300)
        return real(self, sample)

    monkeypatch.setattr(UnpackedIndex, "convert", slow)
    monkeypatch.setattr(
        "fastpipe.engine.jobs.ConvertingJob.cancel.__defaults__", (0.2,)
    )  # the error would wait 10 s for the row
    with fastpipe.loader(
        pictures, 20, train=False, size=8, num_workers=2, stall_timeout=0.5
    ) as loader:
        with pytest.raises(
            EngineError,
            match=r"stuck converting sample 3 \(class-0/14\.bmp\) at byte 0 of .*/14\.bmp",
        ):
            next(iter(loader))
        go_on.set()
    assert any(
        "is no baseline JPEG or PNG, and slow to convert" in record.getMessage()
        for record in caplog.records
    )


def test_too_little_memory_is_no_fault_of_the_picture(
    pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(self: UnpackedIndex, sample: int) -> bytes:
        raise MemoryError

    monkeypatch.setattr(UnpackedIndex, "convert", none)
    with (
        fastpipe.loader(pictures, 4, size=8, on_error="replace") as loader,
        pytest.raises(EngineError, match=r"not enough memory: to convert an image of \d+ x 50"),
    ):
        next(iter(loader))
