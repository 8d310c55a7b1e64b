"""Sentences that the findings of several checks have in common."""

LESS_MEMORY = (
    "fewer num_workers, prefetch_factor=1, smaller batches, arrays instead of lists"
)
MORE_SHARED_MEMORY = (
    "docker run --shm-size=8g (or --ipc=host); "
    "or fewer num_workers, prefetch_factor=1, uint8 batches"
)
FEWER_OPEN_FILES = (
    'torch.multiprocessing.set_sharing_strategy("file_system") at the start of the program; '
    "or keep copies (labels.clone()), not the batches; or ulimit -n 65535"
)
WHY_FILES_ARE_OPEN = (
    "each tensor of a worker is an open file while the program keeps it; "
    "so are the dataset's open files"
)
