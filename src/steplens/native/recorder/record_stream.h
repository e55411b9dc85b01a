// Records of one thread on their way to the writer: a list of chunks, with one thread that adds and one that takes.
// Neither waits for the other. Chunks of all threads together are bounded; when there are none left, records are counted and lost.
#pragma once

#include <atomic>
#include <cstdint>
#include <new>

namespace steplens {

// The first chunk of a thread is small, and each is twice as large as the one before: of hundreds of threads most do next to nothing.
constexpr uint32_t FIRST_CHUNK_BYTES = 2 << 10, CHUNK_BYTES = 64 << 10;

// How many bytes of chunks there are, of all threads and kinds of records.
struct ChunkBudget {
  std::atomic<int64_t> used{0};
  std::atomic<int64_t> most{32 << 20};
};

inline ChunkBudget& chunk_budget() {
  static ChunkBudget budget;
  return budget;
}

// The records lie behind it.
template <typename Record>
struct Chunk {
  std::atomic<Chunk*> next{nullptr};
  std::atomic<uint32_t> filled{0};  // records that are complete
  uint32_t taken = 0;               // of the writer alone
  uint32_t capacity = 0;
  uint64_t session = 0;

  Record* records() { return reinterpret_cast<Record*>(this + 1); }
  int64_t bytes() const { return static_cast<int64_t>(sizeof(Chunk) + capacity * sizeof(Record)); }

  static Chunk* make(uint64_t session, uint32_t capacity) {
    ChunkBudget& budget = chunk_budget();
    const int64_t bytes = static_cast<int64_t>(sizeof(Chunk) + capacity * sizeof(Record));
    void* place = nullptr;
    if (budget.used.fetch_add(bytes, std::memory_order_relaxed) + bytes <= budget.most.load(std::memory_order_relaxed)) {
      place = ::operator new(static_cast<size_t>(bytes), std::nothrow);
    }
    if (place == nullptr) {
      budget.used.fetch_sub(bytes, std::memory_order_relaxed);
      return nullptr;
    }
    // the records themselves stay as they are: to clear them would cost as much as to fill them
    Chunk* chunk = new (place) Chunk;
    chunk->capacity = capacity;
    chunk->session = session;
    return chunk;
  }

  static void free(Chunk* chunk) {
    chunk_budget().used.fetch_sub(chunk->bytes(), std::memory_order_relaxed);
    ::operator delete(static_cast<void*>(chunk));
  }
};

template <typename Record>
class RecordStream {
 public:
  // A place for the next record, which exists for the writer once `commit` was called; nullptr: there is no room.
  Record* next_place(uint64_t session) {
    Chunk<Record>* chunk = last_;
    if (chunk == nullptr || position_ == chunk->capacity || chunk->session != session) {
      chunk = Chunk<Record>::make(session, next_capacity(session));
      if (chunk == nullptr) {
        count_dropped();
        return nullptr;
      }
      position_ = 0;
      if (last_ == nullptr) {
        first_.store(chunk, std::memory_order_release);
      } else {
        last_->next.store(chunk, std::memory_order_release);
      }
      last_ = chunk;
    }
    return chunk->records() + position_;
  }

  void count_dropped() { dropped_.store(dropped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }

  void commit() {
    position_++;
    last_->filled.store(position_, std::memory_order_release);
    added_.store(added_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  // How many records there ever were; of any thread.
  uint64_t added() const { return added_.load(std::memory_order_relaxed); }

  // Of the writer: calls take(records, count) with all that is complete and of this session; gives back chunks that are done.
  // What is left of sessions before is passed over. The last chunk stays: its thread may be about to add to it.
  template <typename Take>
  void drain(uint64_t session, Take&& take) {
    if (reading_ == nullptr) reading_ = first_.load(std::memory_order_acquire);
    while (reading_ != nullptr) {
      Chunk<Record>* chunk = reading_;
      // whether there is a next one has to be known before how far this one is filled
      Chunk<Record>* next = chunk->next.load(std::memory_order_acquire);
      const uint32_t filled = chunk->filled.load(std::memory_order_acquire);
      if (filled > chunk->taken) {
        if (chunk->session == session) take(chunk->records() + chunk->taken, filled - chunk->taken);
        chunk->taken = filled;
      }
      if (next == nullptr) return;
      reading_ = next;
      Chunk<Record>::free(chunk);
    }
  }

  uint64_t take_dropped() {
    const uint64_t now = dropped_.load(std::memory_order_relaxed), more = now - told_;
    told_ = now;
    return more;
  }

  // Of whoever knows that neither thread is there any more.
  void free_all() {
    Chunk<Record>* chunk = reading_ != nullptr ? reading_ : first_.load(std::memory_order_acquire);
    while (chunk != nullptr) {
      Chunk<Record>* next = chunk->next.load(std::memory_order_acquire);
      Chunk<Record>::free(chunk);
      chunk = next;
    }
    forget();
  }

  // In a forked child, whose heap may be locked for good: what there was is left where it is.
  void forget() {
    first_.store(nullptr, std::memory_order_relaxed);
    last_ = reading_ = nullptr;
    position_ = 0;
  }

 private:
  uint32_t next_capacity(uint64_t session) const {
    constexpr uint32_t first = FIRST_CHUNK_BYTES / sizeof(Record), most = CHUNK_BYTES / sizeof(Record);
    if (last_ == nullptr || last_->session != session) return first;
    return last_->capacity * 2 < most ? last_->capacity * 2 : most;
  }

  // of the thread that adds
  Chunk<Record>* last_ = nullptr;
  uint32_t position_ = 0;
  // of both
  std::atomic<Chunk<Record>*> first_{nullptr};
  std::atomic<uint64_t> dropped_{0}, added_{0};
  // of the writer
  Chunk<Record>* reading_ = nullptr;
  uint64_t told_ = 0;
};

}  // namespace steplens
