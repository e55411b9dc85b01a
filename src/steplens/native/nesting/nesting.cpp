// Call nesting in one pass: what steplens/trace/building/nesting.py works out over whole columns, and says the meaning of.
//
// Calls are sorted by (lane, start, -end). The innermost open call and those around it are the stack; the parents, which are
// written here, are its links, so that there is no other memory than the caller's.

#include <cstdint>

#define STEPLENS_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int64_t kNone = -1;

}  // namespace

// Raised with every change of the functions below.
STEPLENS_EXPORT int64_t steplens_nesting_version() { return 1; }

// Parent, depth and end of the subtree of each of `count` calls.
STEPLENS_EXPORT void steplens_nest_calls(int64_t count, const int64_t* lane, const int64_t* start, const int64_t* end,
                                         int64_t* parent, int64_t* depth, int64_t* subtree_end) {
    int64_t open = kNone;
    for (int64_t call = 0; call < count; ++call) {
        const bool begins_lane = call > 0 && lane[call] != lane[call - 1];
        while (open != kNone && (begins_lane || end[open] < end[call] || end[open] <= start[call])) {
            subtree_end[open] = call;
            open = parent[open];
        }
        parent[call] = open;
        depth[call] = open == kNone ? 0 : depth[open] + 1;
        open = call;
    }
    for (; open != kNone; open = parent[open]) subtree_end[open] = count;
}

// The innermost call of one lane that runs at each of `times` times, which do not fall. Calls that have ended are passed over
// once: no later call begins inside them.
STEPLENS_EXPORT void steplens_innermost_calls(int64_t count, const int64_t* start, const int64_t* end, const int64_t* parent,
                                              int64_t times, const int64_t* time, int64_t* innermost) {
    int64_t open = kNone;
    int64_t next = 0;
    for (int64_t moment = 0; moment < times; ++moment) {
        while (next < count && start[next] <= time[moment]) open = next++;
        while (open != kNone && end[open] < time[moment]) open = parent[open];
        innermost[moment] = open;
    }
}
