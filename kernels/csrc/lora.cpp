// The one LoRA call: picks the path of the instruction set it is told. Computes nothing itself.
#include "lora.h"

// Adds one layer's group, for all rows of a step. x_stride, y_stride: bytes a row.
TS_API void ts_lora(const TsStep *step, const TsGroup *group, int64_t layer, const void *x,
                    int64_t x_stride, void *y, int64_t y_stride) {
    const TsRows rows = {(const char *)x, x_stride, (char *)y, y_stride};
#if defined(__x86_64__)
    if (step->isa >= TS_AVX512) return lora_avx512(*step, *group, layer, rows);
    if (step->isa >= TS_AVX2) return lora_avx2(*step, *group, layer, rows);
#endif
    lora_plain(*step, *group, layer, rows);
}
