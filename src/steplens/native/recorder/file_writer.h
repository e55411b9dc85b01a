// Writes blocks to the file. After an error nothing more is written, and the error is kept.
#pragma once

#include <cstdint>
#include <string>

#include "file_format.h"

namespace steplens {

class FileWriter {
 public:
  FileWriter() = default;
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  // 0, or errno
  int open(const char* path);
  void write_header(const FileHeader& header);
  void write_block(BlockKind kind, uint32_t thread, uint32_t count, const void* content, uint64_t bytes);
  void close();
  // In a forked child: the file is the parent's.
  void abandon();

  int64_t error_number() const { return error_; }
  uint64_t bytes() const { return bytes_; }

 private:
  void write_parts(const void* first, size_t first_bytes, const void* second, size_t second_bytes);

  int descriptor_ = -1;
  int64_t error_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace steplens
