// An input -> what the engine makes of it, and whether that can be right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "coefficients/coefficient_decoder.h"
#include "coefficients/restore.h"
#include "engine/picture_decoder.h"
#include "engine/row.h"
#include "io/file.h"
#include "jpeg/decode/jpeg.h"
#include "jpeg/transcode/transcode.h"
#include "layout.h"
#include "png/png_decoder.h"
#include "random.h"

namespace fuzz {

// How many inputs came how far.
struct Tally {
  std::uint64_t rows = 0;          // became a row of a batch, or several: the same as each by itself
  std::uint64_t transcoded = 0;    // were written anew
  std::uint64_t compared = 0;      // were decoded by both decoders, or in whole and in part, to the same pixels
  std::uint64_t coefficients = 0;  // were decoded, by all kernels to the same pixels
  std::uint64_t tifs = 0;          // KEY.tifs were read in whole and in part, to the same pixels
  std::uint64_t pngs = 0;          // were read in whole and in part, to the same samples
};

// One shard, the same for all inputs: the input lies in it at kAt, zeros before and behind. Each run returns what is
// wrong, or nothing.
class RowTarget {
 public:
  RowTarget();

  // As a row of a batch, by way of an index that mostly tells the truth.
  std::string run(Random* random, const Bytes& input, Tally* tally);
  // The same for a KEY.fpc, read in whole or in parts.
  std::string run_fpc(Random* random, const Bytes& input, Tally* tally);
  // As a mask, or as a second picture.
  std::string run_png(Random* random, const Bytes& input, Tally* tally);

 private:
  void put(const Bytes& input);
  std::string fill(Random* random, const fastpipe::RowTask& task, int id_bytes, Tally* tally);

  int fd_ = -1;
  std::unique_ptr<fastpipe::FileCache> files_;
  std::unique_ptr<fastpipe::RowWorker> worker_;
};

// Decodes an input by both decoders, in whole and in part. Returns what is wrong, or nothing.
class CompareTarget {
 public:
  std::string run(Random* random, const Bytes& input, Tally* tally);

 private:
  fastpipe::JpegDecoder decoder_;
};

// Decodes a KEY.fpc by all kernels and both decoders, and makes a JPEG of it. Returns what is wrong, or nothing.
class FpcTarget {
 public:
  std::string run(Random* random, const Bytes& input, Tally* tally);

 private:
  fastpipe::CoefficientDecoder decoder_;
  fastpipe::JpegRestorer restorer_;
  fastpipe::JpegDecoder jpeg_;
};

// Larger PNGs are not read: their headers mostly lie.
constexpr std::int64_t kMostPngPixels = 1 << 18;

// Reads a PNG in whole and in part, as colours, samples and ids. Returns what is wrong, or nothing.
class PngTarget {
 public:
  std::string run(Random* random, const Bytes& input, Tally* tally);

 private:
  std::string check_pixels(const fastpipe::PngHeader& header);
  static std::string check_mask(const Bytes& input);

  fastpipe::PngDecoder whole_;
  fastpipe::PngDecoder part_;
};

// Reads a KEY.tif in whole and in part. Returns what is wrong, or nothing.
class TiledTarget {
 public:
  std::string run(Random* random, const Bytes& input, Tally* tally);

 private:
  fastpipe::PictureDecoder decoder_;
};

// Transcodes an input. Returns what is wrong with what was written, or nothing.
class TranscodeTarget {
 public:
  std::string run(Random* random, const Bytes& input, Tally* tally);

 private:
  fastpipe::Transcoder transcoder_;
  fastpipe::JpegDecoder decoder_;
};

}  // namespace fuzz
