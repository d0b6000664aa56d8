// LoRA by rows with AVX2.
#include "lora_rows.h"

void lora_avx2(const TsStep &step, const TsGroup &group, int64_t layer, const TsRows &rows) {
    lora_of_dtype(step, group, layer, rows);
}
