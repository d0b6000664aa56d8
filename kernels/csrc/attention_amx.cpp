// Attention and the fused ops of a step in bf16 for AVX-512 with AMX.
#include "attention_body.h"

extern const TsKernels ts_kernels_amx = TS_KERNELS;
