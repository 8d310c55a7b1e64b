#include <cstring>
#include <vector>

#include "engine/mask_row.h"
#include "engine/picture.h"
#include "png/png_rows.h"
#include "targets.h"

namespace fuzz {
namespace {

using namespace fastpipe;

Status decode(PngDecoder* decoder, const Bytes& bytes, int first, int count) {
  Status status = decoder->open(bytes.data(), bytes.size(), kMostPngPixels);
  if (!status.ok()) return status;
  if (count == 0) count = decoder->header().size.height;
  return decoder->decode(first, count);
}

}  // namespace

std::string PngTarget::run(Random* random, const Bytes& input, Tally* tally) {
  if (!decode(&whole_, input, 0, 0).ok()) return "";
  const PngHeader header = whole_.header();
  const int first = random->below(header.size.height);
  const int count = 1 + random->below(header.size.height - first);
  if (!decode(&part_, input, first, count).ok()) return "a PNG is decoded in whole and not in part";
  for (int y = first; y < first + count; ++y) {
    if (std::memcmp(whole_.row(y), part_.row(y), header.row_bytes()) != 0) return "a PNG's rows differ in part";
  }
  ++tally->pngs;
  const std::string problem = check_pixels(header);
  return problem.empty() && header.has_ids() ? check_mask(input) : problem;
}

// The higher bytes of the samples are the colours. Memory has their very sizes, so that a sanitizer sees a byte beyond.
std::string PngTarget::check_pixels(const PngHeader& header) {
  const auto pixels = static_cast<std::size_t>(header.size.width) * static_cast<std::size_t>(header.size.height);
  const auto channels = static_cast<std::size_t>(png_channels(whole_.parts()));
  const std::size_t each = header.bits == 16 ? 2 : 1;
  std::vector<std::uint16_t> samples((pixels * channels * each + 1) / 2);
  const bool told = png_samples(whole_, reinterpret_cast<std::uint8_t*>(samples.data())).ok();
  Bytes colors(pixels * 3), room;
  const PixelSpan span = {colors.data(), header.size, static_cast<std::ptrdiff_t>(header.size.width) * 3};
  const bool shown =
      png_rows(whole_, {0, 0, header.size.width, header.size.height}, rows_into(&span, {3, 8}), &room).ok();
  if (told != shown) return "a PNG has colours and no samples, or samples and no colours";
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(samples.data());
  for (std::size_t i = 0; told && i < pixels * 3; ++i) {
    const std::size_t at = i / 3 * channels + (channels > 2 ? i % 3 : 0);
    const int expected = each == 2 ? samples[at] >> 8 : bytes[at];
    if (colors[i] != expected) return "a PNG's colours are not its samples";
  }
  return "";
}

std::string PngTarget::check_mask(const Bytes& input) {
  MaskRow mask;
  Status status = mask.png()->open(input.data(), input.size(), kMostPngPixels);
  const PngHeader header = mask.png()->header();
  std::vector<std::int32_t> ids(static_cast<std::size_t>(header.size.width) *
                                static_cast<std::size_t>(header.size.height));
  if (status.ok()) status = mask.fill({ids.data(), header.size, 4});
  if (!status.ok()) return "a PNG that is decoded gives no mask";
  for (const std::int32_t id : ids) {
    if (id < 0 || id >> header.bits != 0) return "an id has more bits than its PNG";
  }
  return "";
}

}  // namespace fuzz
