"""A loader on the device of an extension, end to end: batches are those of the CPU, whatever the device can do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.checkout import TESTS
from support.programs import warm
from torch.utils import backend_registration

PROGRAM = """
    import json
    import sys
    import warnings
    sys.path.append(sys.argv[2])
    from support.devices import toy_device
    import torch
    import fastpipe

    toy_device.install(toy_device.Waits())
    asked, cannot_pin = {}, []
    for kind in ("Waits", "Queue", "Streams"):
        torch.toy = getattr(toy_device, kind)()
        for augment in (None, fastpipe.Augment.imagenet(mixup=0.2), fastpipe.Augment.randaugment()):
            toy_device.log.clear()
            options = {"size": 16, "num_workers": 1, "augment": augment}
            with (
                warnings.catch_warnings(record=True) as warned,
                fastpipe.loader(sys.argv[1], 4, **options) as here,
                fastpipe.loader(sys.argv[1], 4, device="toy", **options) as there,
            ):
                warnings.filterwarnings("always", "cannot pin")
                for (images, labels), (expected, numbers) in zip(there, here, strict=True):
                    assert images.device == labels.device == torch.device("toy", 0)
                    torch.testing.assert_close(images.cpu(), expected, atol=1e-4, rtol=1e-4)
                    torch.testing.assert_close(labels.cpu(), numbers)
                stats = there.stats()
                assert stats.device_s > 0 if kind == "Streams" else stats.device_s == 0
            if augment is None:
                asked[kind] = toy_device.log.copy()
                cannot_pin += [kind for warning in warned if "cannot pin" in str(warning.message)]
    print(json.dumps([asked, cannot_pin]))
"""
SIDE, USERS = "record in the side stream", "record in the program's stream"
COPIES = [SIDE, "copy", SIDE, "copy", SIDE, SIDE, SIDE]  # of the small arrays, of the images
TAKEN = [USERS, "the program's stream waits", *["recorded for the program's stream"] * 2]
ASKED = {
    "Waits": [["copy and wait"] * 2] * 5,
    "Queue": [["record", "copy", "copy", "record", "record", "record"]] * 5,
    "Streams": [
        ["to the side stream", *COPIES],
        *[["to the side stream", *COPIES, *TAKEN]] * 4,
        TAKEN,
    ],
}


@pytest.mark.skipif(
    not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
    reason="torch is older than 2.10",
)
def test_batches_on_devices_of_extensions_are_those_of_the_cpu(textured: Path) -> None:
    """Copies wait where there is no event, else none does; and only a device with streams is asked for times."""
    run = warm.run_script(PROGRAM, textured, TESTS)
    assert run.returncode == 0, run.stderr
    asked, cannot_pin = json.loads(run.stdout)
    assert asked == {
        kind: [call for batch in batches for call in batch] for kind, batches in ASKED.items()
    }
    assert cannot_pin == ["Streams"]  # torch pins for a device with streams; not for this one
