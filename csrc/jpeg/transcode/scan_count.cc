#include "jpeg/transcode/scan_count.h"

#include <cstring>

#include "jpeg/markers.h"

namespace fastpipe {

int count_scans(const std::uint8_t* data, std::size_t size, int most) {
  constexpr std::uint8_t kTemporary = 0x01;
  int scans = 1;
  const std::uint8_t* at = data;
  const std::uint8_t* const end = data + size;
  while (scans <= most) {
    at = static_cast<const std::uint8_t*>(std::memchr(at, 0xFF, static_cast<std::size_t>(end - at)));
    if (at == nullptr || end - at < 4) break;
    const std::uint8_t code = at[1];
    const bool restart = code >= marker::kRestart && code < marker::kStart;
    if (code == marker::kFill) {
      ++at;
    } else if (code == marker::kStuffing || code == kTemporary || restart) {
      at += 2;
    } else if (code == marker::kEnd) {
      break;
    } else {
      if (code == marker::kScan) ++scans;
      const std::ptrdiff_t bytes = 2 + (at[2] << 8 | at[3]);
      if (bytes > end - at) break;
      at += bytes;
    }
  }
  return scans;
}

}  // namespace fastpipe
