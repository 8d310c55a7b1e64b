"""A field of lists of pictures -> where they are in the shards, and the memory that they go to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.arrays import Int64s
from fastpipe.dataset.format.columns import Ragged, row_of_values
from fastpipe.dataset.format.pixel_form import PixelForm
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.content import ColumnReader
from fastpipe.plan.picture_lists import Images, PictureListBatch

if TYPE_CHECKING:
    from fastpipe.engine.engine import Engine
    from fastpipe.engine.jobs import FetchedJob, Job
    from fastpipe.engine.pictures import Pictures
    from fastpipe.plan.epoch import EpochPlan


class PictureListReader:
    """Reads the pictures of a field, for batches and of single samples.

    Args:
        request: the form in which they come.
        column: their records; see PictureLists.
    """

    def __init__(self, request: Images, column: ColumnReader) -> None:
        self._form = request.form
        self._column = column

    def begin(
        self,
        engine: Engine,
        epoch_plan: EpochPlan,
        plan: BatchPlan,
        form: PixelForm,
        exacts: Sequence[bool],
    ) -> tuple[PictureListBatch, list[tuple[Job | FetchedJob, Int64s]]]:
        """Lets the engine make the pictures of a batch.

        Args:
            engine: of the loader.
            epoch_plan: draws the crops.
            plan: of the batch.
            form: of the pictures.
            exacts: of each view, as of Engine.submit.

        Returns:
            Their memory; and a job for each view, with the sample of each row, a position in the
            plan.
        """
        ragged: Ragged = self._column.take(plan.ids)
        # (M,) each: the sample of a picture, and its number there.
        samples = row_of_values(ragged)
        first_pictures = ragged.offsets[samples]
        numbers = np.arange(len(samples)) - first_pictures
        records = ragged.values
        picture_plan = epoch_plan.plan_pictures(plan, samples, numbers, records)

        slots: list[NDArray[Any]] = []
        row_sizes: list[Int64s | None] = []
        jobs = []
        for view, exact in zip(picture_plan.views, exacts, strict=True):
            shape = (*view.crops.slot_shape(), form.channels)
            slot = np.empty(shape, form.dtype)
            slots.append(slot)
            row_sizes.append(view.crops.row_sizes)
            if not len(samples):
                continue
            rows_per_picture = view.rows_per_sample
            row_records = np.repeat(records, rows_per_picture)
            job = engine.submit_field(view.by_row(), row_records, slot, exact=exact)
            sample_of_row = np.repeat(samples, rows_per_picture)
            jobs.append((job, sample_of_row))
        batch = PictureListBatch(
            slots,
            row_sizes,
            ragged.offsets,
            is_flat=self._form == "flat",
            layout=picture_plan.crops.layout,
        )
        return batch, jobs

    def records_of(self, ids: Int64s) -> Ragged:
        """The records of samples, for `read`. DatasetError: one is impossible."""
        ragged: Ragged = self._column.take(ids)
        return ragged

    def read(
        self,
        pictures: Pictures,
        sample: int,
        record: np.void,
        picture_records: NDArray[np.void],
    ) -> list[NDArray[Any]]:
        """The whole pictures of a sample, each (height, width, channels).

        Args:
            pictures: reads its shard.
            sample: its number.
            record: of the index.
            picture_records: of the pictures.
        """
        arrays = []
        for picture_record in picture_records:
            # A picture of a list has a size of its own.
            own_record = record.copy()
            own_record["width"] = picture_record["width"]
            own_record["height"] = picture_record["height"]
            arrays.append(
                pictures.whole_field(sample, own_record, picture_record, mask=False)
            )
        return arrays
