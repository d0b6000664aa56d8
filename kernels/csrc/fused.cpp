// The calls of a step's ops: each picks the path of the instruction set it is told.
#include "attention_api.h"

static const TsKernels &kernels(int64_t isa, int64_t dtype) {
#if defined(__x86_64__)
    if (isa >= TS_AMX && dtype == TS_BF16) return ts_kernels_amx;
    if (isa >= TS_AVX512) return ts_kernels_avx512;
    if (isa >= TS_AVX2) return ts_kernels_avx2;
#elif defined(__aarch64__)
    if (isa >= TS_NEONBF16 && dtype == TS_BF16) return ts_kernels_neonbf16;
#endif
    (void)isa, (void)dtype;
    return ts_kernels_plain;
}

// Bytes of scratch that `ts_attend` needs for these rows.
TS_API int64_t ts_scratch_bytes(const TsArena *arena, const TsPaged *rows) {
    return kernels(arena->isa, arena->dtype).scratch_bytes(*arena, *rows);
}

TS_API void ts_attend(const TsArena *arena, const TsPaged *rows, const TsAttend *job) {
    kernels(arena->isa, arena->dtype).attend[arena->dtype](*arena, *rows, *job);
}

TS_API void ts_normed(const TsNormed *job, int64_t isa, int64_t dtype) {
    kernels(isa, dtype).normed[dtype](*job);
}

TS_API void ts_gated(const TsGated *job, int64_t isa, int64_t dtype) {
    kernels(isa, dtype).gated[dtype](*job);
}
