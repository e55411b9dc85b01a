// Records of one thread on their way to the writer: a list of chunks, with one thread that adds and one that takes.
// Neither waits for the other. Chunks of all threads together are bounded; when there are none left, records are counted and lost.
#pragma once

#include <atomic>
#include <cstdint>
#include <new>

namespace steplens {

constexpr size_t CHUNK_BYTES = 64 << 10;

// How many chunks there are, of all threads and kinds of records.
struct ChunkBudget {
  std::atomic<int64_t> used{0};
  std::atomic<int64_t> most{512};
};

inline ChunkBudget& chunk_budget() {
  static ChunkBudget budget;
  return budget;
}

template <typename Record>
struct Chunk {
  static constexpr uint32_t CAPACITY = (CHUNK_BYTES - 32) / sizeof(Record);
  std::atomic<Chunk*> next{nullptr};
  std::atomic<uint32_t> filled{0};  // records that are complete
  uint32_t taken = 0;               // of the writer alone
  uint64_t session = 0;
  Record records[CAPACITY];

  static Chunk* make(uint64_t session) {
    ChunkBudget& budget = chunk_budget();
    if (budget.used.fetch_add(1, std::memory_order_relaxed) >= budget.most.load(std::memory_order_relaxed)) {
      budget.used.fetch_sub(1, std::memory_order_relaxed);
      return nullptr;
    }
    void* place = ::operator new(sizeof(Chunk), std::nothrow);
    if (place == nullptr) {
      budget.used.fetch_sub(1, std::memory_order_relaxed);
      return nullptr;
    }
    Chunk* chunk = static_cast<Chunk*>(place);
    // the records themselves stay as they are: to clear them would cost as much as to fill them
    new (&chunk->next) std::atomic<Chunk*>(nullptr);
    new (&chunk->filled) std::atomic<uint32_t>(0);
    chunk->taken = 0;
    chunk->session = session;
    return chunk;
  }

  static void free(Chunk* chunk) {
    ::operator delete(static_cast<void*>(chunk));
    chunk_budget().used.fetch_sub(1, std::memory_order_relaxed);
  }
};

template <typename Record>
class RecordStream {
 public:
  // A place for the next record, which exists for the writer once `commit` was called; nullptr: there is no room.
  Record* next_place(uint64_t session) {
    Chunk<Record>* chunk = last_;
    if (chunk == nullptr || position_ == Chunk<Record>::CAPACITY || chunk->session != session) {
      chunk = Chunk<Record>::make(session);
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
    return &chunk->records[position_];
  }

  void count_dropped() { dropped_.store(dropped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }

  void commit() {
    position_++;
    last_->filled.store(position_, std::memory_order_release);
  }

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
        if (chunk->session == session) take(&chunk->records[chunk->taken], filled - chunk->taken);
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
  // of the thread that adds
  Chunk<Record>* last_ = nullptr;
  uint32_t position_ = 0;
  // of both
  std::atomic<Chunk<Record>*> first_{nullptr};
  std::atomic<uint64_t> dropped_{0};
  // of the writer
  Chunk<Record>* reading_ = nullptr;
  uint64_t told_ = 0;
};

}  // namespace steplens
