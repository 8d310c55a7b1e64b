// One row of a batch, or the rows that the crops of one picture become: read -> decode -> resize -> the slots. The row
// of an array is copied as it is stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/image.h"
#include "base/status.h"
#include "engine/activity.h"
#include "engine/map_row.h"
#include "engine/mask_row.h"
#include "engine/stored_bytes.h"
#include "io/file.h"
#include "resize/copier.h"
#include "resize/padding.h"
#include "resize/patches.h"
#include "resize/resampling.h"
#include "resize/resize.h"

namespace fastpipe {

// What to do for one row. Mirrored by numpy through the bindings, so: plain data.
struct RowTask {
  double box[4];           // x, y, width, height in pixels of the picture: what becomes the row
  std::uint64_t offset;    // of the picture in the shard, in bytes
  std::uint64_t xxh3_64;   // of its bytes, as the index has it
  std::int32_t bounds[4];  // x, y, width, height: pixels outside have no part in the row
  std::uint32_t size;      // of the picture, in bytes
  std::uint32_t shard;
  std::uint32_t out_row;  // which picture of the slot; of an array the first of its rows. Note [rows of own sizes]
  std::uint32_t skip;     // bytes at the start of an array's or a map's file, its header, that are not numbers
  std::uint32_t width;    // of the whole picture, as the index has it
  std::uint32_t height;
  std::uint16_t out_width;  // of the row; 0: the slot's
  std::uint16_t out_height;
  std::uint8_t flip;          // 1: mirror left and right
  std::uint8_t coefficients;  // 1: JPEGs of this shard are KEY.fpc, of which only what the crop needs is read
};

// How all rows of a slot are made.
struct RowOptions {
  bool exact;           // never decode at reduced size
  bool verify;          // compare each file's hash with the index's before it is decoded
  int id_bytes = 0;     // 1 or 4: rows are a mask's ids, of which none is made up; 0: they are pictures
  bool copied = false;  // rows are bytes of an array, and no picture
  PixelForm form = {};  // of pictures
  MapForm map = {};     // of maps; where it has channels, rows are maps
  Resampling resampling = {};
  Padding padding = {};
  PatchForm patches = {};  // of pictures

  bool is_map() const { return map.channels > 0; }

  int pixel_bytes() const {
    if (copied) return 1;
    if (is_map()) return map.bytes();
    return id_bytes > 0 ? id_bytes : form.bytes();
  }
};

// Note [rows of own sizes]
// Pictures of a batch may become rows of different sizes. They lie one behind the other, so their slot counts pixels:
// its size is 1 x 1, and a row begins at the pixel out_row.
inline PixelSpan row_of(std::uint8_t* images, Size size, int pixel_bytes, const RowTask& task) {
  const std::ptrdiff_t stride = static_cast<std::ptrdiff_t>(size.width) * pixel_bytes;
  std::uint8_t* const row = images + static_cast<std::ptrdiff_t>(task.out_row) * stride * size.height;
  if (task.out_width == 0) return {row, size, stride};
  return {row, {task.out_width, task.out_height}, static_cast<std::ptrdiff_t>(task.out_width) * pixel_bytes};
}

// Where rows of one kind of crop go.
struct Slot {
  std::uint8_t* images = nullptr;  // (rows, size.height, size.width) of options.pixel_bytes()
  Size size;                       // of bytes: as wide as a row, and 1 high
  RowOptions options;

  PixelSpan row(const RowTask& task) const { return row_of(images, size, options.pixel_bytes(), task); }
};

// Time that a thread spent, and what it got done.
struct RowCounters {
  std::uint64_t opened = 0;  // shards; FileCache counts them
  std::uint64_t read = 0;    // pictures that were read
  std::uint64_t bytes = 0;   // of these, and of masks
  std::uint64_t rows = 0;    // pictures decoded and resized: a thread does both at once, and the second cannot fail
  std::uint64_t failed = 0;  // rows that could not be read or decoded; the engine counts them
  std::uint64_t read_ns = 0;
  std::uint64_t decode_ns = 0;
  std::uint64_t resize_ns = 0;

  void add(const RowCounters& other);
};

// A thread's scratch: reads and decodes one picture at a time, resizes its crops and reuses its memory.
class RowWorker {
 public:
  explicit RowWorker(FileCache* files) : files_(files) {}

  // Fills a row of each slot from one picture: tasks[i] is that of slots[i], and all have the picture in common. Stops
  // at the first row that fails. `stage` is kept up to date. May throw only what allocation throws.
  Status run(const RowTask* tasks, const std::vector<Slot>& slots, RowCounters* counters, StageFlag* stage);

  // One row, of a picture in memory, of task.size bytes; needs no files.
  Status run(const std::uint8_t* picture, const RowTask& task, RowOptions options, PixelSpan out);

  // The same for a file that others hold open, whatever task.shard is; needs no files.
  Status run(const File& file, const RowTask& task, RowOptions options, PixelSpan out);

 private:
  struct GiveBack;

  // A crop of the picture at hand.
  struct Crop {
    const RowTask* task = nullptr;
    RowOptions options = {};
    PixelSpan out = {};               // the row, or the patch writer's room
    std::uint8_t* patches = nullptr;  // where the row goes if it consists of patches
    PatchWriter patch_writer = {};
    CropRegion needed = {};  // of the picture
    bool empty = false;      // all of the row is fill
    bool copied = false;     // by the copier: the others have no part in it
    Copier copier = {};
    PixelSpan resized = {};  // `out`, or the padder's room
    Resizer resizer = Resizer();
    Padder padder = {};
    std::uint64_t resize_ns = 0;

    bool padded() const { return options.padding.mode != PaddingMode::none; }
    RowSink sink() { return {this, take, options.form, copied}; }  // copies or resizes decoded rows
    bool plan(const PictureDecoder& decoder);
    static void take(void* context, int y, int count, const std::uint8_t* rows, std::ptrdiff_t stride);
    void finish();
    void give_back();
  };

  void add_crop(const RowTask& task, RowOptions options, PixelSpan out);
  Status fill(const File& file, RowCounters* counters, StageFlag* stage);
  // Those open, decode and resize what has been read.
  Status fill_picture(RowCounters* counters, StageFlag* stage);
  Status read_needed(RowCounters* counters);
  bool decode_together(RowCounters* counters, StageFlag* stage);
  Status decode(Crop* crop, RowCounters* counters, StageFlag* stage);
  void count_decode(std::uint64_t ns, RowCounters* counters);
  Status fill_mask(const Crop& crop, RowCounters* counters);
  Status fill_map(const File& file, const Crop& crop, RowCounters* counters);
  // An array, which may fill several rows.
  Status copy(const File& file, const Crop& crop, RowCounters* counters);

  FileCache* files_;
  StoredBytes stored_;
  PictureDecoder decoder_;
  MaskRow mask_;
  MapRow map_;
  std::vector<Crop> crops_;  // the first crop_count_ are at hand; the others wait with their memory
  std::size_t crop_count_ = 0;
  std::vector<CropRows> together_;
};

}  // namespace fastpipe
