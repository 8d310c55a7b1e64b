// The first bytes of a KEY.fpc <-> what they say (docs/explanation/format.md, "KEY.fpc").
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "jpeg/transcode/jpeg_writer.h"
#include "jpeg/transcode/output_header.h"

namespace fastpipe {

// After the last block, at least so many bytes follow: kernels read beyond what they use.
constexpr std::size_t kFpcPadding = 128;

// What it takes to know the header of nearly every picture; more have only those of over 900 MCU rows.
constexpr std::size_t kFpcHeadBytes = 4096;

bool is_fpc(const std::uint8_t* data, std::size_t size);

struct FpcHeader {
  OutputHeader frame;         // of the JPEG that has the same coefficients
  bool high_dc = false;       // some block's mean is beyond 11 bits, which no encoder makes
  std::size_t size = 0;       // of the whole file
  std::size_t segments = 0;   // where they begin
  std::uint64_t xxh3_64 = 0;  // of the JPEG that packing would have stored

  // How many bytes the header takes, row offsets included; 0 where these first bytes are of no KEY.fpc.
  static std::size_t bytes(const std::uint8_t* data, std::size_t size);

  // Reads the header at `data`, of which `known` bytes are there, of a file of `file_size` bytes, without allocating
  // anything. What it then says of places has been checked to lie inside the file, and to leave room for the blocks.
  Status read(const std::uint8_t* data, std::size_t known, std::size_t file_size, std::int64_t max_pixels);

  // Where the blocks of an MCU row begin in the file; of the row after the last: where they end. `data` must stay
  // valid.
  std::size_t row(int mcu_row) const;

  // The APPn and COM segments of a whole file. False where they do not fit.
  bool read_segments(const std::uint8_t* data, std::vector<Segment>* segments) const;

 private:
  const std::uint8_t* rows_ = nullptr;
};

// Writes a header in front of blocks that are yet to come: `begin`, then `end_row` after the blocks of each MCU row.
class FpcHeaderWriter {
 public:
  explicit FpcHeaderWriter(std::vector<std::uint8_t>* out) : out_(out) {}

  void begin(const OutputHeader& frame);
  void end_row();

  // After the last row: the segments, the padding and what the header says of the whole.
  void finish(const std::vector<Segment>& segments, bool high_dc, std::uint64_t xxh3_64);

 private:
  std::vector<std::uint8_t>* out_;
  std::size_t next_row_ = 0;  // where the next row's place is written
};

}  // namespace fastpipe
