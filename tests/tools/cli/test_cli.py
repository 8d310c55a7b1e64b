"""Tests of the command line in general, and of inspect and bench; test_cli_pack.py has those of pack."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from support.programs.cli_run import COMMAND, failed, fp, succeeded
from support.sources.pack_sources import jpeg_bytes, write_folder

import fastpipe
from fastpipe.dataset.format.layout import INDEX_DTYPE
from fastpipe.packing.job.threads import pack
from fastpipe.tools.bench.measure import Figures, Task
from fastpipe.tools.bench.measure import Result as Measured
from fastpipe.tools.cli import bench, console, interrupts
from fastpipe.tools.cli import pack as pack_command
from fastpipe.tools.cli import verify as verify_command


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "source")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("cli")
    pack(write_folder(root / "source"), root / "packed")
    return root / "packed"


def test_version() -> None:
    assert succeeded("--version") == f"fastpipe {fastpipe.__version__}\n"


@pytest.mark.parametrize("command", ["verify", "unpack", "log"])
def test_help_names_photos_only_where_they_need_no_packing(command: str) -> None:
    assert "not packed" not in succeeded(command, "--help")
    assert "not packed" in succeeded("inspect", "--help")


def test_without_a_command_the_help_is_shown() -> None:
    result = fp()
    assert result.exit_code == 2
    assert "Usage" in result.output
    assert "pack" in result.output


def test_wrong_usage(source: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    for size in ("abc", "", "1XB", "-5MB", "1 MB 2"):
        assert "expected a number of bytes, or text such as" in failed(
            2, "pack", source, packed, "--shard-size", size
        )
    assert "shard-size: expected 100000" in failed(2, "pack", source, packed, "--shard-size", "1kB")
    assert "--lossless does not go with --quality" in failed(
        2, "pack", source, packed, "--quality", 80, "--lossless"
    )
    assert "quality: expected 1 to 100, got 0" in failed(2, "pack", source, packed, "--quality", 0)
    assert "workers: expected 1" in failed(2, "pack", source, packed, "--workers", 0)
    assert "must not contain DST" in failed(2, "pack", source, source / "inside")
    assert "dst" in failed(2, "pack", source).lower()
    assert "'report', 'fail'" in failed(2, "pack", source, packed, "--on-error", "ignore")
    assert "No such command" in failed(2, "pakc")
    assert not packed.exists()


def test_what_failed_says_what_to_do(tmp_path: Path, source: Path, packed: Path) -> None:
    assert "does not exist; expected a folder of images" in failed(
        1, "pack", tmp_path / "nowhere", tmp_path / "packed"
    )
    assert f"pack them first: fastpipe pack {source} DST" in failed(1, "verify", source)
    assert "fastpipe pack SRC" in failed(1, "bench", tmp_path / "nowhere")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_bytes(b"")
    assert "Choose a new or empty folder" in failed(1, "pack", source, tmp_path / "full")
    assert "cannot write" in failed(1, "inspect", packed, "--sheet", tmp_path / "no" / "folder.png")


def test_names_that_look_like_markup_or_are_not_utf_8(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Standard output takes UTF-8 only: a name that is not would be an error there."""
    monkeypatch.setenv("COLUMNS", "120")
    source, packed = os.fsencode(tmp_path / "source"), tmp_path / "packed"
    for name in (b"[red]", b"[bold]b", b"caf\xe9", b"[red]empty", b"empty\xff"):
        os.makedirs(source + b"/" + name)
        for file, content in {b"[i]1\xff.jpg": jpeg_bytes(), b"[i]2\xff.jpg": b"bad"}.items():
            if b"empty" not in name:
                write_raw(source + b"/" + name + b"/" + file, content)
    write_raw(source + b"/[blue]", b"beside")
    write_raw(source + b"/beside\xff", b"beside")
    text = succeeded("pack", tmp_path / "source", packed)
    assert "packed         3 of 6 files" in text
    for name in (
        "[red]empty, empty\\xff",
        "[blue], beside\\xff",
        "[red]/[i]2\\xff.jpg: not an image",
    ):
        assert name in text
    text = succeeded("inspect", packed, "--no-sheet")
    for name in ("[red]", "[bold]b", "caf\\xe9"):
        assert name in text
    assert (
        "[bold]b"
        in json.loads(succeeded("inspect", packed, "--no-sheet", "--json"))["class_counts"]
    )


def write_raw(path: bytes, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)


def test_inspect(packed: Path, tmp_path: Path) -> None:
    text = succeeded("inspect", packed, "--sheet", tmp_path / "sheet.png")
    assert re.search(r"samples +24 in 1 shard,", text)
    assert re.search(r"ant +8 *\n", text)
    assert f"24 images drawn to {tmp_path / 'sheet.png'}" in text
    assert (tmp_path / "sheet.png").read_bytes().startswith(b"\x89PNG")
    assert "exclude each other" in failed(2, "inspect", packed, "--sheet", "x.png", "--no-sheet")


@pytest.mark.parametrize(("extra_images", "expected"), [(0, "1 each"), (2, "1 to 3 each")])
def test_inspect_counts_the_classes_without_a_line_together(
    extra_images: int, expected: str, tmp_path: Path
) -> None:
    """The last class has one image, and as many more."""
    image = jpeg_bytes((8, 8))
    for number in range(25):
        folder = tmp_path / "source" / f"class{number:02}"
        folder.mkdir(parents=True)
        images = 1
        if number == 24:
            images += extra_images
        for image_number in range(images):
            (folder / f"{image_number}.jpg").write_bytes(image)
    pack(tmp_path / "source", tmp_path / "packed")
    text = succeeded("inspect", tmp_path / "packed", "--no-sheet")
    assert re.search(rf"\.\.\. 5 more +{expected} *\n", text)


def test_inspect_draws_to_a_file_named_after_the_dataset(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "packed-sheet.png" in succeeded("inspect", packed)
    assert os.listdir(tmp_path) == ["packed-sheet.png"]
    assert "packed-sheet.png, which replaces an earlier file" in succeeded("inspect", packed)
    (tmp_path / "mine.png").write_bytes(b"precious")
    assert "mine.png exists, and fastpipe did not draw it; pass another name" in failed(
        2, "inspect", packed, "--sheet", "mine.png"
    )
    assert (tmp_path / "mine.png").read_bytes() == b"precious"
    (tmp_path / "packed-sheet.png").write_bytes(b"precious")
    assert "packed-sheet.png exists" in failed(2, "inspect", packed)
    succeeded("inspect", packed, "--sheet", "mine.png", "--overwrite")
    assert (tmp_path / "mine.png").read_bytes().startswith(b"\x89PNG")


def test_inspect_as_json(packed: Path, tmp_path: Path) -> None:
    content = json.loads(succeeded("inspect", packed, "--json", "--sheet", tmp_path / "sheet.png"))
    assert content["samples"] == 24
    assert content["class_counts"] == {"ant": 8, "bee": 8, "cow": 8}
    assert sum(content["width"]["counts"]) == 24
    assert content["sheet"] == str(tmp_path / "sheet.png")
    assert json.loads(succeeded("inspect", packed, "--json", "--no-sheet"))["sheet"] is None


def fake_compare(task: Task, contenders: list[str], **options: object) -> list[Measured]:
    figures = Figures(1000.0, 0.5, 1.5, None, 1.0, 500.0, 300.0, 2.0)
    return [
        Measured(name, figures, 900.0, 1100.0, 1.0 + number)
        for number, name in enumerate(contenders)
    ]


def test_bench_shows_everyone_and_the_ratios(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "compare", fake_compare)
    monkeypatch.setenv("COLUMNS", "140")
    text = succeeded("bench", packed, "--against", "torch", "--workers", 2)
    assert re.search(r"^ ?fastpipe +1,000 +900-1,100", text, re.MULTILINE)
    assert re.search(r"DataLoader \(PIL\) +1,000 +900-1,100 +2.00 x +1.50 +0.50 s +\?", text)
    assert re.search(r"DataLoader \(turbo, cv2\) +1,000 +900-1,100 +3.00 x", text)
    assert re.search(r"decode the crop +2 threads +500.0 +4,000", text)


@pytest.mark.parametrize(
    "command", [("inspect", "--no-sheet"), ("log",), ("bench", "--against", "torch")]
)
def test_no_line_in_a_pipe_ends_with_blanks(
    command: tuple[str, ...], packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "compare", fake_compare)
    name, *options = command
    lines = succeeded(name, packed, *options).splitlines()
    assert len(lines) > 2
    assert [line for line in lines if line.endswith(" ")] == []


def test_an_indented_table_is_no_wider_than_its_text(capsys: pytest.CaptureFixture[str]) -> None:
    """Padding fills its lines up to the width of the console: of a report of the doctor, 10,000."""
    grid = Table.grid(padding=(0, 2))
    grid.add_row("why", Text("the disk is slow  "))
    console.out.print(Padding(grid, (0, 0, 1, 3)))
    assert capsys.readouterr().out == "   why  the disk is slow\n\n"


def test_bench_refuses(packed: Path) -> None:
    assert "--against: expected torch, got 'ffcv'" in failed(
        2, "bench", packed, "--against", "ffcv"
    )
    assert "repeats: expected 1" in failed(2, "bench", packed, "--repeats", 0)
    assert "seconds: expected 0.1" in failed(2, "bench", packed, "--seconds", 0)
    assert "size: expected 1" in failed(2, "bench", packed, "--size", 0)


def test_a_damaged_dataset_is_reported_not_a_traceback(packed: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for name in ("dataset.json", "index.npy"):
        (broken / name).write_bytes((packed / name).read_bytes())
    assert "shard-000000.tar" in failed(1, "inspect", broken)
    (broken / "index.npy").write_bytes((packed / "index.npy").read_bytes()[: -INDEX_DTYPE.itemsize])
    assert "pack the source again" in failed(1, "inspect", broken)
    (broken / "dataset.json").write_bytes(b"{")
    assert "not valid JSON" in failed(1, "bench", broken)


def test_bench_as_json(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "compare", fake_compare)
    size = ("--repeats", 1, "--seconds", 0.1, "--batch-size", 8, "--workers", 1, "--size", 32)
    content = json.loads(succeeded("bench", packed, "--json", *size))
    assert content["task"] == {
        "data": str(packed),
        "batch_size": 8,
        "workers": 1,
        "size": 32,
        "seed": 0,
    }
    (result,) = content["results"]
    assert (result["contender"], result["ratio"], result["median"]["images_per_s"]) == (
        "fastpipe",
        1,
        1000,
    )
    assert content["skipped"] == {}


@pytest.mark.new_python("the command line as a program")
def test_the_program_needs_no_torch(packed: Path, tmp_path: Path) -> None:
    """The console script itself, with a torch that cannot be imported."""
    (tmp_path / "torch.py").write_text("raise SystemExit('torch is imported')\n")
    paths = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(
        [COMMAND, "verify", str(packed)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"sound: {packed}: 24 samples in 1 shard, ")


@pytest.fixture
def at_ctrl_c() -> Iterator[None]:
    """What Ctrl-C means to this process is the same again afterwards."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def test_what_ctrl_c_means(
    at_ctrl_c: None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # as a shell starts what is to run in the background
    interrupts.end_at_ctrl_c()
    interrupts.raise_at_ctrl_c()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupts.end_at_ctrl_c()  # while modules are imported
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    signal.raise_signal(signal.SIGINT)
    assert codes == [130]
    assert capfd.readouterr().err == "fastpipe: interrupted\n"
    interrupts.raise_at_ctrl_c()  # there is work that must end well
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_an_interrupted_command_ends_with_130(
    source: Path, packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pack_command, "run_pack", interrupted)
    monkeypatch.setattr(bench, "compare", interrupted)
    result = fp("pack", source, tmp_path / "packed")
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr.splitlines()[-2:] == [
        "fastpipe: finished shards are kept; run the same command again to continue",
        "fastpipe: interrupted",
    ]
    result = fp("bench", packed)
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (130, "fastpipe: interrupted")


def test_an_error_of_the_system_ends_with_1(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error", "/data")

    monkeypatch.setattr(bench, "compare", broken)
    result = fp("bench", packed)
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == "fastpipe: /data: Input/output error"


@pytest.mark.parametrize(
    ("name", "command"),
    [("diagnose", "fastpipe doctor --train-script"), ("info", "fastpipe inspect DATA")],
)
def test_another_name_of_a_command_is_answered_with_the_command(name: str, command: str) -> None:
    assert f"No such command '{name}'. Run: {command}" in failed(2, name, "train.py")


def in_terminal(monkeypatch: pytest.MonkeyPatch, **environment: str) -> io.StringIO:
    """What a command prints, as a terminal gets it."""
    for name in ("NO_COLOR", "FORCE_COLOR", "CI"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm-256color", **environment}.items():
        monkeypatch.setenv(name, value)
    screen = io.StringIO()
    for name in ("out", "err"):
        terminal = Console(
            file=screen, force_terminal=True, highlight=False, markup=False, width=100
        )
        for module in (console, verify_command):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, terminal)
    return screen


def test_verdicts_have_colours_in_a_terminal(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = shutil.copytree(packed, tmp_path / "broken")
    (broken / "shard-000000.tar").unlink()
    screen = in_terminal(monkeypatch)
    assert fp("verify", packed).exit_code == 0
    assert fp("verify", broken).exit_code == 1
    assert fp("verify", tmp_path / "nowhere").exit_code == 1
    text = screen.getvalue()
    assert "\x1b[32msound\x1b[0m: " in text
    assert "\x1b[31mdamaged\x1b[0m: " in text
    assert "\x1b[31mfastpipe:\x1b[0m " in text

    screen = in_terminal(monkeypatch, NO_COLOR="1")
    assert fp("verify", packed).exit_code == 0
    assert "sound: " in screen.getvalue()
    assert "\x1b[3" not in screen.getvalue()


@pytest.mark.parametrize("command", ["preview", "inspect", "demo"])
def test_a_url_in_place_of_a_file_of_this_machine(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments: dict[str, list[object]] = {
        "preview": [packed, "--out", "s3://bucket/sheet.png"],
        "inspect": [packed, "--sheet", "s3://bucket/sheet.png"],
        "demo": ["s3://bucket/sheet.png"],
    }
    words = "of this machine, got the URL s3://bucket/sheet.png; pass a path"
    assert words in failed(2, command, *arguments[command])
    assert list(tmp_path.iterdir()) == []


def test_a_url_in_place_of_a_folder_of_this_machine(packed: Path) -> None:
    words = "expected a folder of this machine, got the URL s3://bucket/cache"
    with pytest.raises(fastpipe.ConfigError, match=f"cache_dir: {words}"):
        fastpipe.open("s3://bucket/data", cache_dir="s3://bucket/cache")
    data = fastpipe.open(packed)
    data = data.with_column("score", [0.5] * len(data))
    with pytest.raises(fastpipe.ConfigError, match=f"save_columns: {words}"):
        data.save_columns("s3://bucket/cache")


def test_a_pattern_that_the_shell_has_expanded(source: Path, tmp_path: Path) -> None:
    photos = [tmp_path / f"{number}.jpg" for number in range(200)]
    text = failed(2, "pack", *photos, tmp_path / "packed")
    assert "Got 199 arguments too many" in text
    assert "pass the folder" in text
    assert "77.jpg" not in text


def test_a_list_of_names_in_place_of_a_file_of_classes(source: Path, tmp_path: Path) -> None:
    text = failed(2, "pack", source, tmp_path / "packed", "--classes-from", "ant,bee")
    assert "write a text file with one on each line, or in Python ['ant', 'bee']" in text


def test_a_pipe_of_webdataset() -> None:
    with pytest.raises(
        fastpipe.ConfigError, match="pipe: commands are not supported; pass the URL"
    ):
        fastpipe.open("pipe:aws s3 cp s3://bucket/shard-{000000..000003}.tar -")
