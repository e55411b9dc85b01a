#include "file_writer.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

namespace steplens {

FileWriter::~FileWriter() { close(); }

int FileWriter::open(const char* path) {
  descriptor_ = ::open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0640);
  return descriptor_ < 0 ? errno : 0;
}

void FileWriter::write_header(const FileHeader& header) { write_parts(&header, sizeof(header), nullptr, 0); }

void FileWriter::write_block(BlockKind kind, uint32_t thread, uint32_t count, const void* content, uint64_t bytes) {
  const BlockHeader header{BLOCK_MAGIC, kind, count, thread, bytes};
  write_parts(&header, sizeof(header), content, bytes);
}

void FileWriter::write_parts(const void* first, size_t first_bytes, const void* second, size_t second_bytes) {
  if (error_ != 0 || descriptor_ < 0) return;
  static const char zeros[8] = {};
  const size_t padding = (8 - (first_bytes + second_bytes) % 8) % 8;
  iovec parts[3] = {{const_cast<void*>(first), first_bytes}, {const_cast<void*>(second), second_bytes}, {const_cast<char*>(zeros), padding}};
  size_t left = first_bytes + second_bytes + padding;
  iovec* part = parts;
  while (left != 0) {
    while (part->iov_len == 0) part++;
    const ssize_t written = ::writev(descriptor_, part, static_cast<int>(parts + 3 - part));
    if (written < 0) {
      if (errno == EINTR) continue;
      error_ = errno;
      // A full disk is full for the training too: half of what is here makes room, and the rest is read like that of a killed process.
      if (error_ == ENOSPC || error_ == EDQUOT) (void)!::ftruncate(descriptor_, static_cast<off_t>(bytes_ / 2));
      return;
    }
    bytes_ += static_cast<uint64_t>(written);
    left -= static_cast<size_t>(written);
    size_t done = static_cast<size_t>(written);
    while (done != 0) {
      const size_t step = done < part->iov_len ? done : part->iov_len;
      part->iov_base = static_cast<char*>(part->iov_base) + step;
      part->iov_len -= step;
      done -= step;
      if (part->iov_len == 0 && done != 0) part++;
    }
  }
}

void FileWriter::close() {
  if (descriptor_ >= 0 && ::close(descriptor_) != 0 && error_ == 0) error_ = errno;
  descriptor_ = -1;
}

void FileWriter::abandon() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

}  // namespace steplens
