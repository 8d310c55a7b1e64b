// JPEG's marker codes, the bytes after 0xFF (ITU-T T.81, table B.1).
#pragma once

#include <cstdint>

namespace fastpipe::marker {

constexpr std::uint8_t kStuffing = 0x00;  // no marker: the 0xFF is data
constexpr std::uint8_t kBaselineFrame = 0xC0, kExtendedFrame = 0xC1, kHuffmanTables = 0xC4;
constexpr std::uint8_t kRestart = 0xD0;  // the first of eight
constexpr std::uint8_t kStart = 0xD8, kEnd = 0xD9, kScan = 0xDA, kQuantTables = 0xDB, kRestartInterval = 0xDD;
constexpr std::uint8_t kFirstApp = 0xE0, kLastApp = 0xEF, kJfif = kFirstApp, kAdobe = 0xEE;
constexpr std::uint8_t kComment = 0xFE, kFill = 0xFF;

}  // namespace fastpipe::marker
