"""The peers' requirements -> an environment each under build/peers, or a note there that says why not.

    make bench-peers [PEERS="dali ffcv"]

An environment that is ready and whose requirements are as they were is left alone. Libraries that FFCV is built with,
and that the system lacks, are unpacked from Debian's packages into its environment: nothing is installed as root.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.roster import INSTALLED, PEERS, SCRIPTS, failure_note

_REQUIREMENTS = SCRIPTS / "requirements"
_CHART, _CLUSTER = "chart", "ray_data"
# Imported to see whether an environment works; the rest tell at their first run.
_PROOF = {
    "spdl": "import spdl.io; spdl.io.demux_image",
    "ffcv": "import ffcv",
    _CHART: "import matplotlib",
}
# Built with these: pkg-config's name, the libraries, Debian's package.
_LIBRARIES = {
    "ffcv": (
        ("opencv4", ("opencv_imgproc", "opencv_core"), "libopencv-imgproc-dev"),
        ("libturbojpeg", ("turbojpeg",), "libturbojpeg0-dev"),
    )
}


class InstallError(Exception):
    """A step of the installation failed; the text is its last words."""


def main(names: Sequence[str]) -> int:
    """Installs the environments of these names, or all; returns how many failed."""
    needs = {peer.environment: peer.system for peer in PEERS if peer.environment} | {
        _CHART: (),
        _CLUSTER: (),
    }
    unknown = [name for name in names if name not in needs]
    if unknown:
        sys.exit(f"expected some of {', '.join(needs)}; got {', '.join(unknown)}")
    INSTALLED.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name in names or needs:
        stamp = _stamp(name)
        ready = INSTALLED / name / "ready"
        if ready.exists() and ready.read_text() == stamp:
            continue
        failure_note(name).unlink(missing_ok=True)
        sys.stdout.write(f"installing {name}\n")
        sys.stdout.flush()
        shutil.rmtree(INSTALLED / name, ignore_errors=True)
        try:
            _install(name)
        except InstallError as problem:
            hint = f" (needs: apt-get install {' '.join(needs[name])})" if needs[name] else ""
            failure_note(name).write_text(f"cannot be installed{hint}: {problem}\n")
            sys.stdout.write(f"  {failure_note(name).read_text()}")
            failed += 1
        else:
            ready.write_text(stamp)
    return failed


def _install(name: str) -> None:
    folder = INSTALLED / name
    if name == "libjpeg":
        folder.mkdir()
        _run(
            "cc",
            "-std=c11",
            "-O2",
            str(_sources(name)[0]),
            "-o",
            str(folder / "decode"),
            "-ljpeg",
            "-lpthread",
        )
        return
    python = str(folder / "bin" / "python")
    _run(sys.executable, "-m", "venv", str(folder))
    _run(python, "-m", "pip", "install", "--quiet", "-r", str(_REQUIREMENTS / f"{name}.txt"))
    source = _REQUIREMENTS / f"{name}.source.txt"
    if source.exists():  # built from source, with what is installed already
        options = ("--quiet", "--no-deps", "--no-build-isolation", "--no-cache-dir")
        _run(
            python,
            "-m",
            "pip",
            "install",
            *options,
            "-r",
            str(source),
            settings=_libraries(name, folder / "debian"),
        )
    if name in _PROOF:
        _run(python, "-c", _PROOF[name])


def _libraries(name: str, folder: Path) -> dict[str, str]:
    """Unpacks the libraries that the system lacks; returns what a build needs in its environment to find them."""
    needed = _LIBRARIES.get(name, ())
    if shutil.which("apt-get") is None or _succeeds(
        "pkg-config", "--exists", *(each[0] for each in needed)
    ):
        return {}
    archives, prefix, found = folder / "archives", folder / "usr", folder / "pkgconfig"
    for place in (archives, found):
        place.mkdir(parents=True)
    plan = _run(
        "apt-get", "--simulate", "--no-install-recommends", "install", *(each[2] for each in needed)
    )
    packages = [line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")]
    _run("apt-get", "--quiet", "download", *packages, folder=archives)
    for archive in sorted(archives.iterdir()):
        _run("dpkg-deb", "--extract", str(archive), str(folder))
    shutil.rmtree(archives)
    library = next(prefix.glob("lib/*-linux-gnu"))
    for link in library.glob("*.so"):
        if not link.exists():  # to a library that the system has
            system = Path("/usr/lib", library.name, os.readlink(link))
            link.unlink()
            link.symlink_to(system)
    # opencv2/opencv.hpp includes the headers of all modules that this file names.
    own = folder / "include" / "opencv2"
    own.mkdir(parents=True)
    (own / "opencv_modules.hpp").write_text(
        "#define HAVE_OPENCV_CORE\n#define HAVE_OPENCV_IMGPROC\n"
    )
    includes = f"-I{folder / 'include'} -I{prefix / 'include' / 'opencv4'} -I{prefix / 'include'}"
    for package, libraries, _ in needed:
        links = " ".join(f"-l{each}" for each in libraries)
        text = f"Name: {package}\nDescription:\nVersion: 0\nCflags: {includes}\nLibs: -L{library} {links}\n"
        (found / f"{package}.pc").write_text(text)
    # Not as RUNPATH, which the libraries' own libraries are not looked up by.
    paths = (f"-Wl,-rpath,{path}" for path in (library, library / "blas", library / "lapack"))
    return {"PKG_CONFIG_PATH": str(found), "LDFLAGS": " ".join(("-Wl,--disable-new-dtags", *paths))}


def _succeeds(*command: str) -> bool:
    try:
        return (
            subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True).returncode == 0
        )
    except FileNotFoundError:
        return False


def _run(*command: str, settings: dict[str, str] | None = None, folder: Path | None = None) -> str:
    environment = {**os.environ, **(settings or {})}
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment,
        cwd=folder,
    )
    if done.returncode != 0:
        last = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()][
            -1:
        ]
        raise InstallError(
            f"`{' '.join(Path(word).name for word in command[:4])} ...`: {''.join(last)[:300]}"
        )
    return done.stdout


def _sources(name: str) -> list[Path]:
    if name == "libjpeg":
        return [SCRIPTS / "libjpeg_decode.c"]
    return [
        path
        for kind in ("txt", "source.txt")
        if (path := _REQUIREMENTS / f"{name}.{kind}").exists()
    ]


def _stamp(name: str) -> str:
    contents = b"".join(path.read_bytes() for path in _sources(name))
    return hashlib.sha256(contents + sys.version.encode()).hexdigest()


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
