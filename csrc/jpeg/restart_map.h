// The entropy-coded bytes of a scan -> where each restart interval begins and ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fastpipe {

// Restart markers are not coded, so a search for them finds every interval without decoding any.
class RestartMap {
 public:
  // `data` begins after the scan's header; the bytes must stay valid while the map is used. True if there are exactly
  // `intervals` intervals, their markers numbered in turn (ITU-T T.81, E.1.4) and an end marker after the last. If not,
  // the map is empty: the file is damaged or odd, and a decoder that reads it in order may say how.
  bool find(const std::uint8_t* data, std::size_t size, std::size_t intervals);

  const std::uint8_t* begin(std::size_t interval) const { return data_ + begins_[interval]; }
  const std::uint8_t* end(std::size_t interval) const { return data_ + begins_[interval + 1] - 2; }  // its marker

 private:
  const std::uint8_t* data_ = nullptr;
  std::vector<std::size_t> begins_;  // one more than intervals
};

}  // namespace fastpipe
