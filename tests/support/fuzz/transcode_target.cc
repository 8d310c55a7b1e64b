#include "decode.h"
#include "targets.h"

namespace fuzz {

using namespace fastpipe;

std::string TranscodeTarget::run(Random* random, const Bytes& input, Tally* tally) {
  const Bytes exact_size(input.begin(), input.end());  // nothing is readable behind it
  TranscodeOptions options;
  const int tiles[] = {0, 16, 32, 32};
  options.tile_width = tiles[random->below(4)];
  options.check_only = random->one_in(6);
  const bool with_comment = random->one_in(4);
  const std::uint8_t comment[] = {'a', 0xFF, 0xD9};
  std::vector<fastpipe::Segment> segments;
  if (with_comment) segments.push_back({0xFE, comment, sizeof comment});
  JpegInfo info;
  const Status status = transcoder_.run(exact_size.data(), exact_size.size(), segments, options, &info);
  if (!status.ok() || transcoder_.output_size() == 0) return "";
  ++tally->transcoded;
  if (std::int64_t{info.width} * info.height > kMostCompared) return "";

  const std::uint8_t* const output = transcoder_.output();
  const std::size_t size = transcoder_.output_size();
  const Decoded written = decode(&decoder_, output, size, 1, nullptr, DecodeMethod::best);
  if (!written.status.ok()) return std::string("what was transcoded cannot be decoded: ") + written.status.detail;
  const Decoded before = decode(&decoder_, exact_size.data(), exact_size.size(), 1, nullptr, DecodeMethod::libjpeg);
  if (before.status.ok() && info.exact && before.rgb != written.rgb) return "transcoding changed pixels";
  return "";
}

}  // namespace fuzz
