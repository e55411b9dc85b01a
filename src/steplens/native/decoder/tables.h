// The columns that events become, table by table. What a table or a column means is told in kineto_events.py and kineto_frames.py.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#ifdef __linux__
#include <sys/mman.h>
#endif

#include "text_pool.h"

namespace steplens {

// Where the events of a category go. Python says which category is of which kind (native_decoder.py has the same numbers).
enum CategoryKind : uint8_t {
  kOperator,
  kAnnotation,
  kKernel,
  kCopy,
  kCall,
  kDeviceRange,
  kPython,
  kUnplaced,
  kIgnored,
  kKindCount,
  kUnknown = 255,
};

// In the order of the frames in native_decoder.py, as are the columns below.
enum Table : uint8_t {
  kOperatorTable,
  kTaskTable,
  kCallTable,
  kDeviceRangeTable,
  kPythonTable,
  kUnplacedTable,
  kMemoryTable,
  kFlowStartTable,
  kFlowEndTable,
  kHalfTable,
  kTableCount,
};

constexpr int kNumbers = 7;
constexpr int kTexts = 4;

// One event of a piece, before it is known that all of the piece can be read here.
struct Record {
  int64_t pid, tid, start, end;
  int64_t numbers[kNumbers];
  Code name, category;
  Code texts[kTexts];
  // text of the arguments in the piece
  uint32_t args_begin, args_size;
  uint32_t group;
  // which are null: a bit for each number, then for pid, tid, start, end, and the id of an arrow
  uint16_t nulls;
  // of a task: how often the text that begins its launch occurs in its arguments, 2 for more or where it is no member
  uint8_t marks;
  bool is_annotation, begins, describes_collective;
};

enum NullBit { kNullPid = kNumbers, kNullTid, kNullStart, kNullEnd, kNullId };

enum ColumnType : uint8_t { kIntegers, kReals, kCodes, kBooleans, kBlobs };

// What of a record a column takes.
enum Source : uint8_t {
  kFromName,
  kFromCategory,
  kFromPid,
  kFromTid,
  kFromStart,
  kFromEnd,
  kFromAnnotation,
  kFromBegins,
  kFromArgs,
  kFromNumber,                         // and the number of the number
  kFromReal = kFromNumber + kNumbers,  // the last number, as a double
  kFromText,                           // and the number of the text
  kFromNowhere = kFromText + kTexts,   // null
};

// What the rows of a group have in their columns.
struct Presence {
  // bits as in `Record::nulls`: null in some row, and null in all of them
  uint16_t some_null = 0, all_null = 0xffff;
  bool has_name = false, has_category = false;
  bool has_text[kTexts] = {};
};

// So many bytes of an array are asked for in large pages: to be handed out one small page at a time takes longer than to be filled.
constexpr size_t kLargePagesFrom = size_t{16} << 20;

// An array whose growth costs no copy where the system can move pages.
template <typename Number>
class Growing {
 public:
  Growing() = default;
  Growing(const Growing&) = delete;
  Growing& operator=(const Growing&) = delete;
  Growing(Growing&& other) noexcept : numbers_(other.numbers_), size_(other.size_), room_(other.room_) {
    other.numbers_ = nullptr;
    other.size_ = other.room_ = 0;
  }
  ~Growing() { std::free(numbers_); }

  void reserve(size_t wanted) {
    if (wanted <= room_) return;
    const size_t room = wanted + wanted / 2 + 64;
    if (room > SIZE_MAX / sizeof(Number)) throw std::bad_alloc();
    void* moved = std::realloc(numbers_, room * sizeof(Number));
    if (moved == nullptr) throw std::bad_alloc();
    numbers_ = static_cast<Number*>(moved);
    room_ = room;
    use_large_pages();
  }
  // There is room for it.
  void append(Number number) { numbers_[size_++] = number; }
  void append(const char* bytes, size_t count) {
    if (count != 0) std::memcpy(numbers_ + size_, bytes, count);
    size_ += count;
  }
  void fill(Number number, size_t count) {
    for (size_t at = 0; at < count; ++at) numbers_[size_ + at] = number;
    size_ += count;
  }
  void clear() {
    std::free(numbers_);
    numbers_ = nullptr;
    size_ = room_ = 0;
  }
  size_t size() const { return size_; }
  const Number* numbers() const { return numbers_; }

 private:
  void use_large_pages() {
#ifdef MADV_HUGEPAGE
    constexpr uintptr_t kPage = 4096;
    if (room_ < kLargePagesFrom / sizeof(Number)) return;
    const uintptr_t begin = (reinterpret_cast<uintptr_t>(numbers_) + kPage - 1) / kPage * kPage;
    const uintptr_t end = reinterpret_cast<uintptr_t>(numbers_ + room_) / kPage * kPage;
    // a wish: where it is not granted, nothing changes
    if (begin < end) static_cast<void>(madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE));
#endif
  }

  Number* numbers_ = nullptr;
  size_t size_ = 0, room_ = 0;
};

// Takes memory for what is there: neither for values as long as all are null, nor for which are null as long as none is.
struct Column {
  Source source;
  ColumnType type;
  size_t rows = 0, null_count = 0;
  Growing<int64_t> integers;  // doubles too, by their bits; of blobs where each ends
  Growing<Code> codes;
  Growing<uint8_t> bytes;     // booleans; which integers are null; blobs

  explicit Column(Source from);
  // Room for so many more rows of some groups, of which blobs have so many bytes together.
  void reserve(size_t more, bool has_values, bool has_nulls, size_t blob_bytes);
  // There is room for them: the records with these numbers. Blobs are stretches of `piece`.
  void append(const Record* records, const uint32_t* numbers, size_t count, const Presence& presence, const char* piece);
  void clear();

  // Whether a group has a value here, and whether it has a null.
  bool has_values(const Presence& presence) const;
  bool has_nulls(const Presence& presence) const;

 private:
  // Of integers: the bit of `Record::nulls` that tells it.
  int null_bit() const;
  bool keeps_values() const { return null_count < rows; }
  bool keeps_nulls() const { return keeps_values() && null_count != 0; }

  template <typename Getter>
  void append_integers(const Record* records, const uint32_t* numbers, size_t count, const Presence& presence, Getter number_of);
  template <typename Getter>
  void append_codes(const Record* records, const uint32_t* numbers, size_t count, const Presence& presence, Getter code_of);
  void append_blob(const Record& record, const char* piece);
};

// The columns of each table.
std::vector<std::vector<Column>> make_tables();

}  // namespace steplens
