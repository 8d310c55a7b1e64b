#include <cstring>
#include <vector>

#include "engine/mask_row.h"
#include "png/png_rows.h"
#include "png/png_writer.h"
#include "targets.h"

namespace fuzz {
namespace {

using namespace fastpipe;

Status decode(PngDecoder* decoder, Bytes* bytes, int first, int count) {
  Status status = decoder->open(bytes->data(), bytes->size(), kMostPngPixels);
  if (!status.ok()) return status;
  if (count == 0) count = decoder->header().size.height;
  return decoder->decode(first, count);
}

}  // namespace

std::string PngTarget::run(Random* random, const Bytes& input, Tally* tally) {
  Bytes bytes = input;
  if (!decode(&whole_, &bytes, 0, 0).ok()) return "";
  const PngHeader header = whole_.header();
  const int first = random->below(header.size.height);
  const int count = 1 + random->below(header.size.height - first);
  Bytes again = input;
  if (!decode(&part_, &again, first, count).ok()) return "a PNG is decoded in whole and not in part";
  for (int y = first; y < first + count; ++y) {
    if (std::memcmp(whole_.row(y), part_.row(y), header.row_bytes()) != 0) return "a PNG's rows differ in part";
  }
  ++tally->pngs;
  if (!header.has_ids()) return "";

  MaskRow mask;
  Bytes third = input;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(header.size.width) *
                                static_cast<std::size_t>(header.size.height));
  Status status = mask.png()->open(third.data(), third.size(), kMostPngPixels);
  if (status.ok()) status = mask.fill({ids.data(), header.size, 4});
  if (!status.ok()) return "a PNG that is decoded gives no mask";
  Bytes samples;
  for (const std::int32_t id : ids) {
    if (id < 0 || id >> header.bits != 0) return "an id has more bits than its PNG";
    samples.push_back(static_cast<std::uint8_t>(id >> 8));
    samples.push_back(static_cast<std::uint8_t>(id));
  }
  Bytes written = write_mask_png(samples.data(), header.size, 16);
  std::vector<std::int32_t> read(ids.size());
  status = mask.png()->open(written.data(), written.size(), kMostPngPixels);
  if (status.ok()) status = mask.fill({read.data(), header.size, 4});
  return status.ok() && read == ids ? "" : "ids differ when they are written and read";
}

}  // namespace fuzz
