// LoRA by rows with what every CPU of the platform has; no fp16.
#include "lora_rows.h"

void lora_plain(const TsStep &step, const TsGroup &group, int64_t layer, const TsRows &rows) {
    lora_of_dtype(step, group, layer, rows);
}
