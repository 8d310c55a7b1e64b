"""The code and the evidence of a finding -> its words. Nothing in the package reads them back."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from typing import Any

# Texts that several findings share, then a row for each code, and for each cause of those that have several: the
# section of docs/failures.md that tells more; what was seen; why it is so, and what to change. A text that is not there
# is that of the row before. {wait_s} is a name or a figure of the evidence; {wait_s:ms} is 12 ms, {held_bytes:size}
# 2.5 MB, {cpus:CPU} 2 CPUs. What is in [[ ]] is left out where evidence that it names is None.
_TABLE = """
@keeps    the loader keeps up: the loop waits {wait_s:ms} a batch[[, {waits:.0%} of its time]]
          [[; the loop's own step takes {stepping:.0%} of its time: look there]]
@waits    [[the loop waits {waits:.0%} of its time]][[{alone:batch}, without a training step]]
          [[; {rate:,.0f} samples/s]][[; {batch_rate:,.1f} batches/s]]
          [[; the bottleneck is {stage}]][[ ({share:.0%} of making a batch)]]
          [[, on {cpus_used:.1f} CPUs in the mean: several threads compute]][[, {computing:.0%} of it on a CPU]]
          [[, {delaying:.0%} waiting for a CPU]][[, {rest:.0%} for disk, network, locks or sleep]]
          [[ ({way_s:ms} a batch)]][[; workers are busy {working:.0%}]]
@slow     @waits (a wait is {wait_s:ms}, a step {step_s:ms})
@ended    [[the loader ended with {ended}]][[{process}]][[ was ended by {signal}]][[ ended with exit code {exit_code}]]
          [[ is gone: {gone}]][[, at sample {at_sample}]][[{refused} cannot be pickled: {reason}]]
          [[reading sample {sample}]][[ ({file})]][[{function}, of the samples {of_samples},]][[ raised {raised}]]
          [[; {others:,} more samples raised errors]]
@late     [[no batch for {waited_s:.0f} s]][[, after {batches:batch}]][[{timed_out}]]
@timeout  [[; DataLoader(..., timeout={timeout}) turns the wait into an error]]
@memory   fewer num_workers, prefetch_factor=1, smaller batches, arrays instead of lists
@shm      docker run --shm-size=8g (or --ipc=host); or fewer num_workers, prefetch_factor=1, uint8 batches
@ahead    num_workers={num_workers} x prefetch_factor={prefetch_factor} x {batch_bytes:size} per batch =
          {ahead_bytes:size}
@more     [[, and {others}]]

stuck queue-full, 1: @late: {process} (pid {pid}) is [[at sample {sample}]][[in {function}]][[, in {line}]]
          [[, inside of {inner}]], for {busy_s:.0f} s[[; {others:more worker} at work or waiting]]
          [[; the kernel says {kernel}]]
  why     the queue is full: it has a maxsize, and nobody takes from it as fast as workers put into it
  change  take from the queue in a thread of the main process; or put_nowait, and drop the rest@timeout
stuck other, 1
  why     it waits in vain for {awaited}
  change  give the call a timeout: get(timeout=60), acquire(timeout=60), poll(60), urlopen(..., timeout=60)@timeout
stuck thread, 1
  why     it waits for {awaited}, perhaps made in the main process: a forked worker has none of its threads
  change  make and start it in the worker, when first used@timeout
stuck lock-shared, 1
  why     {holder} held {lock}, which all processes share, when the worker was forked
  change  release it before the loop asks for a batch, and never hold it while you wait for one@timeout
stuck lock-copied, 1
  why     {lock} was held by {holder} when the worker was forked. The worker's copy stays locked: it has no such thread
  change  in worker_init_fn, {in_worker} = {kind}(); or stop this thread before the loop starts its workers@timeout
stuck disk, 13
  why     the disk or the network does not answer
  change  check the disk or the mount; copy the data to a local disk@timeout
stuck call, 13
  why     a call that does not return there delays its own batch and all later batches
  change  give the call at this line a timeout, and leave out such samples@timeout
stuck library, 1
  why     it waits for a lock, perhaps of a library (OpenMP, OpenCV) whose threads do not exist after a fork
  change  give the call at this line a timeout, and leave out such samples[[; for such a library:
          multiprocessing_context="{instead}"]]@timeout
stuck freeing, 1: @late: {process} (pid {pid}) frees garbage, which does not end; the kernel says {kernel}
  why     to free an object of the main process (DistributedDataParallel, a pool), it waits for threads it does not have
  change  gc.collect() before the loop starts workers; or DataLoader(..., multiprocessing_context="forkserver")@timeout
stuck start-fork, 1: @late: {silent:worker} started by {method} did not reach worker_init_fn (process {pid}
          [[, in {line}]]); the kernel says {kernel}
  why     a forked worker inherits locks that no thread will release
  change  start threads, and use libraries that have some, only after the loop has started its workers
stuck start, 10
  why     such a worker first imports the main script and unpickles the dataset
  change  put the script under if __name__ == "__main__":, and look at what the dataset does when it is unpickled
stuck lost, 13: @late: no worker is working[[; the main process is in {line}]]
  why     a batch was lost between a worker and the main process, or the sampler does not return
  change  read the stacks below
stuck step, 17: no batch was asked for in {waited_s:.0f} s, after {batches:batch}: the main process is in {line}
          [[, inside of {inner}]][[; the kernel says {kernel}]]
  why     the program waits in this line, not for the loader; ranks that get one batch less leave the others waiting so
  change  see what this line waits for; give each rank the same number of batches: DistributedSampler, or drop_last=True
stuck timeout, 13: @late[[; workers were at sample {samples}]]
  why     a sample took longer than the timeout of the DataLoader
  change  look at what these samples wait for; a larger timeout= if they only are slow
no-main-guard, 10: each worker runs the script again, comes to line {line}, and would start workers itself: {source}
  why     with the start method {method} (not only on macOS and Windows), workers import the main script
  change  put line {line}, and all that belongs to the training, under if __name__ == "__main__":
worker-killed memory, 15: @ended
  why     the kernel's OOM killer ended it: there was too little memory
  change  @memory
worker-killed outside, 15
  why     SIGKILL comes from outside: most often from the kernel's OOM killer, where there is too little memory[[; its
          count did not rise here (it is {kills}), so a job manager, a container's limit or a person sent it]]
  change  look at `dmesg -T | grep -i kill` and the job's memory limit; @memory
worker-killed alarm, 15
  why     an alarm of the program (signal.alarm, signal.setitimer) ran out where no handler was set
  change  signal.alarm(0) in a finally: after the work it was set for; or pass a timeout to the call instead
worker-killed itself, 15
  why     the program or a library called exit, or did something that the machine refused, often after a fork
  change  run it with num_workers=0 to see the error; look for sys.exit and os._exit; update the library of this line
small-shared-memory, 3
  why     /dev/shm is full: workers pass batches in files there. No sample is at fault
  change  @shm
small-shared-memory ahead, 3: @ahead; /dev/shm had {free_bytes:size} free
  why     workers pass batches in files in /dev/shm
open-files grows, 4: {process} has {opened:,} more files open than at first, {files:,} in all, and more after each
          batch; its limit of {limit:,} is {left:batch} away
  why     each tensor of a worker is an open file while the program keeps it; so are the dataset's open files
  change  torch.multiprocessing.set_sharing_strategy("file_system") at the start of the program; or keep copies
          (labels.clone()), not the batches; or ulimit -n 65535
open-files, 4: @ended
out-of-memory, 15
  why     there is not enough memory
  change  @memory
disk-full, 3
  why     a disk or /dev/shm is full. No sample is at fault
  change  delete files, or write to another disk (TMPDIR=); for /dev/shm: @shm
not-picklable, 10
  why     pickle, by which workers get the dataset with this start method, takes no lambdas and nothing defined inside a
          function, no locks and no open files
  change  define functions and classes at the top level of a module; make files and locks in the worker, when first used
error
  why     the loader does not run
  change  correct this line first
error program: the program ended with {ended}
  why     it ended in a line of its own, not in a DataLoader
shared-file, 16: {path} is an open {kind}[[ ({file})]]@more: {num_workers:worker} share it
          [[; reading sample {sample} raised {raised}]]
  why     forked workers share a file's position or a database's handle: samples are wrong, or fail; the file is good
  change  open it in the worker, when first used: if self.f is None: self.f = open(...), and read no sample, such as
          dataset[0], before the loop starts its workers; or os.pread, without a position
reused-buffer: {part} of a sample lay {times:time} in the same memory as that of the sample before in its
          batch[[, that of {buffer}]]
  why     the dataset writes each sample into one buffer: all samples of a batch become the last one
  change  return a copy of the buffer (.copy() or .clone()), or make a new one for each sample
bad-sample, 13: @ended
  why     an error in a worker ends the epoch, and its message does not name the sample
  change  repair or leave out this sample; or catch the error in __getitem__ and raise it with the file's name
bad-sample mistake, 13
  change  correct this line: it does not take this input
passing-error, 13: @ended; read once more, the same sample raised none
  why     the error comes and goes, as with a network, a disk, or a file or connection that several processes use
  change  open files and connections in the worker that uses them; try a read over a network again before it fails
bad-collate, 13: @ended
  why     collate_fn does not take what __getitem__ returned for these samples: None, nothing, or another form
  change  look at these samples; leave out in the dataset, or in collate_fn, what cannot be in a batch
unequal-samples, 13
  why     collate_fn makes a batch of samples that do not fit together
  change  return samples of one shape and type (resize or pad them), or give DataLoader ({made_at}) another collate_fn
same-random-numbers generator, 8: {generator} is a random generator, with the same state in several workers
          [[; so are {others}]]
  why     each worker has a copy, and draws the same numbers; without persistent_workers, again in each epoch
  change  draw with torch, which seeds each worker anew; or make the generator in the worker, of torch.initial_seed()
same-random-numbers sample, 8: {generator} has the same state after every sample: each sample draws the same numbers
  why     it is seeded with a constant for each sample
  change  remove this line
same-random-numbers init, 8: [[workers {one} and {other} begin]][[worker {again} begins two epochs]] with the same state
          of {generator}, and so with the same draws
  why     worker_init_fn seeds it with the same number in every {each}
  change  in worker_init_fn: {seed}, which differs for each worker and epoch; or leave all seeds to torch
same-random-numbers torch, 8
  why     torch seeds workers, and shuffles, by its own generator or the loader's: it is seeded again for each {each}
  change  seed once, at the start of the program
every-sample-per-worker, 9: {shared:,} of the first {total:,} samples of worker {worker} came from worker {other}, too
  why     each worker has a copy of the IterableDataset, and iterates over all of it, or divides another order of it
  change  in __iter__: worker = torch.utils.data.get_worker_info(), and only samples[worker.id :: worker.num_workers] of
          an order that all workers have in common: divide first, then shuffle
every-sample-per-worker rank, 9: {shared:,} of the first {total:,} samples of a worker came in another rank, too
  why     each rank has a copy of the IterableDataset, and __iter__ does not leave out what other ranks read
  change  in __iter__: only samples[rank * workers + worker.id :: world_size * workers], with get_rank() and
          get_world_size() of torch.distributed; ranks that hold parts of one model may read the same
every-sample-per-worker sampler, 9: {ranks:rank} train together, and each reads all {length:,} samples in each epoch
  why     no sampler divides the samples between the ranks
  change  sampler=torch.utils.data.DistributedSampler(dataset) in place of shuffle=, and sampler.set_epoch(epoch) in
          each epoch; ranks that hold parts of one model may read the same
refused-options workers, 11: torch refused to create a DataLoader: {refused}
  why     these options need workers, and there are none
  change  prefetch_factor=4 if num_workers else None, persistent_workers=num_workers > 0
refused-options
  why     see torch's message
  change  change these options
iterator-each-step, 14: {iterators:iterator} for {batches:batch}[[: {processes:worker process} started]]; the start
          takes {start_s:ms}, {share:.0%} of the time
  why     {made} in each step starts a new epoch, of which one batch is used
          [[: always the same, without shuffle={shuffle}]]
  change  one DataLoader, one iterator for many steps: batches = iter(loader) before the loop, and next(batches) in it
same-order-each-epoch, 17: {sampler} was at epoch {epoch} in each of {epochs} epochs: all had the same order
  why     {sampler} shuffles by its seed and its epoch; set_epoch was not called, or always with this number
  change  sampler.set_epoch(epoch) before this line, in each epoch
stale-dataset, 14: {attribute} has another value than when the workers were started
  why     persistent_workers=True: each worker keeps the copy of the dataset of its start, and sees no change
  change  persistent_workers=False; or pass the value by torch.tensor(...).share_memory_() or multiprocessing.Value
slow-epoch-start, 14: an epoch's first batch comes after {start_s:.1f} s, although making it takes {fetch_s:ms}; a later
          batch comes after {typical_s:ms}
  why     every epoch starts {num_workers:worker} again ({method})[[; and it makes {made}]]
  change  DataLoader(..., persistent_workers=True), made once, before the epochs
slow-sampler, 6: the sampler takes {sampler_s:ms} for a batch, and the loop waits {wait_s:ms}
  why     the sampler runs in the process of the training loop, between two batches
  change  draw the numbers of a whole epoch at once, at the start of the sampler's __iter__
idle-workers, 6: @waits; {made} of {num_workers:worker} made {most} batches
  why     an IterableDataset that shares out its shards or files among the workers has fewer of them than workers
  change  more and smaller shards, at least one a worker, or share out samples; more num_workers do not help
no-workers, 6: @waits; a batch takes {fetch_s:ms} to make
  why     with num_workers=0, no batch is made while a training step runs
  change  DataLoader(..., num_workers={cpus}, persistent_workers=True)
slow-dataset/slow-collate crowded, 2: @slow
  why     more threads are ready to run than there are CPUs
  change  fewer workers or threads for {cpus:CPU}: OMP_NUM_THREADS=1, cv2.setNumThreads(0) in worker_init_fn
slow-dataset/slow-collate others, 6: @slow; the program's own threads explain a wait for a CPU of {own:.0%} at most
  why     other programs use the CPUs
  change  watch it again when no other program runs: these figures say little about this line
slow-dataset/slow-collate computes, 6: @slow
  why     the CPUs granted ({cpus}) are all in use: making samples needs more CPU time than there is
  change  make this line faster (smaller images, augmentation on the GPU, arrays for lists), or use fastpipe.loader
slow-dataset/slow-collate one-cpu, 6
  why     a worker uses at most one CPU, and there are more CPUs
  change  DataLoader(..., num_workers={cpus}), now {num_workers} ({made_at}); or make this line faster
slow-dataset/slow-collate waits, 6
  why     workers spend more time on waiting for the disk, the network or a lock than on computing
  change  a faster disk for the data; or DataLoader(..., num_workers={double}), now {num_workers}: waiting uses no CPU,
          unless workers wait for each other: hold a lock (flock) only for what needs it
slow-transfer, 3
  why     each tensor goes through shared memory, and is copied again if it is pinned; arrays of NumPy, lists and other
          objects are pickled and go through a pipe, which is slower
  change  return tensors from collate_fn (torch.from_numpy(array)), of uint8 where that is enough: a quarter of float32
slow-transfer quick, 3
  change  DataLoader(..., num_workers=0): making a batch takes {fetch_s:ms}
late-batches, 13: @slow; {late:.0%} of its time it waits for batches that take more than twice as long to make as others
  why     a worker makes a batch alone: a slow sample delays its own batch and all later batches
  change  DataLoader(..., in_order=False) if the order does not matter; a larger prefetch_factor if few are slow
no-batches: the dataset has {length} samples, and an epoch has no batch
  why     len(dataset) or len(sampler) is 0
  change  look at how the dataset lists its samples
no-batches drop-last
  why     drop_last=True leaves out the only batch: it has less than batch_size={batch_size} samples
  change  a smaller batch_size, or drop_last=False
options-without-workers, 11: {options} with num_workers=0
  why     such options need workers, and there are none
  change  leave them out, or set num_workers
pin-without-gpu, 12: pin_memory=True, and there is no GPU
  why     pinned memory is useful only for copies to a GPU that run while the GPU computes
  change  DataLoader(..., pin_memory=torch.cuda.is_available())
gpu-without-pin, 12: pin_memory=False in a program that uses a GPU
  why     a copy from memory that is not pinned cannot run while the GPU computes
  change  DataLoader(..., pin_memory=True) and .to(device, non_blocking=True): use both or neither
bound-workers, 6: {num_workers:worker} may run on {mask:CPU} together; {cpus:CPU} are granted[[; {variable} is set]]
  why     a worker inherits the CPUs of the main thread, and OMP_PROC_BIND, GOMP_CPU_AFFINITY or os.sched_setaffinity
          has bound that to few of them
  change  unset the variable (OMP_PROC_BIND=false); or in worker_init_fn: os.sched_setaffinity(0,
          range(os.cpu_count()))
too-many-workers, 6: {num_workers:worker} for {cpus:CPU} granted[[; a worker that makes a batch waits {delayed:.0%} of
          the time for a CPU]][[ and computes {idle:.0%} of it, so more workers than CPUs may be intended]]
  why     os.cpu_count() counts the host's CPUs, not those granted to a container; each worker holds its own batches
  change  DataLoader(..., num_workers={cpus}), divided by the training processes of the container
prefetch-memory, 7: @ahead; only {free_bytes:size} of memory are free
  why     prefetch_factor applies to each worker; pinned copies need memory, too
  change  DataLoader(..., prefetch_factor=1), fewer num_workers, or smaller batches (uint8 instead of float32)
copy-on-write, 5: {path} is a {kind}, about {bytes:size}[[, and {similar:more object} like it]]: up to
          {total_bytes:size} in {num_workers:worker}[[; {process} grew by {grown_bytes:size} in {batches:batch}]]
  why     reading a Python object changes its reference count, so a forked worker copies the memory pages that it reads
  change  {attribute} = np.array(..., dtype='S') for names, or a tensor for numbers, instead of Python objects; of lists
          in lists, one array of all values and one of where each list begins
objects-in-each-worker, 5
  why     with the start method {method} each worker gets its own copy of all objects, by pickle, when it starts
memory-grows, 5: {process} grew by {grown_bytes:size} in {batches:batch} (from {first_bytes:size}), and had not stopped
          [[: {epoch_bytes:size} an epoch]][[; this line keeps something: {source}]]
  why     the program keeps something for each sample or batch: a cache, batches, losses or outputs with their graphs
  change  limit the size of the cache; keep numbers (loss.item()) instead of tensors
memory-grows worker, 5
  why     the dataset or collate_fn keeps something for each sample or batch, such as a cache; each worker has its own
  change  limit the size of the cache, or leave out what is kept
opencv-threads, 2: OpenCV works on {threads} threads in each of {num_workers:worker}, for {cpus:CPU} granted
  why     OpenCV has a thread for each CPU of the machine, in each worker; some builds do not work after a fork
  change  cv2.setNumThreads(0) in worker_init_fn
torch-threads, 1: torch works on {threads} threads in a worker
  why     OpenMP's threads do not exist after a fork, and a large operation waits for them forever
  change  remove torch.set_num_threads from the dataset and from worker_init_fn: torch gives each worker one thread
too-many-threads, 2: a worker has {threads} threads: {all_threads} in {num_workers:worker}, for {cpus:CPU} granted;
          while it makes a batch it uses {cpus_used:.1f} CPUs
  why     OpenBLAS, MKL and OpenMP start a thread for each CPU of the machine, in each worker; torch itself does not
  change  OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 before the training's command
slow-samples, 13: {slow:,} of {samples:,} samples take more than {limit_s:ms} (median {median_s:ms}), and {share:.0%} of
          all samples' time. The slowest: {worst}
  why     a worker makes its batch alone: a slow sample delays its own batch and all later batches
  change  check these samples (very large files, a slow disk): make them smaller once, or leave them out
slow-samples computes, 13
  change  check what this line computes for these samples: make very large files smaller once; bound a loop that tries
          again until something fits
slow-samples waits, 13
  change  check what this line waits for with these samples: a slow disk, the network, a lock; copy such files to a
          faster disk, or leave them out
"""


def _read(table: str) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """The shared texts, and the section and the texts of each row, by "code" or "code cause"."""
    shared: dict[str, str] = {}
    rows: dict[str, dict[str, str]] = {}
    row: dict[str, str] = {}
    table = re.sub(r"\n {10}(?=\[\[|[@,])", "", table)
    for line in re.sub(r"\n {10}", " ", table).splitlines()[1:]:
        if line.startswith((" ", "@")):
            name, text = line.split(maxsplit=1)
            (row if line.startswith(" ") else shared)[name] = text
        elif line:
            head, _, seen = line.partition(": ")
            head, _, section = head.partition(", ")
            codes, _, cause = head.partition(" ")
            row = {**row, "section": section, "seen": seen or row["seen"]}
            rows |= {f"{code} {cause}".rstrip(): row for code in codes.split("/")}
    return shared, rows


_SHARED, WORDS = _read(_TABLE)


def milliseconds(seconds: float) -> str:
    """0.012 -> 12 ms; 2.5 -> 2,500 ms."""
    value = seconds * 1e3
    return f"{value:,.0f} ms" if value >= 10 else f"{value:.1f} ms" if value >= 0.1 else f"{value:.2f} ms"


def size(size_bytes: float) -> str:
    """2500000 -> 2.5 MB."""
    return f"{size_bytes / 1e9:.1f} GB" if size_bytes >= 1e9 else f"{size_bytes / 1e6:.1f} MB"


def count(number: int, word: str) -> str:
    """2, worker -> 2 workers; 2, batch -> 2 batches."""
    ending = "" if number == 1 else "es" if word.endswith(("s", "ch")) else "s"
    return f"{number:,} {word}{ending}"


class _Figures(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec in ("ms", "size"):
            return (milliseconds if format_spec == "ms" else size)(value)
        return count(value, format_spec) if format_spec[:1].isalpha() else format(value, format_spec)


def say(text: str, evidence: Mapping[str, Any]) -> str:
    """A text of the table, or of a shared one the @name, with its evidence."""
    while "@" in text:
        text = re.sub("@[a-z]+", lambda found: _SHARED[found[0]], text)

    def told(found: re.Match[str]) -> str:
        return found[1] if all(evidence.get(name) is not None for name in re.findall(r"{(\w+)", found[1])) else ""

    text = re.sub(r"\[\[(.*?)\]\]", told, text)
    return _Figures().vformat(text, (), evidence)
