"""Training scripts as strangers write them: each with one fault, at the line that ends in `# here`; and sound ones."""

from __future__ import annotations

import textwrap

_BEGIN = """
import os, random, sqlite3, sys, threading, time, zipfile
import multiprocessing as mp
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info

class Numbers(Dataset):
    def __len__(self):
        return 640

    def __getitem__(self, number):
        return torch.full((8,), float(number)), number

def train(loader, epochs=1, step_s=0.01):
    for epoch in range(epochs):
        for batch in loader:
            time.sleep(step_s)
"""

_RANKS = """
        def train_on_ranks(work):
            def rank(number, world_size=2):
                store = torch.distributed.FileStore(__file__ + ".group", world_size)
                torch.distributed.init_process_group("gloo", store=store, rank=number, world_size=world_size)
                work()
                torch.distributed.destroy_process_group()

            ranks = [mp.get_context("fork").Process(target=rank, args=(number,)) for number in range(2)]
            [each.start() for each in ranks]
            [each.join() for each in ranks]
"""

# Name of the finding -> the script. Every loader has workers that are forked, if it does not say otherwise.
_FAULTY = {
    "shared-file zip": """
        with zipfile.ZipFile("photos.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for number in range(400):
                archive.writestr(f"{number}.txt", f"{number} " * 2000)

        class Photos(Numbers):
            def __init__(self):
                self.archive = zipfile.ZipFile("photos.zip")  # here
                self.names = self.archive.namelist()

            def __len__(self):
                return len(self.names)

            def __getitem__(self, number):
                return len(self.archive.read(self.names[number]))

        train(DataLoader(Photos(), 16, shuffle=True, num_workers=2), epochs=4)
    """,
    "shared-file raw": """
        np.arange(640 * 256, dtype=np.int32).tofile("records.bin")
        RECORDS = open("records.bin", "rb")  # here

        class Records(Numbers):
            def __getitem__(self, number):
                RECORDS.seek(1024 * number)
                return torch.frombuffer(bytearray(RECORDS.read(1024)), dtype=torch.int32)

        train(DataLoader(Records(), 16, shuffle=True, num_workers=2))
    """,
    "shared-file sqlite": """
        base = sqlite3.connect("labels.db")
        base.execute("CREATE TABLE labels (number INT, label INT)")
        base.executemany("INSERT INTO labels VALUES (?, ?)", [(number, number % 7) for number in range(640)])
        base.commit()

        class Labels(Numbers):
            def __init__(self):
                self.base = sqlite3.connect("labels.db", check_same_thread=False)  # here

            def __getitem__(self, number):
                return self.base.execute("SELECT label FROM labels WHERE number = ?", (number,)).fetchone()[0]

        train(DataLoader(Labels(), 16, num_workers=2))
    """,
    "reused-buffer": """
        class Records(Numbers):
            def __init__(self):
                self.buffer = np.empty((3, 16, 16), np.float32)  # here

            def __getitem__(self, number):
                self.buffer[:] = number
                return torch.from_numpy(self.buffer), number

        train(DataLoader(Records(), 16, num_workers=2))
    """,
    "open-files grows": """
        kept = []
        for images, labels in DataLoader(Numbers(), 8, num_workers=2):
            kept.append(labels)  # here
            time.sleep(0.06)
    """,
    "iterator-each-step": """
        loader = DataLoader(Numbers(), 16, shuffle=True, num_workers=2)
        for step in range(6):
            images, labels = next(iter(loader))  # here
    """,
    "iterator-each-step new": """
        for step in range(6):
            for images, labels in DataLoader(Numbers(), 16, shuffle=True, num_workers=1):  # here
                break
    """,
    "same-random-numbers workers": """
        def seed(worker):
            np.random.seed(42)  # here

        class Noisy(Numbers):
            def __getitem__(self, number):
                return number + np.random.normal()

        train(DataLoader(Noisy(), 16, num_workers=2, worker_init_fn=seed))
    """,
    "same-random-numbers seeded again": """
        class Noisy(Numbers):
            def __getitem__(self, number):
                return number + random.random()

        def begin():
            torch.manual_seed(7)  # here

        loader = DataLoader(Noisy(), 64, num_workers=2)
        for epoch in range(3):
            begin()
            train(loader)
    """,
    "same-random-numbers samples": """
        class Noisy(Numbers):
            def __getitem__(self, number):
                torch.manual_seed(0)  # here
                return number + torch.rand(())

        train(DataLoader(Noisy(), 16, num_workers=2))
    """,
    "same-random-numbers global": """
        RNG = np.random.default_rng(3)

        class Noisy(Numbers):
            def __getitem__(self, number):  # here
                return number + RNG.normal()

        train(DataLoader(Noisy(), 16, num_workers=2))
    """,
    "same-random-numbers collate": """
        RNG = np.random.default_rng(3)

        def mixed(samples):  # here
            return torch.stack([images for images, _ in samples]) * RNG.random()

        train(DataLoader(Numbers(), 16, num_workers=2, collate_fn=mixed))
    """,
    "every-sample-per-worker sampler": _RANKS
    + """
        class Photos(Numbers):
            files = [f"{number}.jpg" for number in range(640)]

            def __init__(self):
                self.files = list(self.files)

        train_on_ranks(lambda: train(DataLoader(Photos(), 16, num_workers=1, shuffle=True)))  # here
    """,
    "every-sample-per-worker": """
        class Stream(IterableDataset):
            def __iter__(self):  # here
                order = list(range(640))
                random.shuffle(order)
                for number in order:
                    yield torch.rand(3, 4, 4), number

        train(DataLoader(Stream(), 16, num_workers=2))
    """,
    "same-order-each-epoch": """
        from torch.utils.data.distributed import DistributedSampler
        sampler = DistributedSampler(Numbers(), num_replicas=2, rank=0, shuffle=True)
        loader = DataLoader(Numbers(), 32, sampler=sampler, num_workers=1)
        for epoch in range(3):
            for images, labels in loader:  # here
                time.sleep(0.005)
    """,
    "no-main-guard": """
        loader = DataLoader(Numbers(), 64, num_workers=2, multiprocessing_context="spawn")
        for images, labels in loader:  # here
            time.sleep(0.01)
    """,
    "small-shared-memory": """
        class Full(Numbers):
            def __getitem__(self, number):
                raise RuntimeError("unable to allocate shared memory(shm) for file </torch_1_2_3>: No space left (28)")

        loader = DataLoader(Full(), 16, num_workers=2)  # here
        train(loader)
    """,
    "stuck lock": """
        class Cached(Numbers):
            def __init__(self):
                self.lock = threading.Lock()
                threading.Thread(target=self.refresh, daemon=True, name="refresher").start()

            def refresh(self):
                with self.lock:
                    time.sleep(3600)

            def __getitem__(self, number):
                with self.lock:  # here
                    return number

        dataset = Cached()
        while not dataset.lock.locked():
            time.sleep(0.01)
        train(DataLoader(dataset, 16, num_workers=1))
    """,
    "stuck lock of a client": """
        class Client:
            def __init__(self):
                self.mutex = threading.Lock()
                threading.Thread(target=self.send, daemon=True, name="sender").start()

            def send(self):
                with self.mutex:
                    time.sleep(3600)

            def count(self, number):
                with self.mutex:  # here
                    pass

        CLIENT = Client()
        while not CLIENT.mutex.locked():
            time.sleep(0.01)

        def collate(samples):
            CLIENT.count(len(samples))
            return samples

        train(DataLoader(Numbers(), 16, num_workers=1, collate_fn=collate))
    """,
    "stuck queue": """
        class Telling(Numbers):
            def __init__(self, queue):
                self.queue = queue

            def __getitem__(self, number):
                self.queue.put(number)  # here
                return number

        train(DataLoader(Telling(mp.Queue(maxsize=20)), 16, num_workers=1))
    """,
    "worker-killed": """
        class Large(Numbers):
            def __getitem__(self, number):  # here
                if number == 200:
                    os.kill(os.getpid(), 9)
                return number

        train(DataLoader(Large(), 16, num_workers=2))
    """,
    "worker-killed alarm": """
        import signal

        class Timed(Numbers):
            def __getitem__(self, number):  # here
                if number == 200:
                    signal.setitimer(signal.ITIMER_REAL, 0.2)
                    time.sleep(1)
                return number

        train(DataLoader(Timed(), 16, num_workers=2))
    """,
    "worker-killed segv": """
        import ctypes

        class Wild(Numbers):
            def __getitem__(self, number):
                if number == 200:
                    ctypes.string_at(0)  # here
                return number

        train(DataLoader(Wild(), 16, num_workers=2))
    """,
    "bad-sample": """
        import io
        from PIL import Image
        good = io.BytesIO()
        Image.fromarray(np.random.randint(0, 255, (64, 64, 3), np.uint8)).save(good, "JPEG")

        class Photos(Numbers):
            def __getitem__(self, number):
                data = good.getvalue()[: 900 if number == 333 else None]
                image = Image.open(io.BytesIO(data)).convert("RGB")  # here
                return np.asarray(image).copy()

        train(DataLoader(Photos(), 16, num_workers=2))
    """,
    "passing-error": """
        class Remote(Numbers):
            tried = 0

            def __getitem__(self, number):
                if number == 333 and not self.tried:
                    self.tried = 1
                    raise OSError("connection reset by peer")  # here
                return number

        train(DataLoader(Remote(), 16, num_workers=2))
    """,
    "memory-grows worker": """
        class Caching(Numbers):
            def __init__(self):
                self.cache = {}

            def __len__(self):
                return 100_000

            def __getitem__(self, number):
                image = np.full((160, 160, 3), number % 255, np.uint8)
                self.cache[number] = image  # here
                return image

        train(DataLoader(Caching(), 16, num_workers=2), step_s=0.1)  # memory is looked at a few times a second
    """,
    "memory-grows method": """
        class Trainer:
            def __init__(self):
                self.outputs = []

            def log(self, outputs):
                self.outputs.append(outputs)  # here

            def step(self, images):
                self.log(images.repeat(1, 20_000))

        trainer = Trainer()
        for images, labels in DataLoader(Numbers(), 8, num_workers=2):
            trainer.step(images)
            time.sleep(0.1)
    """,
    "slow-sampler": """
        from torch.utils.data import Sampler

        class Weighted(Sampler):
            def __iter__(self):  # here
                for number in range(96):
                    time.sleep(0.01)
                    yield number

        train(DataLoader(Numbers(), 16, sampler=Weighted(), num_workers=1))
    """,
    "stale-dataset": """
        class Growing(Numbers):
            size = 8

            def __init__(self):
                self.size = 8

            def __getitem__(self, number):
                return torch.zeros(self.size)

        dataset = Growing()
        loader = DataLoader(dataset, 32, num_workers=2, persistent_workers=True)
        for epoch in range(3):
            dataset.size = 8 + epoch  # here
            for images in loader:
                time.sleep(0.005)
    """,
    "stale-dataset nested": """
        class Noise:
            level = 0.0

            def __call__(self, number):
                return number + self.level

        class Noisy(Numbers):
            def __init__(self):
                self.transforms = [Noise()]

            def __getitem__(self, number):
                return self.transforms[0](number)

        dataset = Noisy()
        dataset.transforms[0].level = 0.1
        loader = DataLoader(dataset, 32, num_workers=1, persistent_workers=True)
        for epoch in range(3):
            for batch in loader:
                time.sleep(0.005)
            dataset.transforms[0].level += 0.1  # here
    """,
    "stale-dataset items": """
        class Labelled(Numbers):
            def __init__(self):
                self.labels = np.zeros(640, np.int64)

            def relabel(self, number, label):
                self.labels[number] = label  # here

            def __getitem__(self, number):
                return self.labels[number]

        dataset = Labelled()
        loader = DataLoader(dataset, 32, num_workers=1, persistent_workers=True)
        for epoch in range(3):
            for labels in loader:
                time.sleep(0.005)
            dataset.relabel(3, 7)
    """,
    "stale-dataset list": """
        class Mined(Numbers):
            def __init__(self):
                self.numbers = list(range(640))

            def __getitem__(self, number):
                return self.numbers[number]

        dataset = Mined()
        loader = DataLoader(dataset, 32, num_workers=1, persistent_workers=True)
        for epoch in range(3):
            for numbers in loader:
                time.sleep(0.005)
            dataset.numbers = [640 - number for number in dataset.numbers]  # here
    """,
    "no-batches": """
        loader = DataLoader(Numbers(), 1000, num_workers=2, drop_last=True)  # here
        train(loader)
    """,
    "unequal-samples": """
        class Uneven(Numbers):
            def __getitem__(self, number):  # here
                return torch.zeros(3, 8 + number % 2)

        train(DataLoader(Uneven(), 16, num_workers=2))
    """,
    "error init": """
        def seed(worker):
            torch.manual_seed(None)  # here

        train(DataLoader(Numbers(), 32, num_workers=2, worker_init_fn=seed))
    """,
}

_SOUND = {
    "files of their own": """
        np.arange(640 * 256, dtype=np.int32).tofile("records.bin")

        class Records(Numbers):
            def __init__(self):
                self.file = None
                self.pread = open("records.bin", "rb")  # os.pread moves nothing
                self.map = np.memmap("records.bin", np.int32)
                self.bases = {os.getpid(): sqlite3.connect("labels.db")}

            def __getitem__(self, number):
                if self.file is None:
                    self.file = open("records.bin", "rb")
                if os.getpid() not in self.bases:
                    self.bases[os.getpid()] = sqlite3.connect("labels.db")
                self.bases[os.getpid()].execute("SELECT 1").fetchone()
                self.file.seek(1024 * number)
                os.pread(self.pread.fileno(), 1024, 1024 * number)
                return torch.frombuffer(bytearray(self.file.read(1024)), dtype=torch.int32)

        train(DataLoader(Records(), 16, shuffle=True, num_workers=2), step_s=0.03)
    """,
    "one worker with an open file": """
        open("labels.txt", "w").write("label\\n" * 10_000)

        class Labels(Numbers):
            def __init__(self):
                self.file = open("labels.txt")

            def __getitem__(self, number):
                self.file.seek(6 * number)
                return self.file.readline()

        train(DataLoader(Labels(), 16, num_workers=1), step_s=0.03)
    """,
    "seeds as torch recommends": """
        def seed(worker):
            np.random.seed(torch.initial_seed() % 2**32)
            random.seed(torch.initial_seed())

        class Noisy(Numbers):
            def __getitem__(self, number):
                return number + np.random.normal() + random.random() + float(torch.rand(()))

        train(DataLoader(Noisy(), 32, num_workers=2, worker_init_fn=seed), epochs=4, step_s=0.03)
    """,
    "a stream in parts": """
        class Stream(IterableDataset):
            def __iter__(self):
                worker = get_worker_info()
                order = list(range(2000))[worker.id :: worker.num_workers]
                random.shuffle(order)
                for count, number in enumerate(order):
                    yield torch.rand(3, 4, 4), number, number % 10, count

        train(DataLoader(Stream(), 32, num_workers=2), step_s=0.03)
    """,
    "ranks that evaluate on all samples": _RANKS
    + """
        class Stream(IterableDataset):
            def __iter__(self):
                worker = get_worker_info()
                for number in range(640)[worker.id :: worker.num_workers]:
                    yield torch.rand(3, 4, 4), number

        train_on_ranks(torch.no_grad()(lambda: train(DataLoader(Stream(), 16, num_workers=2), step_s=0.05)))
    """,
    "ranks that share the samples": _RANKS
    + """
        class Photos(Numbers):
            def __init__(self):
                self.files = [f"{number}.jpg" for number in range(torch.distributed.get_rank(), 1280, 2)]

        train_on_ranks(lambda: train(DataLoader(Photos(), 16, num_workers=1, shuffle=True), step_s=0.05))
    """,
    "a stream that is shuffled alike and then shared": """
        class Stream(IterableDataset):
            def __init__(self):
                self.rng = random.Random(3)

            def __iter__(self):
                worker, order = get_worker_info(), list(range(640))
                self.rng.seed(3)
                self.rng.shuffle(order)
                pictures = torch.rand(640, 3, 4, 4)  # once: torch's state stays as it is then
                for number in order[worker.id :: worker.num_workers]:
                    yield pictures[number], number

        train(DataLoader(Stream(), 16, num_workers=2), step_s=0.05)
    """,
    "tensors without workers": """
        loader = DataLoader(TensorDataset(torch.randn(5000, 16), torch.arange(5000)), 64, shuffle=True)
        model = torch.nn.Linear(16, 4)
        optimizer = torch.optim.Adam(model.parameters())
        for epoch in range(3):
            for number, (images, labels) in enumerate(loader):
                optimizer.zero_grad()
                model(images).pow(2).mean().backward()
                optimizer.step()
            shown = next(iter(loader))
    """,
    "memory that samples share": """
        class Shared(Numbers):
            def __init__(self):
                self.mask, self.all = torch.ones(3, 16, 16), torch.randn(640, 3, 16, 16)
                self.scale = torch.zeros(4)

            def __getitem__(self, number):
                self.scale += 1
                return {"image": self.all[number], "mask": self.mask, "scale": self.scale}

        train(DataLoader(Shared(), 16, num_workers=2), step_s=0.03)

        class Alone(Numbers):
            def __init__(self):
                self.buffer = np.empty((3, 16, 16), np.float32)

            def __getitem__(self, number):
                self.buffer[:] = number
                return self.buffer

        train(DataLoader(Alone(), None, num_workers=2), step_s=0.01)
    """,
    "what a dataset makes for itself": """
        class Cached(Numbers):
            def __init__(self):
                self.cache, self.kept, self.order, self.file = {}, [None] * 640, None, None
                self.shared = torch.zeros(640).share_memory_()

            def __getitem__(self, number):
                self.file = self.file or open(__file__)
                self.order = self.order or list(range(640))
                self.kept[number] = self.cache.setdefault(number, number)
                return self.order[number] + self.shared[number] + self.kept[number]

        dataset = Cached()
        loader = DataLoader(dataset, 32, num_workers=2, persistent_workers=True)
        for epoch in range(4):
            train(loader, step_s=0.03)
            dataset.shared[epoch] = dataset[epoch]
    """,
    "what no sample reads": """
        class Reported(Numbers):
            def __init__(self):
                self.reports = ["begun"]

            def report(self, text):
                self.reports.append(text)
                return len(self.reports)

        dataset = Reported()
        loader = DataLoader(dataset, 16, num_workers=2, persistent_workers=True)
        for epoch in range(3):
            train(loader, step_s=0.03)
            dataset.report("epoch")
    """,
    "one batch, again and again": """
        class Few(Numbers):
            def __len__(self):
                return 4

            def __getitem__(self, number):
                time.sleep(0.01)
                return torch.full((8,), float(number)), number

        train(DataLoader(Few(), 4), epochs=12, step_s=0.02)
    """,
    "set_epoch": """
        from torch.utils.data.distributed import DistributedSampler
        sampler = DistributedSampler(Numbers(), num_replicas=2, rank=0, shuffle=True)
        loader = DataLoader(Numbers(), 32, sampler=sampler, num_workers=1, persistent_workers=True)
        for epoch in range(5):
            sampler.set_epoch(epoch)
            train(loader, step_s=0.03)
    """,
    "locks, threads, lambdas": """
        class Locked(Numbers):
            def __init__(self):
                self.lock, self.counter = threading.Lock(), mp.Value("i", 0)
                self.transform = lambda value: value

            def __getitem__(self, number):
                with self.lock, self.counter.get_lock():
                    self.counter.value += 1
                return self.transform(number)

        stop = threading.Event()
        thread = threading.Thread(target=stop.wait)
        thread.start()
        train(DataLoader(Locked(), 16, num_workers=2, collate_fn=lambda numbers: torch.tensor(numbers)), step_s=0.03)
        stop.set()
    """,
}

FAULTY = {name: _BEGIN + textwrap.dedent(text) for name, text in _FAULTY.items()}
SOUND = {name: _BEGIN + textwrap.dedent(text) for name, text in _SOUND.items()}

# Those that the gate runs in its own process: no other process, limit, signal or long time is needed to see them.
HERE = {
    "shared-file raw",
    "shared-file sqlite",
    "reused-buffer",
    "iterator-each-step",
    "same-random-numbers workers",
    "same-random-numbers seeded again",
    "same-random-numbers samples",
    "same-random-numbers global",
    "same-random-numbers collate",
    "every-sample-per-worker",
    "same-order-each-epoch",
    "small-shared-memory",
    "bad-sample",
    "passing-error",
    "slow-sampler",
    "stale-dataset",
    "stale-dataset nested",
    "stale-dataset items",
    "no-batches",
    "unequal-samples",
    "error init",
    "files of their own",
    "one worker with an open file",
    "a stream in parts",
    "a stream that is shuffled alike and then shared",
    "what a dataset makes for itself",
    "one batch, again and again",
    "set_epoch",
    "locks, threads, lambdas",
}
