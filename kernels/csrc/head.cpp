// The output head's calls: each picks the path of the instruction set it is told.
#include "head.h"

// Enough for any path: x in three bf16 parts over whole tiles of rows, or once more in floats.
TS_API int64_t ts_head_scratch(int64_t rows, int64_t width) {
    const int64_t whole = (rows + 31) / 32 * 32, wide = (width + 63) / 64 * 64;
    return whole * wide * 6;
}

// Beside that, for `ts_head_best`: 16 lanes of a value and an id, a row and thread.
TS_API int64_t ts_head_best_scratch(int64_t rows, int64_t threads) {
    return (rows + 31) / 32 * 32 * threads * 128;
}

#if defined(__x86_64__)
static int by_tiles(const TsHead &h) {
    return h.isa >= TS_AMX && h.dtype == TS_BF16 && h.width % 32 == 0 && h.vocab >= 32;
}
#endif

// 0 where this weight or CPU has no such path, and nothing was done.
TS_API int ts_head_best(const TsHead *head, float *best, int64_t *ids) {
#if defined(__x86_64__)
    if (by_tiles(*head)) {
        head_best_amx(*head, best, ids);
        return 1;
    }
#endif
    (void)head;
    (void)best;
    (void)ids;
    return 0;
}

TS_API void ts_head(const TsHead *head) {
#if defined(__x86_64__)
    if (by_tiles(*head)) return head_amx(*head);
    if (head->isa >= TS_AVX512) return head_avx512(*head);
    if (head->isa >= TS_AVX2) return head_avx2(*head);
#endif
    head_plain(*head);
}
