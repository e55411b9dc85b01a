#pragma once

namespace steplens {

// Lets every allocation of the processor's memory by PyTorch be recorded, of whatever thread.
void watch_processor_memory();

// Takes that back. What was allocated meanwhile is freed as ever.
void leave_processor_memory();

}  // namespace steplens
