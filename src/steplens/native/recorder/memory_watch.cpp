// Allocations of the processor's memory. PyTorch reports them to one profiler of each thread, and looks up what is freed in a table
// under a lock; an allocator in front of PyTorch's own costs a quarter of that, sees all threads, and is in nobody's way: Kineto
// may record memory at the same time. How large what is freed was, the reader of the file knows from its allocation.
#include "memory_watch.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include "recorder.h"

namespace steplens {

namespace {

// the highest priority that was used to set an allocator counts; the same one may set it again
constexpr uint8_t PRIORITY = 0;

class WatchedAllocator final : public c10::Allocator {
 public:
  // Returns whether allocations can be watched.
  bool wrap(c10::Allocator* inner) {
    c10::DeleterFnPtr deleter = inner->raw_deleter();
    // of one whose blocks need more than their address to be freed, nothing can be told at the end
    if (deleter == nullptr) return false;
    inner_ = inner;
    deleter_ = deleter;
    return true;
  }

  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr block = inner_->allocate(bytes);
    // an empty block is none; and who knows what another kind of block is freed by
    if (bytes == 0 || block.get_deleter() != deleter_ || block.get() != block.get_context()) return block;
    void* address = block.get();
    if (!block.compare_exchange_deleter(deleter_, &free_block)) return block;
    Recorder::instance().memory_event(address, static_cast<int64_t>(bytes));
    return block;
  }

  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* target, const void* source, std::size_t count) const override { inner_->copy_data(target, source, count); }
  c10::Allocator* inner() const { return inner_; }

  static WatchedAllocator& instance() {
    // never destroyed: tensors that outlive the program's objects still refer to it
    static WatchedAllocator* const allocator = new WatchedAllocator;
    return *allocator;
  }

 private:
  static void free_block(void* address) {
    // before: as soon as it is free, another thread may get it; libraries free null, too, which was never allocated
    if (address != nullptr) Recorder::instance().memory_event(address, -1);
    instance().deleter_(address);
  }

  c10::Allocator* inner_ = nullptr;
  c10::DeleterFnPtr deleter_ = nullptr;
};

}  // namespace

void watch_processor_memory() {
  WatchedAllocator& watched = WatchedAllocator::instance();
  c10::Allocator* current = c10::GetCPUAllocator();
  if (current == &watched) return;
  // Blocks of another allocator may still be freed through ours: once there was one, no second can come in its place.
  if (watched.inner() != nullptr && watched.inner() != current) return;
  if (watched.wrap(current)) c10::SetCPUAllocator(&watched, PRIORITY);
}

void leave_processor_memory() {
  WatchedAllocator& watched = WatchedAllocator::instance();
  // another one that was set meanwhile stays
  if (watched.inner() != nullptr && c10::GetCPUAllocator() == &watched) c10::SetCPUAllocator(watched.inner(), PRIORITY);
}

}  // namespace steplens
