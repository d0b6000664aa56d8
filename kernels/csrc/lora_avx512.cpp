// LoRA by rows with AVX512.
#define TS_TILES
#include "lora_rows.h"

void lora_avx512(const TsStep &step, const TsGroup &group, int64_t layer, const TsRows &rows) {
    lora_of_dtype(step, group, layer, rows);
}
