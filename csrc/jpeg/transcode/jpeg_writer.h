// A frame's description and the tokens of its one scan -> a baseline JPEG with the shortest Huffman codes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "jpeg/transcode/output_header.h"
#include "jpeg/transcode/tokens.h"

namespace fastpipe {

// A segment to write after the header: APPn or COM, as its marker byte and its bytes without marker and length.
struct Segment {
  int marker;
  const std::uint8_t* data;
  std::size_t size;
};

// Writes one JPEG at a time. The segments and their order are libjpeg-turbo's, and so is every byte.
class JpegWriter {
 public:
  void write(const OutputHeader& header, const std::vector<Segment>& segments, const TokenList& tokens);

  // What write wrote; valid until the next one.
  const std::uint8_t* data() const { return bytes_.data(); }
  std::size_t size() const { return size_; }

  void clear() {
    give_back_if_giant(&bytes_);
    size_ = 0;
  }

 private:
  std::vector<std::uint8_t> bytes_;  // may be larger than what it holds
  std::size_t size_ = 0;
};

}  // namespace fastpipe
