// JPEGs -> hashes of what the engine's own code makes of them: pixels, and what `pack` writes. Needs neither libjpeg
// nor Python, so it also runs where only a compiler and an emulator are.
//
//     picture_hashes TILE_WIDTH FILE...
//
// Prints a line a file: XXH3-64 of the RGB pixels of the whole picture at 1/1, 1/2, 1/4 and 1/8, then of its middle
// half at the same sizes ("-" where the decoder gives up), of the packed JPEG and of the KEY.fpc.
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

#include "base/xxh3.h"
#include "coefficients/coefficient_writer.h"
#include "jpeg/decode/baseline_decoder.h"
#include "jpeg/parsed_header.h"
#include "jpeg/restart_map.h"
#include "jpeg/transcode/jpeg_writer.h"
#include "jpeg/transcode/scan_tokens.h"
#include "jpeg/transcode/tiling.h"

namespace {

using namespace fastpipe;

using Bytes = std::vector<std::uint8_t>;

struct Picture {
  Size size;
  Bytes rgb;
};

void take(void* context, int y, int count, const std::uint8_t* rgbx, std::ptrdiff_t stride) {
  auto* const picture = static_cast<Picture*>(context);
  for (int row = 0; row < count; ++row) {
    std::uint8_t* to = picture->rgb.data() + std::ptrdiff_t{3} * picture->size.width * (y + row);
    const std::uint8_t* from = rgbx + row * stride;
    for (int x = 0; x < picture->size.width; ++x, from += 4, to += 3) {
      for (int c = 0; c < 3; ++c) to[c] = from[c];
    }
  }
}

void print_hash(bool good, const std::uint8_t* data, std::size_t size) {
  if (good) {
    std::printf("%016" PRIx64 " ", xxh3_64(data, size));
  } else {
    std::printf("- ");
  }
}

class Hashes {
 public:
  void print(const Bytes& jpeg, int tile_width) {
    ParsedHeader header;
    const bool known = header.read(jpeg.data(), jpeg.size());
    for (const bool middle : {false, true}) {
      for (const int denominator : {1, 2, 4, 8}) {
        const Size whole = scaled_down(header.size, denominator);
        Rect region = {0, 0, whole.width, whole.height};
        if (middle) region = {whole.width / 4, whole.height / 4, (whole.width + 1) / 2, (whole.height + 1) / 2};
        Picture picture = {{region.width, region.height}, {}};
        picture.rgb.resize(std::size_t{3} * region.width * region.height);
        print_hash(known && decode(header, jpeg, denominator, region, &picture), picture.rgb.data(),
                   picture.rgb.size());
      }
    }
    print_packed(known, header, jpeg, tile_width);
    std::printf("\n");
  }

 private:
  bool decode(const ParsedHeader& header, const Bytes& jpeg, int denominator, Rect region, Picture* picture) {
    const std::size_t intervals = header.intervals_of_grid();
    const CropRows crop = {{denominator, region}, {picture, take}};
    return intervals > 0 && map_.find(jpeg.data() + header.bytes, jpeg.size() - header.bytes, intervals) &&
           decoder_.open(header, map_, jpeg.data() + jpeg.size()) && decoder_.decode(&crop, 1);
  }

  void print_packed(bool known, const ParsedHeader& header, const Bytes& jpeg, int tile_width) {
    tokens_.clear();
    tokens_.with_values = true;
    OutputHeader frame(header);
    if (known) frame.interval = restart_interval(frame, tile_width, jpeg.size() - header.bytes);
    const bool good = known && scan_.read(header, frame, jpeg.data(), jpeg.size(), &tokens_);
    if (good) writer_.write(frame, {}, tokens_);
    print_hash(good, writer_.data(), writer_.size());
    const bool stored = good && also_.write(frame, {}, tokens_, writer_).ok();
    print_hash(stored, also_.data(), also_.size());
  }

  RestartMap map_;
  BaselineDecoder decoder_;
  ScanTokens scan_;
  TokenList tokens_;
  JpegWriter writer_;
  CoefficientWriter also_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || !BaselineDecoder::available()) return 1;
  Hashes hashes;
  for (int i = 2; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    const Bytes jpeg((std::istreambuf_iterator<char>(file)), {});
    hashes.print(jpeg, std::atoi(argv[1]));
  }
  return 0;
}
